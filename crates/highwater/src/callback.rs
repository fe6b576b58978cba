//! The default consumer driven by a callback.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Error, Item, MessageStream};

/// A callback's failure, in its own words.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Why a subscription ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The app closed it.
    Closed,
    /// The callback returned an error; its item comes again.
    Callback(CallbackError),
    /// The callback panicked; its item comes again.
    Panicked,
    /// The stream failed.
    Failed(Error),
}

impl CloseReason {
    /// Whether opening a new subscription can go on where this one ended, with nothing changed (PROC-043).
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_retryable())
    }
}

/// A running callback. Dropping it closes it, without waiting for the callback under way.
#[derive(Debug)]
pub struct Subscription {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Subscription {
    pub(crate) fn start<F, R, C>(stream: MessageStream, callback: F, closed: C) -> Self
    where
        F: FnMut(Item) -> R + Send + 'static,
        R: Future<Output = Result<(), CallbackError>> + Send + 'static,
        C: FnOnce(CloseReason) + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let reason = run(stream, callback, stopped).await;
            closed(reason);
        });
        Self { stop, task }
    }

    /// Ends the subscription after the callback under way, which is acknowledged if it returns `Ok`. Returns when the
    /// close notification has been given.
    pub async fn close(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the close notification of a subscription ended abnormally");
        }
    }
}

async fn run<F, R>(
    mut stream: MessageStream,
    mut callback: F,
    mut stopped: watch::Receiver<bool>,
) -> CloseReason
where
    F: FnMut(Item) -> R,
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
        if let Err(error) = stream.acknowledge().await {
            break CloseReason::Failed(error);
        }
    };
    stream.close().await;
    reason
}
