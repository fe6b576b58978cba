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
    seen: Option<i64>,
    connector: Arc<Connector>,
}

impl Poller {
    pub(crate) async fn new(connector: Arc<Connector>) -> Result<Self, sqlx::Error> {
        let mut poller = Self { conn: None, seen: None, connector };
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

    /// Whether anybody may have committed since the last look. What happened before a connection was there, it can't
    /// tell: its first look says yes.
    async fn look(&mut self) -> Result<bool, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.connector.connect(Role::Reader).await?);
            self.seen = None;
        }
        let Some(conn) = &mut self.conn else { return Ok(true) };
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut **conn).await?;
        Ok(self.seen.replace(version) != Some(version))
    }

    async fn discard(&mut self) {
        if let Some(conn) = self.conn.take() {
            inspect::close(conn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatabaseKey, OpenOptions, Store};

    /// What is committed between a look that failed and the first one that works again.
    ///
    /// Shows: STR-078, STR-101.
    #[tokio::test]
    async fn a_commit_while_there_is_no_connection_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(folder.path().join("a.db"), DatabaseKey::generate(), Vec::new());
        let connector = Connector {
            path: options.path.clone(),
            key: options.key.clone(),
            busy_timeout: std::time::Duration::from_secs(10),
            vfs: None,
        };
        let store = Store::open(options).await.unwrap();
        let mut poller = Poller::new(Arc::new(connector)).await.unwrap();
        assert!(!poller.look().await.unwrap());
        poller.discard().await;
        store
            .write::<_, StoreError, _>("a table", |tx| {
                Box::pin(async move {
                    sqlx::query("CREATE TABLE a (x INTEGER)").execute(tx.conn()).await?;
                    Ok(())
                })
            })
            .await
            .unwrap();
        assert!(poller.look().await.unwrap());
        assert!(!poller.look().await.unwrap());
        store.close().await;
    }
}
