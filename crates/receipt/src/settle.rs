//! Taking away what was handled. Each of these belongs in the transaction that records what became
//! of the envelopes, so that a crash leaves both or neither (PROC-008).

use highwater_store::WriteTx;
use highwater_wire::{SequenceId, Topic};
use sqlx::{QueryBuilder, Sqlite};

use crate::{ReceiptError, ReceivedPosition, budgets, received};

/// Removes the pending envelopes of a topic at or below `through`: applied or terminally rejected in
/// order. Returns how many there were. F stays.
///
/// # Errors
/// When the database fails; the transaction must then be rolled back.
pub async fn settle_through(
    tx: &mut WriteTx,
    topic: Topic,
    through: SequenceId,
) -> Result<u64, ReceiptError> {
    remove(tx, topic, SequenceId::MIN, through).await
}

/// [`settle_through`] for several topics with one statement. Each topic may be named once.
///
/// # Errors
/// When the database fails; the transaction must then be rolled back.
pub async fn settle_together(tx: &mut WriteTx, handled: &[(Topic, SequenceId)]) -> Result<(), ReceiptError> {
    for handled in handled.chunks(TOPICS_PER_STATEMENT) {
        let mut settle = QueryBuilder::new(
            "UPDATE receipt_topics SET \
                 pending_rows = pending_rows - gone.envelopes, \
                 pending_bytes = pending_bytes - gone.bytes \
             FROM (SELECT p.topic, count(*) AS envelopes, sum(p.stored_bytes) AS bytes FROM (",
        );
        push_handled(&mut settle, handled);
        settle.push(
            ") AS h CROSS JOIN receipt_pending AS p \
                 ON p.topic = h.column1 AND p.sequence_id <= h.column2 GROUP BY p.topic) AS gone \
             WHERE receipt_topics.topic = gone.topic; \
             DELETE FROM receipt_pending WHERE rowid IN (SELECT p.rowid FROM (",
        );
        push_handled(&mut settle, handled);
        settle.push(
            ") AS h CROSS JOIN receipt_pending AS p ON p.topic = h.column1 AND p.sequence_id <= h.column2)",
        );
        settle.build().execute(tx.conn()).await?;
    }
    Ok(())
}

/// Two values a topic are bound twice, and SQLite binds at most 32,766.
const TOPICS_PER_STATEMENT: usize = 1_000;

fn push_handled(query: &mut QueryBuilder<Sqlite>, handled: &[(Topic, SequenceId)]) {
    query.push_values(handled, |mut row, (topic, through)| {
        row.push_bind(topic.to_bytes()).push_bind(through.as_i64());
    });
}

/// Removes one pending envelope, wherever it stands: Welcomes are independent of each other. Says
/// whether it was pending. F stays.
///
/// # Errors
/// When the database fails; the transaction must then be rolled back.
pub async fn settle_one(
    tx: &mut WriteTx,
    topic: Topic,
    sequence_id: SequenceId,
) -> Result<bool, ReceiptError> {
    Ok(remove(tx, topic, sequence_id, sequence_id).await? > 0)
}

/// Starts a topic at the validated anchor of a join: F becomes the greater of F and `anchor`, what
/// is pending at or below the anchor belongs to no membership of ours and goes, what is above it
/// stays (PROC-010). Returns F.
///
/// To be called in the transaction that installs the joined state, and for nothing else: this is
/// the one way past envelopes that were never received.
///
/// # Errors
/// [`ReceiptError::NotReceived`] for a kind without a received position; when the database fails.
/// The transaction must then be rolled back.
pub async fn anchor(
    tx: &mut WriteTx,
    topic: Topic,
    anchor: SequenceId,
) -> Result<ReceivedPosition, ReceiptError> {
    budgets::of_kind(topic.kind()).ok_or(ReceiptError::NotReceived(topic.kind()))?;
    remove(tx, topic, SequenceId::MIN, anchor).await?;
    sqlx::query(
        "INSERT INTO receipt_topics (topic, kind, received) VALUES (?, ?, ?) \
         ON CONFLICT (topic) DO UPDATE SET received = excluded.received \
         WHERE excluded.received > receipt_topics.received",
    )
    .bind(topic.to_bytes())
    .bind(topic.kind().byte())
    .bind(anchor.as_i64())
    .execute(tx.conn())
    .await?;
    received(tx, topic).await
}

async fn remove(
    tx: &mut WriteTx,
    topic: Topic,
    first: SequenceId,
    last: SequenceId,
) -> Result<u64, ReceiptError> {
    // Both in one query: each is a round trip to the driver's thread otherwise.
    let changed = sqlx::query(
        "UPDATE receipt_topics SET \
             pending_rows = pending_rows - gone.envelopes, \
             pending_bytes = pending_bytes - gone.bytes \
         FROM (SELECT count(*) AS envelopes, coalesce(sum(stored_bytes), 0) AS bytes \
               FROM receipt_pending WHERE topic = ?1 AND sequence_id BETWEEN ?2 AND ?3) AS gone \
         WHERE topic = ?1 AND gone.envelopes > 0; \
         DELETE FROM receipt_pending WHERE topic = ?1 AND sequence_id BETWEEN ?2 AND ?3",
    )
    .bind(topic.to_bytes())
    .bind(first.as_i64())
    .bind(last.as_i64())
    .execute(tx.conn())
    .await?;
    // The topic's own row is changed exactly when envelopes go.
    Ok(changed.rows_affected().saturating_sub(1))
}
