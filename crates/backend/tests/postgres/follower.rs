//! Readers that check as they go: every envelope once, in order.

use std::collections::BTreeMap;

use highwater_wire::{
    Topic,
    proto::backend::{
        Pong, SubscribeRequest, SubscribeResponse,
        subscribe_request::{Request, Update},
        subscribe_response::Response,
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::fixture::{Client, at, envelope_id, welcome_topic};

/// A subscription over topics, with its own position on each.
pub(crate) struct Follower {
    positions: BTreeMap<Topic, Vec<u64>>,
    session: Option<Session>,
}

struct Session {
    requests: mpsc::Sender<SubscribeRequest>,
    responses: Streaming<SubscribeResponse>,
}

impl Follower {
    pub(crate) fn of(topics: impl Iterator<Item = u8>) -> Self {
        let positions = topics.map(|number| (welcome_topic(number), Vec::new())).collect();
        Self { positions, session: None }
    }

    /// What was received, per topic.
    pub(crate) fn received(&self) -> &BTreeMap<Topic, Vec<u64>> {
        &self.positions
    }

    pub(crate) fn count(&self) -> usize {
        self.positions.values().map(Vec::len).sum()
    }

    /// Opens a stream at the positions, and waits until it is acknowledged.
    pub(crate) async fn connect(&mut self, client: &Client) -> Result<(), Status> {
        let (requests, outgoing) = mpsc::channel(8);
        let adds = self.positions.iter().map(|(topic, ids)| at(*topic, ids.last().copied().unwrap_or(0)));
        let update = Update { id: 1, adds: adds.collect(), removes: Vec::new() };
        let request = SubscribeRequest { request: Some(Request::Update(update)) };
        requests.send(request).await.map_err(|_| Status::unavailable("no stream"))?;
        let outgoing = ReceiverStream::new(outgoing);
        let mut responses = client.subscribe.clone().subscribe(outgoing).await?.into_inner();
        loop {
            match responses.message().await?.and_then(|frame| frame.response) {
                Some(Response::Applied(_)) => break,
                Some(_) => {}
                None => return Err(Status::unavailable("the stream ended")),
            }
        }
        self.session = Some(Session { requests, responses });
        Ok(())
    }

    /// Leaves the stream, as a client that goes away.
    pub(crate) fn disconnect(&mut self) {
        self.session = None;
    }

    /// Takes the next frame, and checks what is in it. An error ends the stream; another can be opened.
    pub(crate) async fn step(&mut self) -> Result<(), Status> {
        let Some(session) = &mut self.session else { return Err(Status::unavailable("not connected")) };
        let frame = match session.responses.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                self.session = None;
                return Err(Status::unavailable("the stream ended"));
            }
            Err(status) => {
                self.session = None;
                return Err(status);
            }
        };
        match frame.response {
            Some(Response::Messages(messages)) => {
                for envelope in &messages.envelopes {
                    let meta = envelope.meta.as_ref().expect("metadata");
                    let topic = Topic::try_from(meta.topic.as_ref().expect("a topic")).expect("a topic");
                    let ids = self.positions.get_mut(&topic).expect("a topic that was asked for");
                    let id = envelope_id(envelope);
                    assert!(ids.last().is_none_or(|last| *last < id), "{id} after {ids:?}");
                    ids.push(id);
                }
            }
            Some(Response::Ping(ping)) => {
                let pong = SubscribeRequest { request: Some(Request::Pong(Pong { nonce: ping.nonce })) };
                let _ = session.requests.send(pong).await;
            }
            _ => {}
        }
        Ok(())
    }

    /// Steps, and opens another stream whenever one ended, until so many envelopes were received.
    pub(crate) async fn receive(&mut self, connect: impl AsyncFn() -> Client, envelopes: usize) {
        while self.count() < envelopes {
            if self.session.is_none() {
                let client = connect().await;
                if self.connect(&client).await.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            } else if let Err(status) = self.step().await {
                let expected = [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::Internal];
                assert!(expected.contains(&status.code()), "{status:?}");
            }
        }
    }
}
