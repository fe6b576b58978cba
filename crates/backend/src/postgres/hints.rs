//! Tells the other instances that something became visible, and hears it from them. All of it is hints:
//! what is lost here, the tailer's poll finds.

use std::{sync::Arc, time::Duration};

use sqlx::{PgPool, postgres::PgListener};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

const CHANNEL: &str = "highwater_visible";
/// NOTIFY takes a lock that all of the database's commits with one wait for. So publishes don't carry
/// it; one after so long speaks for all that committed meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// Before listening is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Speaks for this instance's commits.
pub(super) async fn speak(pool: PgPool, committed: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = committed.notified() => {}
        }
        if let Err(error) = sqlx::query("NOTIFY highwater_visible").execute(&pool).await {
            tracing::debug!(%error, "the other instances could not be told");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Hears of every instance's commits.
pub(super) async fn listen(pool: PgPool, visible: watch::Sender<u64>, stop: CancellationToken) {
    loop {
        let heard = tokio::select! {
            () = stop.cancelled() => return,
            heard = hear(&pool, &visible) => heard,
        };
        if let Err(error) = heard {
            tracing::warn!(%error, "listening for commits failed; polling finds them");
        }
        // Whatever was said while nobody listened.
        visible.send_modify(|count| *count += 1);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

async fn hear(pool: &PgPool, visible: &watch::Sender<u64>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    loop {
        // None: the connection was lost and is being made again.
        listener.try_recv().await?;
        visible.send_modify(|count| *count += 1);
    }
}
