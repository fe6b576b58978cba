use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::SqliteConnection;
use tokio::sync::Mutex;

use crate::code::{self, Code};
use crate::connect::{Conn, Connector, Role};
use crate::open::begin_immediate;
use crate::store::panicked;
use crate::{Clock, CommitGate, GateOutcome, Reads, StoreError, inspect};

/// The write transaction. There is one at a time, across all processes, so what it reads stays true until it ends.
pub struct WriteTx {
    conn: Conn,
    clock: Arc<dyn Clock>,
    savepoints: u32,
}

impl WriteTx {
    /// The connection, for queries.
    pub fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// The store's clock: nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Marks a point to which [`Self::rollback_to`] can return. Savepoints nest; each is ended by one
    /// [`Self::release`] or [`Self::rollback_to`], the innermost first. One that is left open commits with the rest.
    ///
    /// # Errors
    /// When the database fails; the whole transaction should then be given up.
    pub async fn savepoint(&mut self) -> Result<(), StoreError> {
        sqlx::query("SAVEPOINT store_step").execute(&mut *self.conn).await?;
        self.savepoints += 1;
        Ok(())
    }

    /// Ends the innermost savepoint and keeps what was done since.
    ///
    /// # Errors
    /// [`StoreError::NoSavepoint`], or when the database fails.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.end_savepoint()?;
        sqlx::query("RELEASE store_step").execute(&mut *self.conn).await?;
        Ok(())
    }

    /// Undoes everything since the innermost savepoint, and ends it.
    ///
    /// # Errors
    /// [`StoreError::NoSavepoint`], or when the database fails.
    pub async fn rollback_to(&mut self) -> Result<(), StoreError> {
        self.end_savepoint()?;
        sqlx::query("ROLLBACK TO store_step").execute(&mut *self.conn).await?;
        sqlx::query("RELEASE store_step").execute(&mut *self.conn).await?;
        Ok(())
    }

    fn end_savepoint(&mut self) -> Result<(), StoreError> {
        self.savepoints = self.savepoints.checked_sub(1).ok_or(StoreError::NoSavepoint)?;
        Ok(())
    }
}

impl Reads for WriteTx {
    fn conn(&mut self) -> &mut SqliteConnection {
        Self::conn(self)
    }

    fn now_ns(&self) -> i64 {
        Self::now_ns(self)
    }
}

impl std::fmt::Debug for WriteTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteTx").field("savepoints", &self.savepoints).finish_non_exhaustive()
    }
}

/// The connection that writes, while its state is known: between transactions.
#[derive(Debug)]
pub(crate) struct Writer {
    connector: Arc<Connector>,
    idle: Mutex<Option<Conn>>,
}

impl Writer {
    pub(crate) fn new(connector: Arc<Connector>, conn: Conn) -> Self {
        Self { connector, idle: Mutex::new(Some(conn)) }
    }

    /// One transaction. Must run to its end: the caller sees to that.
    pub(crate) async fn write<T, E, F>(
        &self,
        name: &'static str,
        clock: Arc<dyn Clock>,
        gate: Option<CommitGate>,
        f: F,
    ) -> Result<GateOutcome<T>, E>
    where
        F: for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>>,
        E: From<StoreError>,
    {
        let mut idle = self.idle.lock().await;
        // Out of its place while its state is open, so that nothing but a known end puts it back.
        let mut conn = match idle.take() {
            Some(conn) => conn,
            None => self.connector.connect(Role::Writer).await.map_err(StoreError::from)?,
        };
        if gate.as_ref().is_some_and(CommitGate::is_cancelled) {
            *idle = Some(conn);
            return Ok(GateOutcome::Cancelled);
        }
        if let Err(error) = begin_immediate(&mut conn, self.connector.busy_timeout).await {
            // A lock that wasn't given leaves no transaction; of any other failure that isn't known.
            match code::of(&error) {
                Code::Busy => *idle = Some(conn),
                _ => inspect::close(conn).await,
            }
            return Err(StoreError::from(error).into());
        }
        let mut tx = WriteTx { conn, clock, savepoints: 0 };
        let outcome = AssertUnwindSafe(async { f(&mut tx).await }).catch_unwind().await;
        let outcome = outcome.unwrap_or_else(|panic| Err(panicked(name, &*panic).into()));
        let (outcome, conn) = end(name, gate, outcome, tx.conn).await;
        *idle = conn;
        outcome
    }

    /// Checks the WAL in and closes the connection.
    pub(crate) async fn close(&self) {
        let Some(mut conn) = self.idle.lock().await.take() else {
            return;
        };
        // Another process that reads can prevent it; its own close does the work then.
        if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *conn).await {
            let error = StoreError::from(error);
            tracing::warn!(%error, "the WAL could not be checked in");
        }
        inspect::close(conn).await;
    }
}

/// COMMIT or ROLLBACK. Gives the connection back if it is known to be outside of any transaction.
async fn end<T, E: From<StoreError>>(
    name: &'static str,
    gate: Option<CommitGate>,
    outcome: Result<T, E>,
    mut conn: Conn,
) -> (Result<GateOutcome<T>, E>, Option<Conn>) {
    let value = match outcome {
        Ok(value) => value,
        Err(error) => return (Err(error), roll_back(name, conn).await),
    };
    if gate.is_some_and(|gate| !gate.admit()) {
        return (Ok(GateOutcome::Cancelled), roll_back(name, conn).await);
    }
    let Err(error) = sqlx::query("COMMIT").execute(&mut *conn).await else {
        return (Ok(GateOutcome::Committed(value)), Some(conn));
    };
    match code::of(&error) {
        // Nothing was committed: no lock, or no space for it.
        Code::Busy | Code::Full | Code::ReadOnly => {
            (Err(StoreError::from(error).into()), roll_back(name, conn).await)
        }
        _ => {
            tracing::error!(name, %error, "a commit ended without an answer");
            inspect::close(conn).await;
            (Err(StoreError::CommitUnknown { name, source: error }.into()), None)
        }
    }
}

async fn roll_back(name: &'static str, mut conn: Conn) -> Option<Conn> {
    match sqlx::query("ROLLBACK").execute(&mut *conn).await {
        Ok(_) => Some(conn),
        Err(error) => {
            // SQLite rolls back by itself after some errors, and refuses a second time. Closing settles it either way.
            tracing::debug!(name, %error, "the writer's connection is replaced after a failed rollback");
            inspect::close(conn).await;
            None
        }
    }
}
