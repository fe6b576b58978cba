//! Publishing the Welcomes that applied commits owe.

use highwater_outbox::OwedWelcome;
use highwater_transport::TransportError;
use highwater_wire::limits::MAX_PUBLISH_TOPICS;

use crate::SyncError;
use crate::engine::Shared;
use crate::publisher::MAX_REQUEST_BYTES;

/// Publishes owed Welcomes. One that is refused for good doesn't hold up the others.
pub(crate) async fn publish(shared: &Shared) -> Result<(), SyncError> {
    loop {
        let owed = shared
            .store
            .read("owed Welcomes", |tx| {
                Box::pin(async move { highwater_outbox::owed_welcomes(tx, MAX_PUBLISH_TOPICS as u32).await })
            })
            .await?;
        let batch = within(owed, MAX_REQUEST_BYTES);
        if batch.is_empty() {
            return Ok(());
        }
        let envelopes = batch.iter().map(|welcome| welcome.envelope.clone().into()).collect();
        let settled = match shared.connection.publish(envelopes).await {
            Ok(_) => Settled::Accepted(batch.into_iter().map(|welcome| welcome.id).collect()),
            Err(TransportError::InvalidArgument { message, publish }) => {
                let index = publish.and_then(|refusal| refusal.index).unwrap_or(0) as usize;
                let refused = batch.get(index).unwrap_or(&batch[0]);
                Settled::Refused(refused.id, message)
            }
            Err(error) => return Err(error.into()),
        };
        settle_welcomes(shared, settled).await?;
    }
}

enum Settled {
    Accepted(Vec<i64>),
    Refused(i64, String),
}

async fn settle_welcomes(shared: &Shared, settled: Settled) -> Result<(), SyncError> {
    shared
        .store
        .write("Welcomes settled", move |tx| {
            Box::pin(async move {
                match settled {
                    Settled::Accepted(welcomes) => {
                        for welcome in welcomes {
                            highwater_outbox::welcome_accepted(tx, welcome).await?;
                        }
                    }
                    Settled::Refused(welcome, detail) => {
                        highwater_outbox::welcome_refused(tx, welcome, &detail).await?;
                    }
                }
                Ok::<_, SyncError>(())
            })
        })
        .await
}

/// The longest leading run of Welcomes whose envelopes fit; at least one.
fn within(mut owed: Vec<OwedWelcome>, max_bytes: usize) -> Vec<OwedWelcome> {
    let mut bytes = 0;
    let fits = owed
        .iter()
        .take_while(|welcome| {
            bytes += welcome.envelope.len();
            bytes <= max_bytes
        })
        .count();
    owed.truncate(fits.max(1));
    owed
}
