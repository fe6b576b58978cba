//! The one writer connection, and the life of a write on it.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::connect::Connector;
use crate::error::{BUSY, code};
use crate::{CommitGate, GateOutcome, StoreError, WriteTx};

/// The writer's place: empty after a connection of unknown state was thrown away.
pub(crate) struct Writer {
    connector: Connector,
    busy_timeout: Duration,
    conn: Option<SqliteConnection>,
}

impl Writer {
    pub(crate) fn new(connector: Connector, busy_timeout: Duration, conn: SqliteConnection) -> Self {
        Self { connector, busy_timeout, conn: Some(conn) }
    }

    pub(crate) fn take(&mut self) -> Option<SqliteConnection> {
        self.conn.take()
    }

    /// Runs one transaction to its end. Never dropped half way: it is polled by a task of its own.
    pub(crate) async fn run<T, E>(
        &mut self,
        name: &'static str,
        now_ns: impl Fn() -> i64,
        gate: Option<&CommitGate>,
        f: impl for<'t> FnOnce(&'t mut WriteTx) -> BoxFuture<'t, Result<T, E>>,
    ) -> Result<GateOutcome<T>, E>
    where
        E: From<StoreError>,
    {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connector.connect(false).await.map_err(|error| E::from(error.into()))?,
        };
        if let Err(error) = begin(&mut conn, self.busy_timeout).await {
            // Nothing was begun, but a failed BEGIN is reason enough for a new connection.
            return Err(E::from(error.into()));
        }
        let mut tx = WriteTx { conn, now_ns: now_ns() };
        let ran = AssertUnwindSafe(f(&mut tx)).catch_unwind().await;
        let conn = tx.conn;
        let result = match ran {
            Ok(Ok(value)) if gate.is_none_or(CommitGate::admit) => {
                return self.commit(conn, value).await.map_err(E::from);
            }
            Ok(Ok(_)) => Ok(GateOutcome::Cancelled),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                tracing::error!(name, "a write panicked");
                Err(E::from(StoreError::Panicked))
            }
        };
        self.roll_back(conn).await;
        result
    }

    async fn commit<T>(
        &mut self,
        mut conn: SqliteConnection,
        value: T,
    ) -> Result<GateOutcome<T>, StoreError> {
        match conn.execute("COMMIT").await {
            Ok(_) => {
                self.conn = Some(conn);
                Ok(GateOutcome::Committed(value))
            }
            Err(error) => {
                // A failed commit leaves the transaction open as long as SQLite says so: then it is known not to have
                // taken effect.
                let rolled_back = conn.execute("ROLLBACK").await.is_ok();
                Err(if rolled_back { error.into() } else { StoreError::CommitUnknown(error) })
            }
        }
    }

    /// Rolls back; a connection that can't is closed, which rolls back too.
    async fn roll_back(&mut self, mut conn: SqliteConnection) {
        match conn.execute("ROLLBACK").await {
            Ok(_) => self.conn = Some(conn),
            // Some errors (a full disk, say) make SQLite roll back by itself; the connection isn't worth the doubt.
            Err(error) => tracing::debug!(%error, "rollback failed, connection dropped"),
        }
    }
}

/// `BEGIN IMMEDIATE` takes the write lock before anything is read, so that no read turns into a write on a stale
/// snapshot. SQLite's own wait can end early under contention.
async fn begin(conn: &mut SqliteConnection, patience: Duration) -> Result<(), sqlx::Error> {
    let deadline = Instant::now() + patience;
    loop {
        match conn.execute("BEGIN IMMEDIATE").await {
            Ok(_) => return Ok(()),
            Err(error) if code(&error) == Some(BUSY) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
