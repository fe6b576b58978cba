use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::{Connection as _, Executor as _};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::open::open_writer;
use crate::readers::Readers;
use crate::writer::Writer;
use crate::{
    Clock, CommitGate, DatabaseId, GateOutcome, OpenError, OpenOptions, ReadTx, StoreError, WriteTx,
    poll,
};

/// An open database. Clones share it.
///
/// ```no_run
/// # use highwater_store::{DatabaseKey, OpenOptions, Store, StoreError};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::open(OpenOptions::new("client.db", DatabaseKey::generate(), vec![])).await?;
/// store
///     .write("note", |tx| {
///         Box::pin(async move {
///             sqlx::query("PRAGMA user_version = 7").execute(tx.conn()).await?;
///             Ok::<_, StoreError>(())
///         })
///     })
///     .await?;
/// store.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    path: PathBuf,
    id: DatabaseId,
    clock: Arc<dyn Clock>,
    writer: Arc<Mutex<Writer>>,
    readers: Readers,
    wakes: watch::Sender<u64>,
    tasks: TaskTracker,
    /// Cancelled by `close`, or when the last clone is dropped; ends the poller.
    closed: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Store {
    /// Opens a database, or makes it.
    ///
    /// # Errors
    /// [`OpenError`] tells the causes apart. The files are as they were then.
    pub async fn open(options: OpenOptions) -> Result<Self, OpenError> {
        let (connector, conn, id) = open_writer(&options).await?;
        let wakes = watch::Sender::new(0);
        let closed = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(poll::run(connector.clone(), wakes.clone(), closed.clone()));
        Ok(Self(Arc::new(Inner {
            path: options.path,
            id,
            clock: options.clock,
            writer: Arc::new(Mutex::new(Writer::new(connector.clone(), options.busy_timeout, conn))),
            readers: Readers::new(connector),
            wakes,
            tasks,
            closed,
        })))
    }

    /// The identity of this database.
    pub fn database_id(&self) -> DatabaseId {
        self.0.id
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The store's clock, in nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.0.clock.now_ns()
    }

    /// Changes whenever something was, or may have been, committed by this process or another. A hint: look at the
    /// database again.
    pub fn wakes(&self) -> watch::Receiver<u64> {
        self.0.wakes.subscribe()
    }

    /// Runs one write transaction: `Ok` commits, `Err` and a panic roll back.
    ///
    /// Dropping the future doesn't stop the transaction: it goes on to its end in a task of its own, and
    /// [`Store::close`] waits for it.
    ///
    /// # Errors
    /// The closure's own, and [`StoreError`] converted.
    pub async fn write<T, E, F>(&self, name: &'static str, f: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        match self.spawn_write(name, None, f).await? {
            GateOutcome::Committed(value) => Ok(value),
            GateOutcome::Cancelled => Err(E::from(StoreError::Closed)),
        }
    }

    /// The same, but the commit happens only if `gate` wasn't cancelled first (PROC-052).
    ///
    /// # Errors
    /// The closure's own, and [`StoreError`] converted.
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
        self.spawn_write(name, Some(gate), f).await
    }

    async fn spawn_write<T, E, F>(
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
        if self.0.closed.is_cancelled() {
            return Err(E::from(StoreError::Closed));
        }
        let writer = Arc::clone(&self.0.writer);
        let (clock, wakes) = (Arc::clone(&self.0.clock), self.0.wakes.clone());
        let closed = self.0.closed.clone();
        let task = self.0.tasks.spawn(async move {
            let mut writer = writer.lock().await;
            if closed.is_cancelled() {
                return Err(E::from(StoreError::Closed));
            }
            let result = writer.run(name, || clock.now_ns(), gate.as_ref(), f).await;
            drop(writer);
            if let Ok(GateOutcome::Committed(_)) = result {
                wakes.send_modify(|count| *count += 1);
            }
            result
        });
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(E::from(StoreError::Panicked)),
            // Only a runtime that is shutting down cancels it.
            Err(_) => Err(E::from(StoreError::Closed)),
        }
    }

    /// Runs one read transaction: a single snapshot, ended when the closure's future is.
    ///
    /// # Errors
    /// The closure's own, and [`StoreError`] converted.
    pub async fn read<T, E, F>(&self, _name: &'static str, f: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut ReadTx) -> BoxFuture<'t, Result<T, E>> + Send,
        E: From<StoreError>,
    {
        if self.0.closed.is_cancelled() {
            return Err(E::from(StoreError::Closed));
        }
        self.0.readers.run(|| self.0.clock.now_ns(), f).await
    }

    /// Waits for the writes under way, ends everything, checkpoints and closes the file. Afterwards no lock is held and
    /// every call returns [`StoreError::Closed`]. Closing twice is fine.
    pub async fn close(&self) {
        self.0.closed.cancel();
        // Whoever waits looks again, and finds the store closed.
        self.0.wakes.send_modify(|count| *count += 1);
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.readers.close().await;
        let conn = self.0.writer.lock().await.take();
        let Some(mut conn) = conn else { return };
        if let Err(error) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").await {
            tracing::debug!(%error, "the log could not be checkpointed");
        }
        if let Err(error) = conn.close().await {
            tracing::debug!(%error, "the writer did not close cleanly");
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.0.id).finish_non_exhaustive()
    }
}
