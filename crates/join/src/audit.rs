use highwater_store::{Audit, Reads};
use highwater_wire::Topic;
use sqlx::Row as _;

use crate::{JoinError, held, outcomes};

/// Checks this crate's invariants. `topic` is this installation's Welcome topic.
pub async fn audit(tx: &mut impl Reads, topic: Topic) -> Result<Audit, JoinError> {
    let mut audit = Audit::new("join");
    for held in held(tx).await? {
        let pending = highwater_receipt::pending_one(tx, topic, held.sequence_id).await?;
        audit.check("a held Welcome is pending", pending.is_some(), || {
            format!("Welcome {}", held.sequence_id.get())
        });
    }
    for outcome in outcomes(tx).await? {
        let pending = highwater_receipt::pending_one(tx, topic, outcome.sequence_id).await?;
        audit.check("a settled Welcome is not pending", pending.is_none(), || {
            format!("Welcome {}", outcome.sequence_id.get())
        });
        if let Some(group) = outcome.group {
            let known = highwater_delivery::conversation(tx, group).await?.is_some();
            audit.check("a joined group is a known conversation", known, || {
                format!("Welcome {}", outcome.sequence_id.get())
            });
        }
    }
    let both = sqlx::query(
        "SELECT count(*) FROM join_welcomes w JOIN join_outcomes o ON o.sequence_id = w.sequence_id",
    )
    .fetch_one(tx.conn())
    .await?
    .get::<i64, _>(0);
    audit.check("no Welcome is both held and settled", both == 0, || format!("{both} rows"));
    Ok(audit)
}
