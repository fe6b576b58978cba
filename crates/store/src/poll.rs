//! Noticing what other processes commit.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Row as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ACTIVE_DATABASE_POLL_INTERVAL;
use crate::connect::Connector;

/// Bumps `wakes` whenever the file changed under an otherwise idle connection. Ends with `cancel`.
pub(crate) async fn run(connector: Connector, wakes: watch::Sender<u64>, cancel: CancellationToken) {
    let mut conn = None;
    let mut seen = None;
    while !cancel.is_cancelled() {
        match data_version(&connector, &mut conn).await {
            Ok(version) => {
                // The first look counts as a change: what was committed before it went unnoticed.
                if seen != Some(version) {
                    wakes.send_modify(|count| *count += 1);
                }
                seen = Some(version);
            }
            Err(error) => {
                tracing::debug!(%error, "polling for other processes' commits failed");
                // Whatever happened in between is unknown, and a wake is only a hint.
                wakes.send_modify(|count| *count += 1);
                (conn, seen) = (None, None);
            }
        }
        tokio::select! {
            _ = cancel.cancelled() => break,
            _ = tokio::time::sleep(ACTIVE_DATABASE_POLL_INTERVAL) => {}
        }
    }
    if let Some(conn) = conn
        && let Err(error) = conn.close().await
    {
        tracing::debug!(%error, "the polling connection did not close cleanly");
    }
}

async fn data_version(
    connector: &Connector,
    conn: &mut Option<SqliteConnection>,
) -> Result<i64, sqlx::Error> {
    let conn = match conn {
        Some(conn) => conn,
        none => none.insert(connector.connect(false).await?),
    };
    Ok(sqlx::query("PRAGMA data_version").fetch_one(conn).await?.get(0))
}
