//! What an app can see of a scope's progress (STR-025).

use std::collections::BTreeMap;

use highwater_processing::ProcessedPosition;
use highwater_receipt::ReceivedPosition;
use highwater_store::ACTIVE_DATABASE_POLL_INTERVAL;
use highwater_wire::{Cursor, Topic, TopicKind};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::desired::topics_of;
use crate::engine::Shared;
use crate::interests::Registration;
use crate::obligation::{Progress, is_complete};
use crate::operation::progress;
use crate::{Scope, SyncError};

/// What the transport is doing. It says nothing about processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Opening for the first time.
    Connecting,
    /// A receiver is open.
    Connected,
    /// Recovering after a retryable failure.
    Reconnecting,
    /// Recovering, with delayed tries, after the backend answered with an error that isn't retryable.
    Failed,
    /// Nobody is interested, or the client is closed: no automatic attempts.
    Closed,
}

/// Where a topic's registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationState {
    /// Wanted, not acknowledged by the backend.
    Pending,
    /// Acknowledged.
    Active,
    /// Not wanted (any more).
    Removed,
}

/// Where a topic's processing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessingState {
    /// Not through its target yet, or the target isn't known.
    Pending,
    /// Through its target.
    Complete,
    /// Its head is held.
    Blocked,
    /// Given up with its scope.
    Cancelled,
}

/// One selected topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicStatus {
    /// The topic.
    pub topic: Topic,
    /// Its registration.
    pub registration: RegistrationState,
    /// H, once acknowledged.
    pub target: Option<Cursor>,
    /// F.
    pub received: ReceivedPosition,
    /// P, for a group.
    pub processed: Option<ProcessedPosition>,
    /// Its processing.
    pub processing: ProcessingState,
}

/// A snapshot of a scope's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// Grows with every change of what the engine's interests are.
    pub generation: u64,
    /// The connection.
    pub connection: ConnectionState,
    /// The selected topics.
    pub topics: Vec<TopicStatus>,
}

impl CatchUp {
    /// Whether everything selected is registered and processed through its target.
    pub fn is_caught_up(&self) -> bool {
        self.topics.iter().all(|topic| {
            topic.registration == RegistrationState::Active && topic.processing == ProcessingState::Complete
        })
    }
}

/// Snapshots of a scope's progress, each of another state than the one before.
pub struct CatchUpChanges {
    shared: Shared,
    scope: Scope,
    last: Option<CatchUp>,
    /// When the next snapshot may be taken.
    next_look: Instant,
    commits: watch::Receiver<u64>,
    interests: watch::Receiver<u64>,
    connection: watch::Receiver<ConnectionState>,
    registrations: watch::Receiver<BTreeMap<Topic, Registration>>,
}

impl CatchUpChanges {
    pub(crate) fn new(shared: Shared, scope: Scope) -> Self {
        Self {
            commits: shared.store.wakes(),
            interests: shared.interests.watch(),
            connection: shared.connection_state.subscribe(),
            registrations: shared.registrations.subscribe(),
            shared,
            scope,
            last: None,
            next_look: Instant::now(),
        }
    }

    /// The state now, the first time; then waits until it is another. At most one state in each
    /// [`ACTIVE_DATABASE_POLL_INTERVAL`]: what came and went in between is not seen, and no older state follows a newer one.
    /// Cancel-safe.
    ///
    /// # Errors
    /// When the database fails, or the engine ends.
    pub async fn next(&mut self) -> Result<CatchUp, SyncError> {
        loop {
            // A snapshot costs by the number of topics, and under load every few milliseconds have a commit.
            tokio::time::sleep_until(self.next_look).await;
            // Marked seen before looking, so that a change in between is looked at again.
            self.commits.mark_unchanged();
            self.interests.mark_unchanged();
            self.connection.mark_unchanged();
            self.registrations.mark_unchanged();
            let now = catch_up(&self.shared, &self.scope).await?;
            self.next_look = Instant::now() + ACTIVE_DATABASE_POLL_INTERVAL;
            if self.last.as_ref() != Some(&now) {
                self.last = Some(now.clone());
                return Ok(now);
            }
            tokio::select! {
                _ = self.shared.cancel.cancelled() => return Err(SyncError::Closed),
                changed = self.commits.changed() => changed.map_err(|_| SyncError::Closed)?,
                _ = self.interests.changed() => {}
                _ = self.connection.changed() => {}
                _ = self.registrations.changed() => {}
            }
        }
    }
}

impl std::fmt::Debug for CatchUpChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatchUpChanges").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Resolves when a receiver gets through: then a publish will too.
pub(crate) async fn connected(state: &mut watch::Receiver<ConnectionState>) {
    while state.changed().await.is_ok() {
        if *state.borrow_and_update() == ConnectionState::Connected {
            return;
        }
    }
    // The engine is about to end.
    std::future::pending::<()>().await;
}

/// The snapshot for one scope.
pub(crate) async fn catch_up(shared: &Shared, scope: &Scope) -> Result<CatchUp, SyncError> {
    let generation = *shared.interests.watch().borrow();
    let registrations = shared.registrations();
    let scopes = [scope.clone()];
    let (topics, held) = shared
        .store
        .read("catch-up", move |tx| {
            Box::pin(async move {
                let mut topics = BTreeMap::new();
                for topic in topics_of(tx, &scopes).await? {
                    topics.insert(topic, progress(tx, topic, Cursor::MAX).await?);
                }
                let held: Vec<_> =
                    highwater_processing::held(tx).await?.into_iter().map(|head| head.topic).collect();
                Ok::<_, SyncError>((topics, held))
            })
        })
        .await?;
    let topics = topics
        .into_iter()
        .map(|(topic, progress)| {
            status(topic, registrations.get(&topic).copied(), &progress, held.contains(&topic))
        })
        .collect();
    Ok(CatchUp { generation, connection: *shared.connection_state.borrow(), topics })
}

fn status(topic: Topic, registration: Option<Registration>, progress: &Progress, held: bool) -> TopicStatus {
    let target = match registration {
        Some(Registration::Active(target)) => Some(target),
        _ => None,
    };
    let mut within = progress.clone();
    if let (TopicKind::Welcome, Some(target)) = (topic.kind(), target) {
        within.unresolved.retain(|id| target.covers(*id));
    }
    let processing = match target {
        Some(target) if is_complete(topic, target, &within) => ProcessingState::Complete,
        _ if held => ProcessingState::Blocked,
        _ => ProcessingState::Pending,
    };
    TopicStatus {
        topic,
        registration: match registration {
            Some(Registration::Active(_)) => RegistrationState::Active,
            _ => RegistrationState::Pending,
        },
        target,
        received: progress.received,
        processed: progress.processed,
        processing,
    }
}
