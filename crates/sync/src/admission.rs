//! The one way from the network into the database.

use std::sync::Arc;

use highwater_receipt::{Admission, AdmitError, ReceivedPosition};
use highwater_store::Store;
use highwater_wire::OrderedPrefix;

use crate::SyncError;

/// What became of a received prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// All of it is durable or was before; this is F.
    All(ReceivedPosition),
    /// Its topic has no room for the rest, which was dropped: read on after F when there is room again.
    Paused(ReceivedPosition),
    /// It starts above F; the prefix in between must be fetched.
    Gap(ReceivedPosition),
}

/// Admits a prefix, batch by batch, each in a transaction of its own.
pub(crate) async fn admit(store: &Store, prefix: OrderedPrefix) -> Result<Admitted, SyncError> {
    let end = prefix.last();
    let prefix = Arc::new(prefix);
    loop {
        let batch = Arc::clone(&prefix);
        let admission = store
            .write("admit", move |tx| Box::pin(async move { highwater_receipt::admit(tx, &batch).await }))
            .await;
        match admission {
            Ok(Admission::Admitted { received, .. }) if received.cursor() < end => {}
            Ok(Admission::Admitted { received, .. } | Admission::Duplicate { received }) => {
                return Ok(Admitted::All(received));
            }
            Ok(Admission::Paused { received, .. }) | Err(AdmitError::Capacity { received, .. }) => {
                return Ok(Admitted::Paused(received));
            }
            Err(AdmitError::Gap { received, .. }) => return Ok(Admitted::Gap(received)),
            Err(error) => return Err(SyncError::Admit(error)),
        }
    }
}
