//! A stream's progress as it changes (STR-025).

use highwater_sync::{CatchUp, ConnectionState, ProcessingState, RegistrationState};
use tokio::sync::watch;

use crate::Error;

/// Snapshots of a stream's [`catch_up`](crate::MessageStream::catch_up), each when something of it has changed. Lives
/// beside the stream, and ends after it with one last snapshot.
#[derive(Debug)]
pub struct CatchUpChanges {
    changes: highwater_sync::CatchUpChanges,
    ended: watch::Receiver<bool>,
    last: Option<CatchUp>,
    over: bool,
}

impl CatchUpChanges {
    pub(crate) fn new(changes: highwater_sync::CatchUpChanges, ended: watch::Receiver<bool>) -> Self {
        Self { changes, ended, last: None, over: false }
    }

    /// The state now, the first time; then waits until it is another, and gives the latest. When the stream has ended the
    /// last one says so: closed, every topic removed, and cancelled what was not complete. `None` after it. Cancel-safe.
    ///
    /// # Errors
    /// Once: when the database fails, or the client is closed.
    pub async fn next(&mut self) -> Option<Result<CatchUp, Error>> {
        if self.over {
            return None;
        }
        let changed = tokio::select! {
            biased;
            // An absent sender is an ended stream too.
            _ = self.ended.wait_for(|ended| *ended) => None,
            changed = self.changes.next() => Some(changed),
        };
        match changed {
            Some(Ok(now)) => Some(Ok(self.last.insert(now).clone())),
            Some(Err(error)) => {
                self.over = true;
                Some(Err(error.into()))
            }
            None => {
                self.over = true;
                self.last.take().map(|last| Ok(closed(last)))
            }
        }
    }
}

/// What was last known of a scope, once nobody works for it any more.
fn closed(mut last: CatchUp) -> CatchUp {
    last.connection = ConnectionState::Closed;
    for topic in &mut last.topics {
        topic.registration = RegistrationState::Removed;
        if topic.processing != ProcessingState::Complete {
            topic.processing = ProcessingState::Cancelled;
        }
    }
    last
}
