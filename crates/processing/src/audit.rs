use highwater_store::{Audit, Reads};
use sqlx::Row as _;

use crate::{ProcessingError, latest_snapshot, positions};
use highwater_wire::TopicKind;

/// Checks this crate's invariants.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, ProcessingError> {
    let mut audit = Audit::new("processing");
    for (topic, processed) in positions(tx).await? {
        let received = highwater_receipt::received(tx, topic).await?;
        audit.check("P is at or below F", processed.cursor() <= received.cursor(), || {
            format!("topic {topic:?}: P {} F {}", processed.cursor().get(), received.cursor().get())
        });
        let handled = highwater_receipt::pending_ids(tx, topic, processed.cursor()).await?;
        audit.check("nothing at or below P is pending", handled.is_empty(), || {
            format!("topic {topic:?}: {} envelopes", handled.len())
        });
        if let (TopicKind::IdentityUpdate, Some(inbox)) = (topic.kind(), topic.inbox_id()) {
            let newest = latest_snapshot(tx, inbox).await?.map(|(id, _)| id.get());
            audit.check(
                "the newest identity state is the one at P",
                newest == Some(processed.cursor().get()),
                || format!("topic {topic:?}: state at {newest:?}, P {}", processed.cursor().get()),
            );
        }
    }
    let above = sqlx::query(
        "SELECT count(*) FROM processing_rejections r LEFT JOIN processing_positions p ON p.topic = r.topic \
         WHERE r.sequence_id > coalesce(p.processed, 0)",
    )
    .fetch_one(tx.conn())
    .await?
    .get::<i64, _>(0);
    audit.check("every rejection is at or below P", above == 0, || format!("{above} rows"));
    Ok(audit)
}
