use std::any::Any;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::connect::Connector;
use crate::gate::CancelOnDrop;
use crate::keep::{Keeper, Kept};
use crate::open::{self, OpenOptions, Opened};
use crate::poll::{Poller, wake};
use crate::read::{ReadTx, Readers};
use crate::version::{Version, Versions};
use crate::write::{WriteTx, Writer};
use crate::{Clock, CommitGate, DatabaseId, GateOutcome, OpenError, StoreError};

/// An open database. Clones are the same store, which ends with [`Store::close`] or its last clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    id: DatabaseId,
    clock: Arc<dyn Clock>,
    connector: Arc<Connector>,
    writer: Writer,
    readers: Readers,
    versions: Versions,
    /// Every transaction under way, and every abandoned connection that is being closed.
    tracker: TaskTracker,
    closed: AtomicBool,
    /// Gone once closed, which ends every wait on it.
    wakes: Mutex<Option<Arc<watch::Sender<u64>>>>,
    keeper: Arc<Keeper>,
    poller: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    poller_end: CancellationToken,
    _ends_poller: DropGuard,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.id).field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database, or creates it. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong; the file is as it was. Only when a database that nobody had open was left with
    /// a WAL but without its shared memory file can there be a new `-shm` file, which holds no content.
    ///
    /// # Cancellation
    /// Dropping the future leaves a database that opens, or none.
    pub async fn open(options: OpenOptions) -> Result<Self, OpenError> {
        let OpenOptions { path, key, migrations, clock, create, busy_timeout, vfs } = options;
        let connector = Connector { path, key, busy_timeout, vfs };
        let Opened { connector, writer, id } = open::open(connector, migrations, create).await?;
        let connector = Arc::new(connector);
        let poller = Poller::new(Arc::clone(&connector)).await?;
        let wakes = Arc::new(watch::Sender::new(0));
        let poller_end = CancellationToken::new();
        let poller = tokio::spawn(poller.run(Arc::clone(&wakes), poller_end.clone()));
        let tracker = TaskTracker::new();
        let inner = Inner {
            id,
            clock,
            writer: Writer::new(Arc::clone(&connector), writer),
            readers: Readers::new(Arc::clone(&connector), tracker.clone()),
            versions: Versions::new(Arc::clone(&connector)),
            connector,
            tracker,
            closed: AtomicBool::new(false),
            wakes: Mutex::new(Some(wakes)),
            keeper: Keeper::new(),
            poller: tokio::sync::Mutex::new(Some(poller)),
            _ends_poller: poller_end.clone().drop_guard(),
            poller_end,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Which database this is. Never changes.
    pub fn database_id(&self) -> DatabaseId {
        self.inner.id
    }

    /// The file, as it was named when the store was opened.
    pub fn path(&self) -> &Path {
        &self.inner.connector.path
    }

    /// The store's clock: nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.inner.clock.now_ns()
    }

    /// Runs `f` in the write transaction: the lock that all processes share is held before `f` starts, so everything it
    /// reads is current and stays so (STR-070). `Ok` commits and wakes; an error or a panic rolls back. `name` is for
    /// logs. `f` must not wait for the network (STR-071), nor for another transaction of this store.
    ///
    /// # Errors
    /// What `f` returns; [`StoreError::Busy`] when other processes held the lock for the whole wait;
    /// [`StoreError::Panicked`]; [`StoreError::CommitUnknown`]; [`StoreError::Closed`].
    ///
    /// # Cancellation
    /// Dropping the future, once it was polled, doesn't stop the transaction: it ends as if it had been waited for.
    pub async fn write<T, E, F>(&self, name: &'static str, f: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        match self.submit(name, None, f).await? {
            GateOutcome::Committed(value) => Ok(value),
            GateOutcome::Cancelled => unreachable!("only a gate cancels"),
        }
    }

    /// As [`Self::write`], but commits only if `gate` admits it, which is decided as the last thing before COMMIT
    /// (PROC-052). Cancelling the gate before that rolls back.
    ///
    /// # Errors
    /// As [`Self::write`].
    ///
    /// # Cancellation
    /// Dropping the future cancels the gate: unless it had already admitted the commit, nothing becomes durable.
    pub async fn write_gated<T, E, F>(
        &self,
        name: &'static str,
        gate: CommitGate,
        f: F,
    ) -> Result<GateOutcome<T>, E>
    where
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let _cancel = CancelOnDrop(gate.clone());
        self.submit(name, Some(gate), f).await
    }

    async fn submit<T, E, F>(
        &self,
        name: &'static str,
        gate: Option<CommitGate>,
        f: F,
    ) -> Result<GateOutcome<T>, E>
    where
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let task = self.track(name, async move {
            let outcome = inner.writer.write(name, Arc::clone(&inner.clock), gate, f).await;
            if matches!(outcome, Ok(GateOutcome::Committed(_))) {
                inner.wake();
            }
            outcome
        })?;
        task.await.unwrap_or_else(|error| Err(ended(name, error).into()))
    }

    /// Runs `f` on one snapshot of the database, beside any writer. It can't write. `name` is for logs.
    ///
    /// # Errors
    /// What `f` returns; [`StoreError::Panicked`]; [`StoreError::Closed`].
    ///
    /// # Cancellation
    /// Dropping the future ends the read and its snapshot.
    pub async fn read<T, E, F>(&self, name: &'static str, f: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut ReadTx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        // In a task of its own, so that `close` never waits for a future that nobody polls.
        let task =
            self.track(name, async move { inner.readers.read(name, Arc::clone(&inner.clock), f).await })?;
        let _abort = AbortOnDrop(task.abort_handle());
        task.await.unwrap_or_else(|error| Err(ended(name, error).into()))
    }

    /// The state that the database is in. Cheaper than a read: whoever kept something from an earlier read may go on using
    /// it while this stays the same.
    ///
    /// # Errors
    /// When the database fails or is closed.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    pub async fn version(&self) -> Result<Version, StoreError> {
        let inner = Arc::clone(&self.inner);
        let task = self.track("version", async move { inner.versions.now().await })?;
        task.await.unwrap_or_else(|error| Err(ended("version", error)))
    }

    /// Starts a task that [`Self::close`] waits for.
    fn track<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<T>, StoreError> {
        // Counted before the question, so that a `close` either sees this task or is seen by it.
        let counted = self.inner.tracker.token();
        if self.inner.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        let span = tracing::debug_span!("transaction", name);
        let work = async move {
            let _counted = counted;
            work.await
        };
        Ok(tokio::spawn(work.instrument(span)))
    }

    /// Changes after every commit, of this process at once and of others within
    /// [`ACTIVE_DATABASE_POLL_INTERVAL`](crate::ACTIVE_DATABASE_POLL_INTERVAL). A hint: one may come late, twice, or for
    /// several commits, and whoever wakes looks at the database again (STR-078). Ends when the store is closed.
    pub fn wakes(&self) -> watch::Receiver<u64> {
        match &*self.inner.wakes() {
            Some(wakes) => wakes.subscribe(),
            None => watch::channel(0).1,
        }
    }

    /// Keeps something that belongs to the open database, until the holder of what this returns lets go of it or the
    /// store is closed: it is gone when [`Self::close`] returns, whoever still holds on. Kept on a closed store, it is
    /// dropped at once.
    pub fn keep(&self, resource: impl Any + Send) -> Kept {
        self.inner.keeper.keep(resource)
    }

    /// Ends the store: waits for every transaction under way, drops what is [kept](Self::keep), stops polling, checks
    /// the WAL in, and closes every connection. No lock is held afterwards, and the file can be moved. Later calls fail
    /// with [`StoreError::Closed`]; a second `close` waits for the first.
    ///
    /// # Cancellation
    /// Dropping the future, once it was polled, doesn't stop the closing.
    pub async fn close(&self) {
        let inner = Arc::clone(&self.inner);
        let closing = tokio::spawn(async move { inner.close().await });
        if let Err(error) = closing.await {
            tracing::error!(%error, "the database was not closed in order");
        }
    }
}

impl Inner {
    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.tracker.close();
        self.tracker.wait().await;
        self.keeper.close();
        // Held to the end, so that a second close returns when all is done.
        let mut poller = self.poller.lock().await;
        self.poller_end.cancel();
        if let Some(poller) = poller.take()
            && let Err(error) = poller.await
        {
            tracing::error!(%error, "the database's poller failed");
        }
        self.wakes().take();
        self.readers.close().await;
        self.versions.close().await;
        self.writer.close().await;
    }

    fn wake(&self) {
        if let Some(wakes) = &*self.wakes() {
            wake(wakes);
        }
    }

    fn wakes(&self) -> std::sync::MutexGuard<'_, Option<Arc<watch::Sender<u64>>>> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A transaction's task that ended without an outcome of its own.
fn ended(name: &'static str, error: JoinError) -> StoreError {
    match error.try_into_panic() {
        Ok(panic) => panicked(name, &*panic),
        // Only the end of the runtime stops a task whose caller still waits.
        Err(_) => StoreError::Closed,
    }
}

pub(crate) fn panicked(name: &'static str, panic: &(dyn Any + Send)) -> StoreError {
    let message = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    StoreError::Panicked { name, message }
}
