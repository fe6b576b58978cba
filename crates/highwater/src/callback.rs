//! Streams driven by a callback.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ending::{CallbackError, CloseReason, guard};
use crate::{ConversationStream, Error, Group, Item, MessageStream, ReplayStream};

/// A running callback. Dropping it closes it, without waiting for the callback under way: keep it for as long as messages
/// are wanted.
#[derive(Debug)]
#[must_use = "dropping a subscription ends it"]
pub struct Subscription {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a subscription needs of a stream.
pub(crate) trait Reader: Send + 'static {
    type Item: Send + 'static;
    /// `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Result<Self::Item, Error>>> + Send;
    /// The callback returned, and wants the item never to come again.
    fn handled(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
    /// Ends for this reason, unless it had ended for another that nobody was told. Gives back which it was.
    fn end(self, reason: CloseReason) -> impl Future<Output = CloseReason> + Send;
}

impl Subscription {
    pub(crate) fn start<S, F, R, C>(stream: S, callback: F, closed: C) -> Self
    where
        S: Reader,
        F: FnMut(S::Item) -> R + Send + 'static,
        R: Future<Output = Result<(), CallbackError>> + Send + 'static,
        C: FnOnce(CloseReason) + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let closed = Closed(Some(closed));
        let task = tokio::spawn(async move {
            let reason = run(stream, callback, stopped).await;
            closed.tell(reason);
        });
        Self { stop, task }
    }

    /// Ends the subscription after the callback under way, which is acknowledged if it returns `Ok`. Returns when the
    /// close notification has been given. A callback that awaits this for its own subscription waits for itself: drop the
    /// subscription there instead.
    pub async fn close(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the close notification of a subscription ended abnormally");
        }
    }
}

/// The close notification of a subscription, which is given whatever becomes of its task: a runtime that shuts down drops
/// it (PROC-041).
struct Closed<C: FnOnce(CloseReason)>(Option<C>);

impl<C: FnOnce(CloseReason)> Closed<C> {
    fn tell(mut self, reason: CloseReason) {
        self.give(reason);
    }

    fn give(&mut self, reason: CloseReason) {
        if let Some(closed) = self.0.take() {
            guard(|| closed(reason));
        }
    }
}

impl<C: FnOnce(CloseReason)> Drop for Closed<C> {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { CloseReason::Panicked } else { CloseReason::Closed };
        self.give(reason);
    }
}

async fn run<S, F, R>(mut stream: S, mut callback: F, mut stopped: watch::Receiver<bool>) -> CloseReason
where
    S: Reader,
    F: FnMut(S::Item) -> R,
    R: Future<Output = Result<(), CallbackError>>,
{
    let reason = loop {
        let item = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break CloseReason::Closed,
            item = stream.next() => item,
        };
        let item = match item {
            Some(Ok(item)) => item,
            Some(Err(error)) => break CloseReason::Failed(error),
            None => break CloseReason::Closed,
        };
        // The closure itself may panic before it makes a future.
        let handled = AssertUnwindSafe(async { callback(item).await }).catch_unwind().await;
        match handled {
            Ok(Ok(())) => {}
            Ok(Err(error)) => break CloseReason::Callback(error),
            Err(_) => break CloseReason::Panicked,
        }
        // Now, and not with the next request: a close in between must not make a handled item come again.
        if let Err(error) = stream.handled().await {
            break CloseReason::Failed(error);
        }
    };
    // What it captured may panic when it goes, and is gone before the end is told.
    guard(|| drop(callback));
    stream.end(reason).await
}

impl Reader for MessageStream {
    type Item = Item;

    async fn next(&mut self) -> Option<Result<Item, Error>> {
        MessageStream::next(self).await
    }

    async fn handled(&mut self) -> Result<(), Error> {
        self.acknowledge().await
    }

    async fn end(self, reason: CloseReason) -> CloseReason {
        MessageStream::end(self, reason).await
    }
}

impl Reader for ReplayStream {
    type Item = Item;

    async fn next(&mut self) -> Option<Result<Item, Error>> {
        ReplayStream::next(self).await
    }

    async fn handled(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn end(self, reason: CloseReason) -> CloseReason {
        ReplayStream::end(self, &reason);
        reason
    }
}

impl Reader for ConversationStream {
    type Item = Group;

    async fn next(&mut self) -> Option<Result<Group, Error>> {
        ConversationStream::next(self).await
    }

    async fn handled(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn end(self, reason: CloseReason) -> CloseReason {
        ConversationStream::end(self, &reason);
        reason
    }
}
