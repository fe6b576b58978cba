//! How streams end: once, with a reason (PROC-040, PROC-041).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use highwater_delivery::ConsumerError;
use tokio::sync::watch;

use crate::Error;

/// A callback's failure, in its own words.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Why a stream or a subscription ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The app ended it, or it reached the end of what it was opened for.
    Closed,
    /// The callback returned an error; its item comes again.
    Callback(CallbackError),
    /// The callback panicked; its item comes again.
    Panicked,
    /// The stream failed.
    Failed(Error),
}

impl CloseReason {
    /// Whether opening it again can go on where this one ended, with nothing changed (PROC-043).
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_retryable())
    }
}

/// What an app does when it is told something.
type Hook<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// What an app wants to be told about the end of a stream.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) error: Option<Hook<Error>>,
    pub(crate) close: Option<Hook<CloseReason>>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("error", &self.error.is_some())
            .field("close", &self.close.is_some())
            .finish()
    }
}

/// The end of one stream, which comes once. Dropped before, it is the app's own.
#[derive(Debug)]
pub(crate) struct Ending {
    hooks: Hooks,
    ended: watch::Sender<bool>,
}

impl Ending {
    pub(crate) fn new(hooks: Hooks) -> Self {
        Self { hooks, ended: watch::Sender::new(false) }
    }

    pub(crate) fn has_come(&self) -> bool {
        *self.ended.borrow()
    }

    /// Becomes true with the end.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Tells whoever is to be told, the first time.
    pub(crate) fn come(&mut self, reason: &CloseReason) {
        if self.ended.send_replace(true) {
            return;
        }
        if let (CloseReason::Failed(error), Some(hook)) = (reason, &self.hooks.error) {
            guard(|| hook(error));
        }
        if let Some(hook) = &self.hooks.close {
            guard(|| hook(reason));
        }
    }

    /// Ends by an error, which is told and given back for the pending read.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        let reason = CloseReason::Failed(cause(error));
        self.come(&reason);
        match reason {
            CloseReason::Failed(error) => error,
            _ => Error::Closed,
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.come(&CloseReason::Closed);
    }
}

/// App code that panics must not keep the stream from letting go of what it holds.
pub(crate) fn guard(app: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(app)).is_err() {
        tracing::error!("an app's callback panicked at the end of its stream");
    }
}

/// What a stream that ended with this error says: the database's failures are all worth opening it again for (PROC-043),
/// unlike the same failures of a call.
fn cause(error: Error) -> Error {
    match error {
        Error::Store(_) | Error::Delivery(_) | Error::Consumer(ConsumerError::Delivery(_)) => {
            Error::StreamStorage(Box::new(error))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use highwater_delivery::DeliveryError;
    use highwater_store::StoreError;

    use super::*;

    fn noting() -> (Hooks, Arc<Mutex<Vec<String>>>) {
        let told = Arc::<Mutex<Vec<String>>>::default();
        let (errors, closes) = (Arc::clone(&told), Arc::clone(&told));
        let hooks = Hooks {
            error: Some(Arc::new(move |error| errors.lock().unwrap().push(format!("error: {error}")))),
            close: Some(Arc::new(move |reason| closes.lock().unwrap().push(format!("close: {reason:?}")))),
        };
        (hooks, told)
    }

    /// Shows: PROC-041, PROC-042.
    #[test]
    fn it_is_told_once_and_a_drop_is_no_error() {
        let (hooks, told) = noting();
        drop(Ending::new(hooks.clone()));
        assert_eq!(*told.lock().unwrap(), ["close: Closed"]);
        told.lock().unwrap().clear();
        let mut ending = Ending::new(hooks);
        let error = ending.fail(Error::RecoveryExhausted);
        assert!(matches!(error, Error::RecoveryExhausted) && ending.has_come());
        ending.come(&CloseReason::Closed);
        drop(ending);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("error: ") && told[1] == "close: Failed(RecoveryExhausted)");
    }

    /// Shows: PROC-043.
    #[test]
    fn storage_is_worth_another_try_and_ownership_and_cursors_are_not() {
        let retryable = |error| CloseReason::Failed(cause(error)).is_retryable();
        assert!(retryable(Error::Store(StoreError::DiskFull)));
        assert!(retryable(Error::Delivery(DeliveryError::Store(StoreError::ReadOnly))));
        assert!(retryable(Error::Consumer(ConsumerError::Delivery(StoreError::DiskFull.into()))));
        assert!(retryable(Error::Delivery(DeliveryError::Damaged("a row"))));
        assert!(retryable(Error::RecoveryExhausted));
        assert!(!retryable(Error::Consumer(ConsumerError::OwnershipLost)));
        assert!(!retryable(Error::Cursor(highwater_delivery::CursorError::Malformed)));
        assert!(!retryable(StoreError::Closed.into()));
        assert!(!CloseReason::Closed.is_retryable() && !CloseReason::Panicked.is_retryable());
    }

    #[test]
    fn a_hook_that_panics_stops_nothing() {
        let hooks = Hooks {
            error: Some(Arc::new(|_| panic!("a hook of a test panics"))),
            close: Some(Arc::new(|_| panic!("a hook of a test panics"))),
        };
        Ending::new(hooks).fail(Error::Closed);
    }
}
