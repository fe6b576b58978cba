use highwater_store::{Audit, Reads};
use highwater_wire::{ReceivedEnvelope, Topic};
use sqlx::Row as _;

use crate::{ReceiptError, budgets, room};

/// Each counts the rows that break its rule.
const RULES: [(&str, &str); 4] = [
    (
        "no pending id is above F",
        "SELECT count(*) FROM receipt_pending AS p LEFT JOIN receipt_topics AS t USING (topic) \
         WHERE p.sequence_id > coalesce(t.received, 0)",
    ),
    (
        "a pending envelope is of its topic's kind",
        "SELECT count(*) FROM receipt_pending AS p LEFT JOIN receipt_topics AS t USING (topic) \
         WHERE t.kind IS NOT p.kind",
    ),
    (
        "a topic counts what it holds",
        "SELECT count(*) FROM receipt_topics AS t LEFT JOIN \
             (SELECT topic, count(*) AS envelopes, sum(stored_bytes) AS bytes \
              FROM receipt_pending GROUP BY topic) AS p USING (topic) \
         WHERE t.pending_rows <> coalesce(p.envelopes, 0) \
            OR t.pending_bytes <> coalesce(p.bytes, 0)",
    ),
    (
        "a topic has at most one pending envelope of an id",
        "SELECT count(*) FROM (SELECT 1 FROM receipt_pending GROUP BY topic, sequence_id \
         HAVING count(*) > 1)",
    ),
];

/// Checks this crate's invariants over the whole database.
///
/// # Errors
/// When the database fails.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, ReceiptError> {
    let mut audit = Audit::new("receipt");
    for (rule, sql) in RULES {
        let broken: i64 = sqlx::query(sql).fetch_one(tx.conn()).await?.try_get(0)?;
        audit.check(rule, broken == 0, || format!("{broken} rows"));
    }
    let wrong: i64 =
        sqlx::query("SELECT count(*) FROM receipt_pending WHERE stored_bytes <> length(payload) + ?")
            .bind(ReceivedEnvelope::METADATA_BYTES as i64)
            .fetch_one(tx.conn())
            .await?
            .try_get(0)?;
    audit.check("stored_bytes is what the envelope takes", wrong == 0, || format!("{wrong} rows"));
    kinds(tx, &mut audit).await?;
    Ok(audit)
}

async fn kinds(tx: &mut impl Reads, audit: &mut Audit) -> Result<(), ReceiptError> {
    let rows = sqlx::query("SELECT topic, kind, pending_rows, pending_bytes FROM receipt_topics")
        .fetch_all(tx.conn())
        .await?;
    let mut kinds = std::collections::BTreeSet::new();
    for row in rows {
        let bytes: &[u8] = row.try_get(0)?;
        let topic = Topic::from_bytes(bytes).ok();
        let kind = topic.map(|topic| topic.kind());
        let ordered =
            kind.is_some_and(|kind| budgets::of_kind(kind).is_some() && row.get::<u8, _>(1) == kind.byte());
        audit
            .check("a topic with F is one that is received in order", ordered, || format!("topic {topic:?}"));
        kinds.extend(kind.filter(|_| ordered));
        let load = budgets::Quantity {
            rows: row.try_get::<i64, _>(2)?.unsigned_abs(),
            bytes: row.try_get::<i64, _>(3)?.unsigned_abs(),
        };
        audit.check("a topic is within its budget", load.fits(budgets::PER_TOPIC), || {
            format!("topic {topic:?}: {load:?}")
        });
    }
    for kind in kinds {
        let used = room(tx, kind).await?.used;
        let fits = budgets::of_kind(kind).is_some_and(|budget| used.fits(budget));
        audit.check("a kind is within its budget", fits, || format!("{}: {used:?}", kind.name()));
    }
    Ok(())
}
