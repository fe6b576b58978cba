//! Reader connections: one snapshot each, given back only when their state is known.

use std::sync::{Mutex, PoisonError};

use futures::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor as _};
use tokio::sync::Semaphore;

use crate::connect::Connector;
use crate::{ReadTx, StoreError};

/// How many snapshots are open at once in one process.
const MAX_READERS: usize = 4;

pub(crate) struct Readers {
    connector: Connector,
    idle: Mutex<Vec<SqliteConnection>>,
    permits: Semaphore,
}

impl Readers {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, idle: Mutex::default(), permits: Semaphore::new(MAX_READERS) }
    }

    /// Runs `f` on a snapshot. A future that is dropped half way takes its connection with it.
    pub(crate) async fn run<T, E>(
        &self,
        now_ns: impl Fn() -> i64,
        f: impl for<'t> FnOnce(&'t mut ReadTx) -> BoxFuture<'t, Result<T, E>>,
    ) -> Result<T, E>
    where
        E: From<StoreError>,
    {
        let _permit = self.permits.acquire().await.map_err(|_| E::from(StoreError::Closed))?;
        let conn = match self.take() {
            Some(conn) => conn,
            None => self.connect().await.map_err(|error| E::from(error.into()))?,
        };
        let mut tx = ReadTx { conn, now_ns: 0 };
        tx.conn.execute("BEGIN").await.map_err(|error| E::from(error.into()))?;
        tx.now_ns = now_ns();
        let result = f(&mut tx).await;
        if tx.conn.execute("ROLLBACK").await.is_ok() && !self.permits.is_closed() {
            self.give(tx.conn);
        }
        result
    }

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        let mut conn = self.connector.connect(false).await?;
        conn.execute("PRAGMA query_only = ON").await?;
        Ok(conn)
    }

    fn take(&self) -> Option<SqliteConnection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give(&self, conn: SqliteConnection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    /// Lets no new snapshot begin, and closes every connection once its snapshot has ended.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(MAX_READERS as u32).await;
        self.permits.close();
        drop(all);
        while let Some(conn) = self.take() {
            if let Err(error) = conn.close().await {
                tracing::debug!(%error, "a reader did not close cleanly");
            }
        }
    }
}
