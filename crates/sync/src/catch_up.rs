//! What an app can see of a scope's progress (STR-025).

use std::collections::BTreeMap;

use highwater_delivery::ConversationState;
use highwater_processing::ProcessedPosition;
use highwater_receipt::ReceivedPosition;
use highwater_wire::{Cursor, Topic, TopicKind};
use tokio::sync::watch;

use crate::engine::Shared;
use crate::interests::{Registration, desired};
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
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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
                let active = highwater_delivery::conversations(tx)
                    .await?
                    .into_iter()
                    .filter(|found| found.state == ConversationState::Active)
                    .map(|found| found.group)
                    .collect();
                let welcome = highwater_mls::installation(tx).await?.map(|found| Topic::welcome(found.key));
                let mut topics = BTreeMap::new();
                for topic in desired(&scopes, &active, welcome) {
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
