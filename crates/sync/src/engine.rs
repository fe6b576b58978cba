//! The running client: its drivers, and what they share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_identity::AssociationState;
use highwater_outbox::{IntentId, Outcome};
use highwater_store::Store;
use highwater_transport::Connection;
use highwater_wire::{GroupId, InboxId, SequenceId, Topic};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::interests::{Interests, Registration};
use crate::operation::{SyncRequest, Synced};
use crate::publisher::Publishing;
use crate::resolver::{self, ReferenceWaits};
use crate::{
    CatchUp, CatchUpChanges, ConnectionState, Interest, MAX_DEPENDENCY_REQUESTS, ReceiverKind, Scope,
    SyncError, catch_up, deliver, operation, processor, publisher, receiver,
};

/// What the drivers and operations of one engine share. Cheap to clone.
pub(crate) type Shared = Arc<SharedState>;

pub(crate) struct SharedState {
    pub(crate) store: Store,
    pub(crate) connection: Connection,
    pub(crate) cancel: CancellationToken,
    pub(crate) interests: Arc<Interests>,
    pub(crate) connection_state: watch::Sender<ConnectionState>,
    pub(crate) publishing: watch::Sender<Publishing>,
    pub(crate) kick: Notify,
    pub(crate) dependency_requests: Semaphore,
    pub(crate) reference_waits: ReferenceWaits,
    pub(crate) receiver: ReceiverKind,
    pub(crate) registrations: watch::Sender<BTreeMap<Topic, Registration>>,
    elapsed: Elapsed,
}

/// Time since the engine's start.
type Elapsed = Arc<dyn Fn() -> Duration + Send + Sync>;

impl SharedState {
    /// Time since the engine's start, for the state machines.
    pub(crate) fn now(&self) -> Duration {
        (self.elapsed)()
    }

    pub(crate) fn connection_state(&self, state: ConnectionState) {
        self.connection_state.send_if_modified(|current| {
            let changed = *current != state;
            *current = state;
            changed
        });
    }

    pub(crate) fn set_registrations(&self, registrations: BTreeMap<Topic, Registration>) {
        self.registrations.send_if_modified(|current| {
            let changed = *current != registrations;
            *current = registrations;
            changed
        });
    }

    pub(crate) fn registrations(&self) -> BTreeMap<Topic, Registration> {
        self.registrations.borrow().clone()
    }

    /// Whether a healthy receiver brings a topic's envelopes.
    pub(crate) fn covers(&self, topic: Topic) -> bool {
        matches!(self.registrations.borrow().get(&topic), Some(Registration::Active(_)))
    }
}

/// Settings of an engine.
#[derive(Clone, Default)]
pub struct EngineOptions {
    receiver: ReceiverKind,
    elapsed: Option<Elapsed>,
}

impl EngineOptions {
    /// How envelopes are received as they are published; bidirectional by default.
    #[must_use]
    pub fn receiver(mut self, receiver: ReceiverKind) -> Self {
        self.receiver = receiver;
        self
    }

    /// Has waits and budgets measured by this time since the engine's start, which must never go back, instead of the
    /// machine's: so that a test needn't sit a wait out.
    #[must_use]
    pub fn elapsed(mut self, elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.elapsed = Some(Arc::new(elapsed));
        self
    }
}

impl std::fmt::Debug for EngineOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineOptions")
            .field("receiver", &self.receiver)
            .field("own_time", &self.elapsed.is_some())
            .finish()
    }
}

/// The machine's time since now.
fn elapsed_from_now() -> Elapsed {
    let started = Instant::now();
    Arc::new(move || started.elapsed())
}

/// A running client over one database and one backend connection. Clones share it.
///
/// Call [`Engine::shutdown`] before closing the store; dropping every clone ends the drivers too, but doesn't wait for
/// them.
#[derive(Clone)]
pub struct Engine {
    shared: Shared,
    tasks: TaskTracker,
    _ended: Arc<EndOnDrop>,
}

struct EndOnDrop(CancellationToken);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Engine {
    /// Starts the drivers on the current runtime. Nothing is sent unless something is owed or somebody is interested.
    pub fn start(store: Store, connection: Connection, options: EngineOptions) -> Self {
        let cancel = CancellationToken::new();
        let shared = Arc::new(SharedState {
            store,
            connection,
            cancel: cancel.clone(),
            interests: Interests::new(),
            connection_state: watch::Sender::new(ConnectionState::Closed),
            publishing: watch::Sender::new(Publishing::default()),
            kick: Notify::new(),
            dependency_requests: Semaphore::new(MAX_DEPENDENCY_REQUESTS),
            reference_waits: ReferenceWaits::default(),
            receiver: options.receiver,
            registrations: watch::Sender::default(),
            elapsed: options.elapsed.unwrap_or_else(elapsed_from_now),
        });
        let tasks = TaskTracker::new();
        tasks.spawn(receiver::run(Arc::clone(&shared)));
        tasks.spawn(processor::run(Arc::clone(&shared)));
        tasks.spawn(publisher::run(Arc::clone(&shared)));
        tasks.close();
        Self { shared, tasks, _ended: Arc::new(EndOnDrop(cancel)) }
    }

    /// Ends every driver and waits for it. Operations under way return [`SyncError::Closed`]. Calling it again is fine.
    pub async fn shutdown(&self) {
        self.shared.cancel.cancel();
        self.tasks.wait().await;
    }

    /// Registers a scope's topics for as long as the guard lives.
    pub fn interest(&self, scope: Scope) -> Interest {
        self.shared.interests.add(scope, self.shared.now())
    }

    /// The connection's state, now and after each change.
    pub fn connection_state(&self) -> watch::Receiver<ConnectionState> {
        self.shared.connection_state.subscribe()
    }

    /// A snapshot of a scope's progress.
    pub async fn catch_up(&self, scope: &Scope) -> Result<CatchUp, SyncError> {
        catch_up::catch_up(&self.shared, scope).await
    }

    /// The scope's progress, now and after each change.
    pub fn catch_up_changes(&self, scope: Scope) -> CatchUpChanges {
        CatchUpChanges::new(Arc::clone(&self.shared), scope)
    }

    /// Tells the publisher that something is owed.
    pub fn kick(&self) {
        self.shared.kick.notify_one();
    }

    /// Waits until this installation's registration and key package are published.
    ///
    /// # Errors
    /// The first failure of a publishing round that started after the call. What is owed stays owed, and is tried again
    /// whenever an engine runs.
    pub async fn register(&self) -> Result<(), SyncError> {
        let mut publishing = self.shared.publishing.subscribe();
        let asked = publishing.borrow().started + 1;
        self.kick();
        let ended = tokio::select! {
            _ = self.shared.cancel.cancelled() => return Err(SyncError::Closed),
            ended = publishing.wait_for(|now| {
                now.ended.as_ref().is_some_and(|(round, _)| *round >= asked)
            }) => ended.map_err(|_| SyncError::Closed)?.ended.clone(),
        };
        match ended {
            Some((_, Some(failure))) => {
                Err(SyncError::NotPublished { reason: failure.reason, retryable: failure.retryable })
            }
            _ => Ok(()),
        }
    }

    /// The newest verified identity state of an inbox, from a complete query of its topic.
    pub async fn inbox_head(
        &self,
        inbox: InboxId,
    ) -> Result<Option<(SequenceId, AssociationState)>, SyncError> {
        tokio::select! {
            _ = self.shared.cancel.cancelled() => Err(SyncError::Closed),
            head = resolver::inbox_head(&self.shared, inbox) => head,
        }
    }

    /// Has an intent published, and waits for what becomes of it.
    ///
    /// Returns at once with [`Outcome::Queued`] when publishing fails for want of a connection, and with whatever is
    /// known after `within`. Dropping the future changes nothing about the intent.
    pub async fn deliver(
        &self,
        group: GroupId,
        intent: IntentId,
        within: Duration,
    ) -> Result<Outcome, SyncError> {
        deliver::deliver(&self.shared, group, intent, within).await
    }

    /// Processes everything up to the backend's heads of this moment: every group, and those that Welcomes up to now
    /// invite to.
    ///
    /// # Errors
    /// [`SyncError::Incomplete`] and [`SyncError::Blocked`] name every unfinished obligation. Dropping the future leaves
    /// committed work as it is.
    pub async fn sync(&self, request: SyncRequest) -> Result<Synced, SyncError> {
        operation::sync(&self.shared, request).await
    }
}
