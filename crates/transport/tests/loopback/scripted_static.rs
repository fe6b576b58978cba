//! Static sessions that do what a test tells them.

use std::future::Future;
use std::sync::Arc;

use highwater_wire::proto::backend::subscribe_static_response::{Response, Started};
use highwater_wire::proto::backend::{CatchupTarget, SubscribeStaticResponse, TopicQuery};
use tokio::sync::mpsc;
use tonic::Status;

use crate::scripted::{Boxed, Script};

/// What a static session does once it is accepted.
pub(crate) fn static_session<F: Future<Output = ()> + Send + 'static>(
    session: impl Fn(StaticCall) -> F + Send + Sync + 'static,
) -> Script {
    let static_session: Arc<dyn Fn(StaticCall) -> Boxed<()> + Send + Sync> =
        Arc::new(move |call| Box::pin(session(call)));
    Script { static_session, ..Script::default() }
}

/// The backend's side of one SubscribeStatic.
pub(crate) struct StaticCall {
    pub(crate) topics: Vec<TopicQuery>,
    frames: mpsc::Sender<Result<SubscribeStaticResponse, Status>>,
}

impl StaticCall {
    pub(crate) fn new(
        topics: Vec<TopicQuery>,
        frames: mpsc::Sender<Result<SubscribeStaticResponse, Status>>,
    ) -> Self {
        Self { topics, frames }
    }

    pub(crate) async fn send(&self, response: Response) {
        // The client may be gone; then nothing is sent any more.
        let _ = self.frames.send(Ok(SubscribeStaticResponse { response: Some(response) })).await;
    }

    /// Starts, with targets of zero.
    pub(crate) async fn start(&self, keepalive_interval_ms: u32) {
        let target = |of: &TopicQuery| CatchupTarget { topic: of.topic.clone(), through_sequence_id: 0 };
        let targets = self.topics.iter().map(target).collect();
        let started = Started { keepalive_interval_ms, targets };
        self.send(Response::Started(started)).await;
    }

    pub(crate) async fn fail_with(self, status: Status) {
        let _ = self.frames.send(Err(status)).await;
    }

    /// Stays open and silent until the client goes.
    pub(crate) async fn idle(self) {
        self.frames.closed().await;
    }
}
