//! The receiver driver: one session at a time, of either kind, reopened with backoff while anybody is interested.

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_transport::TransportError;
use highwater_wire::{Cursor, Topic};

use crate::engine::Shared;
use crate::{Backoff, ConnectionState, SyncError, bidirectional, static_receiver};

/// How often interests, paused topics and budgets are looked at again. Activated groups must be selected within 250 ms.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(100);

/// How envelopes are received as they are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverKind {
    /// Over one stream in both directions, on which topics are added and removed.
    #[default]
    Bidirectional,
    /// Over streams from the backend alone, each with the topics it was opened with, for networks and proxies that
    /// don't let a stream in both directions pass. When the topics change, a stream is replaced.
    Static,
}

pub(crate) async fn run(shared: Shared) {
    let mut backoff = Backoff::new();
    let mut interested = shared.interests.watch();
    let mut first = true;
    while !shared.cancel.is_cancelled() {
        if shared.interests.scopes().is_empty() {
            tokio::select! {
                _ = shared.cancel.cancelled() => break,
                _ = interested.changed() => continue,
            }
        }
        if let Err(refusal) = shared.connection.not_refused() {
            refused(&shared, &refusal);
            tokio::select! {
                _ = shared.cancel.cancelled() => break,
                _ = interested.changed() => continue,
            }
        }
        shared.connection_state(if first {
            ConnectionState::Connecting
        } else {
            ConnectionState::Reconnecting
        });
        first = false;
        let ended = match shared.receiver {
            ReceiverKind::Bidirectional => bidirectional::session(&shared, &mut backoff).await,
            ReceiverKind::Static => static_receiver::session(&shared, &mut backoff).await,
        };
        shared.set_registrations(BTreeMap::new());
        match ended {
            Ended::Unneeded => {
                first = true;
                shared.connection_state(ConnectionState::Closed);
            }
            Ended::Failed { error: Some(SyncError::Transport(refusal @ TransportError::Refused { .. })) } => {
                shared.reference_waits.disconnected();
                refused(&shared, &refusal);
            }
            Ended::Failed { error } => {
                shared.reference_waits.disconnected();
                let now = shared.now();
                shared.interests.failed(now);
                shared.interests.observe(now, false);
                let wait = backoff.failed(error.as_ref().and_then(SyncError::retry_after), rand::random());
                tracing::info!(
                    wait_ms = wait.as_millis() as u64,
                    error = error.as_ref().map(tracing::field::display),
                    "receiver ended"
                );
                let refused = error.as_ref().is_some_and(|error| !error.is_retryable());
                shared.connection_state(if refused {
                    ConnectionState::Failed
                } else {
                    ConnectionState::Reconnecting
                });
                wait_observing(&shared, wait).await;
            }
        }
    }
    shared.connection_state(ConnectionState::Closed);
}

/// Trying again is of no use, so that whoever is interested is told (PROC-043).
fn refused(shared: &Shared, refusal: &TransportError) {
    tracing::warn!(error = %refusal, "nothing more is received");
    shared.connection_state(ConnectionState::Closed);
    shared.interests.refused(refusal);
}

/// Waits, while budgets go on being spent.
async fn wait_observing(shared: &Shared, wait: Duration) {
    let deadline = tokio::time::Instant::now() + wait;
    while tokio::time::Instant::now() < deadline && !shared.interests.scopes().is_empty() {
        let step = deadline.min(tokio::time::Instant::now() + Duration::from_secs(1));
        tokio::select! {
            _ = shared.cancel.cancelled() => return,
            _ = tokio::time::sleep_until(step) => shared.interests.observe(shared.now(), false),
        }
    }
}

/// Why a session is over.
pub(crate) enum Ended {
    /// Nobody is interested any more, or the engine ends.
    Unneeded,
    Failed {
        /// Absent when the session was merely silent or closed.
        error: Option<SyncError>,
    },
}

impl<E: Into<SyncError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed { error: Some(error.into()) }
    }
}

/// Each topic with its durable F.
pub(crate) async fn from_received(
    shared: &Shared,
    topics: Vec<Topic>,
) -> Result<Vec<(Topic, Cursor)>, SyncError> {
    shared
        .store
        .read("received", move |tx| {
            Box::pin(async move {
                let received = highwater_receipt::received_many(tx, &topics).await?;
                let from = |topic: Topic| (topic, received.get(&topic).map_or(Cursor::ZERO, |f| f.cursor()));
                Ok(topics.into_iter().map(from).collect())
            })
        })
        .await
}

/// Whether a topic that was paused may receive again.
pub(crate) async fn has_room(shared: &Shared, topic: Topic) -> Result<bool, SyncError> {
    shared
        .store
        .read("room", move |tx| Box::pin(async move { Ok(highwater_receipt::may_receive(tx, topic).await?) }))
        .await
}

/// When interests, paused topics and budgets are looked at.
pub(crate) fn ticks() -> tokio::time::Interval {
    let mut tick = tokio::time::interval(RECONCILE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tick
}

/// How long a session has had every registration it should have.
#[derive(Debug, Default)]
pub(crate) struct Health {
    active_since: Option<Duration>,
}

impl Health {
    /// Recovery counts as sustained only after all registrations stayed active for long enough (PROC-038).
    pub(crate) fn observe(&mut self, shared: &Shared, all_active: bool, backoff: &mut Backoff) {
        let now = shared.now();
        shared.interests.observe(now, all_active);
        self.active_since = if all_active { self.active_since.or(Some(now)) } else { None };
        if self.active_since.is_some_and(|since| now - since >= crate::SUSTAINED_RECOVERY) {
            backoff.sustained();
        }
    }
}
