//! Whether anything was committed since one looked (STR-101).

use std::sync::Arc;

use crate::StoreError;
use crate::connect::{Conn, Connector, Role};
use crate::inspect;

/// A state of the database. As long as it stays the same, nobody has committed anything: no other process, and no
/// transaction of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// SQLite counts for each connection on its own.
    connection: u64,
    commits: i64,
}

/// The connection that tells. Opened by the first question.
#[derive(Debug)]
pub(crate) struct Versions {
    connector: Arc<Connector>,
    conn: tokio::sync::Mutex<(u64, Option<Conn>)>,
}

impl Versions {
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, conn: tokio::sync::Mutex::new((0, None)) }
    }

    pub(crate) async fn now(&self) -> Result<Version, StoreError> {
        let mut guard = self.conn.lock().await;
        let (connection, conn) = &mut *guard;
        if conn.is_none() {
            *conn = Some(self.connector.connect(Role::Reader).await?);
            *connection += 1;
        }
        let Some(open) = conn else { return Err(StoreError::Closed) };
        match sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut **open).await {
            Ok(commits) => Ok(Version { connection: *connection, commits }),
            Err(error) => {
                if let Some(broken) = conn.take() {
                    inspect::close(broken).await;
                }
                Err(error.into())
            }
        }
    }

    pub(crate) async fn close(&self) {
        if let Some(conn) = self.conn.lock().await.1.take() {
            inspect::close(conn).await;
        }
    }
}
