//! Notices the commits of other processes (STR-078).

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::connect::{Conn, Connector, Role};
use crate::{ACTIVE_DATABASE_POLL_INTERVAL, StoreError, inspect};

/// Counts up: whoever waits looks at the database again.
pub(crate) fn wake(wakes: &watch::Sender<u64>) {
    wakes.send_modify(|count| *count = count.wrapping_add(1));
}

/// An idle connection and the last version it has seen. SQLite counts the commits that other connections made.
pub(crate) struct Poller {
    conn: Option<Conn>,
    seen: i64,
    connector: Arc<Connector>,
}

impl Poller {
    pub(crate) async fn new(connector: Arc<Connector>) -> Result<Self, sqlx::Error> {
        let mut poller = Self { conn: None, seen: 0, connector };
        poller.look().await?;
        Ok(poller)
    }

    /// Until the token is cancelled. The next check starts at most one interval after the last one's end (STR-079).
    pub(crate) async fn run(mut self, wakes: Arc<watch::Sender<u64>>, ended: CancellationToken) {
        while ended.run_until_cancelled(tokio::time::sleep(ACTIVE_DATABASE_POLL_INTERVAL)).await.is_some() {
            match self.look().await {
                Ok(false) => {}
                Ok(true) => wake(&wakes),
                Err(error) => {
                    let error = StoreError::from(error);
                    tracing::warn!(%error, "the database could not be polled");
                    self.discard().await;
                    wake(&wakes);
                }
            }
        }
        self.discard().await;
    }

    /// Whether anybody has committed since the last look.
    async fn look(&mut self) -> Result<bool, sqlx::Error> {
        let conn = match &mut self.conn {
            Some(conn) => conn,
            empty => empty.insert(self.connector.connect(Role::Reader).await?),
        };
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut **conn).await?;
        Ok(std::mem::replace(&mut self.seen, version) != version)
    }

    async fn discard(&mut self) {
        if let Some(conn) = self.conn.take() {
            inspect::close(conn).await;
        }
    }
}
