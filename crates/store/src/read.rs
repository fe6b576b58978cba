use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::connect::{Conn, Connector, Role};
use crate::store::panicked;
use crate::{Clock, Reads, StoreError, inspect};

/// How many snapshots can be read at once. More wait for their turn.
const READERS: usize = 4;

/// A read transaction: one snapshot of the whole database.
pub struct ReadTx {
    conn: Conn,
    clock: Arc<dyn Clock>,
}

impl ReadTx {
    /// The connection, for queries.
    pub fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// The store's clock: nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }
}

impl Reads for ReadTx {
    fn conn(&mut self) -> &mut SqliteConnection {
        Self::conn(self)
    }

    fn now_ns(&self) -> i64 {
        Self::now_ns(self)
    }
}

impl std::fmt::Debug for ReadTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadTx").finish_non_exhaustive()
    }
}

/// The connections that read. One that is lent and not given back in order is closed.
#[derive(Debug)]
pub(crate) struct Readers {
    connector: Arc<Connector>,
    turns: Semaphore,
    idle: Mutex<Vec<Conn>>,
    /// Counts the closing of connections whose transaction was abandoned.
    tracker: TaskTracker,
}

impl Readers {
    pub(crate) fn new(connector: Arc<Connector>, tracker: TaskTracker) -> Self {
        let turns = Semaphore::new(READERS);
        Self { connector, turns, idle: Mutex::default(), tracker }
    }

    pub(crate) async fn read<T, E, F>(&self, name: &'static str, clock: Arc<dyn Clock>, f: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut ReadTx) -> BoxFuture<'t, Result<T, E>>,
        E: From<StoreError>,
    {
        let _turn = self.turns.acquire().await.map_err(|_| StoreError::Closed)?;
        let idle = self.idle().pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.connector.connect(Role::Reader).await.map_err(StoreError::from)?,
        };
        let mut lent = Lent { tx: Some(ReadTx { conn, clock }), tracker: &self.tracker };
        let tx = lent.tx.as_mut().expect("a connection has just been lent");
        sqlx::query("BEGIN DEFERRED").execute(tx.conn()).await.map_err(StoreError::from)?;
        let outcome = AssertUnwindSafe(async { f(tx).await }).catch_unwind().await;
        // A connection that can't end its transaction is dropped with its loan.
        if sqlx::query("ROLLBACK").execute(tx.conn()).await.is_ok()
            && let Some(tx) = lent.tx.take()
        {
            self.idle().push(tx.conn);
        }
        outcome.unwrap_or_else(|panic| Err(panicked(name, &*panic).into()))
    }

    /// Closes every idle connection.
    pub(crate) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle());
        for conn in idle {
            inspect::close(conn).await;
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Conn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped with it still inside, its transaction may be anywhere: the connection is closed, and
/// whoever closes the store waits for that.
struct Lent<'r> {
    tx: Option<ReadTx>,
    tracker: &'r TaskTracker,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(tx) = self.tx.take() else { return };
        // Without a runtime the connection's thread closes it all the same.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tracker.spawn_on(inspect::close(tx.conn), &runtime);
        }
    }
}
