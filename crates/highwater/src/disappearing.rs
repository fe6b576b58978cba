//! Removes what has disappeared from the database, while the client is open.
//!
//! Readers leave a message out from its time on, whether this has run or not (STR-103). It needs no backend.

use std::time::Duration;

use highwater_delivery::DeliveryError;
use highwater_store::Store;
use tokio::task::JoinHandle;

/// Messages of one transaction.
const BATCH: u32 = 128;
/// The least time between two looks, however often something is committed.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time until a message that is to disappear is looked at again: a machine may sleep, and its clock be set.
const LONGEST: Duration = Duration::from_secs(60);

/// The running removal. It ends when this is dropped or the store is closed.
#[derive(Debug)]
pub(crate) struct Disappearing(JoinHandle<()>);

impl Disappearing {
    pub(crate) fn start(store: Store) -> Self {
        Self(tokio::spawn(run(store)))
    }
}

impl Drop for Disappearing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(store: Store) {
    let mut wakes = store.wakes();
    loop {
        wakes.mark_unchanged();
        let wait = match erase(&store).await {
            Ok(next) => next,
            Err(DeliveryError::Store(error)) if error.is_closed() => return,
            Err(error) => {
                tracing::warn!(%error, "what has disappeared could not be removed");
                Some(LONGEST)
            }
        };
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            changed = wakes.changed() => if changed.is_err() { return },
            () = due(wait) => {}
        }
    }
}

/// Removes all that is due. Says how long it is until the next one, if there is one.
async fn erase(store: &Store) -> Result<Option<Duration>, DeliveryError> {
    loop {
        let next = store
            .read("next to disappear", |tx| {
                Box::pin(async move { highwater_delivery::next_expiry(tx).await })
            })
            .await?;
        let wait = next.map(|at| at.saturating_sub(store.now_ns()));
        match wait.map(u64::try_from) {
            None => return Ok(None),
            Some(Ok(nanos @ 1..)) => return Ok(Some(Duration::from_nanos(nanos).min(LONGEST))),
            Some(_) => {}
        }
        let erased = store
            .write("disappear", |tx| {
                Box::pin(async move { highwater_delivery::erase_expired(tx, BATCH).await })
            })
            .await?;
        if erased == 0 {
            // Another process was faster.
            return Ok(Some(PAUSE));
        }
    }
}

async fn due(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
