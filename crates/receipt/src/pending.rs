//! Reading what waits to be processed.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use highwater_store::Reads;
use highwater_wire::{Cursor, MessageHash, SequenceId, Topic, TopicKind};
use sqlx::{QueryBuilder, Row as _, sqlite::SqliteRow};

use crate::{
    ReceiptError,
    budgets::Quantity,
    capacity::{count, loads},
    position::push_topics,
};

/// An admitted envelope that is neither applied nor terminally rejected.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingEnvelope {
    /// Its id on its topic.
    pub sequence_id: SequenceId,
    /// When the backend stored it, nanoseconds since the Unix epoch.
    pub server_ns: i64,
    /// When the backend may drop it, nanoseconds since the Unix epoch; 0 for never. As it came.
    pub expiry_ns: u64,
    /// The backend's hash, as it came.
    pub hash: MessageHash,
    /// The backend's reading of the payload; no proof.
    pub is_commit_or_proposal: bool,
    /// The encoded `ClientEnvelope`.
    pub payload: Bytes,
}

impl fmt::Debug for PendingEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingEnvelope")
            .field("sequence_id", &self.sequence_id)
            .field("server_ns", &self.server_ns)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// A topic that holds pending envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingTopic {
    /// The topic.
    pub topic: Topic,
    /// How many.
    pub rows: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// The lowest pending id.
    pub head: SequenceId,
}

impl PendingTopic {
    /// Rows and bytes.
    pub fn load(&self) -> Quantity {
        Quantity { rows: self.rows, bytes: self.bytes }
    }
}

/// The leading pending envelopes of a topic, as far as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPart {
    /// The topic.
    pub topic: Topic,
    /// From its head on, in order. Empty when nothing is pending.
    pub envelopes: Vec<PendingEnvelope>,
    /// How many more are pending above those.
    pub left: u64,
}

/// The leading pending envelopes of a topic, in order: at most `max_rows`, and at most `max_bytes`
/// of stored bytes, but always the head if there is one and `max_rows` isn't 0.
///
/// # Errors
/// When the database fails.
pub async fn pending(
    tx: &mut impl Reads,
    topic: Topic,
    max_rows: u32,
    max_bytes: u64,
) -> Result<Vec<PendingEnvelope>, ReceiptError> {
    pending_after(tx, topic, Cursor::ZERO, max_rows, max_bytes).await
}

/// [`pending`], going on above `after`.
///
/// # Errors
/// When the database fails.
pub async fn pending_after(
    tx: &mut impl Reads,
    topic: Topic,
    after: Cursor,
    max_rows: u32,
    max_bytes: u64,
) -> Result<Vec<PendingEnvelope>, ReceiptError> {
    // The window is computed without the payloads, so that no more than it ever is in memory.
    let rows = sqlx::query(
        "SELECT sequence_id, server_ns, expiry_ns, hash, is_commit_or_proposal, payload \
         FROM receipt_pending WHERE topic = ?1 AND sequence_id > ?4 AND sequence_id <= ( \
             SELECT max(sequence_id) FROM ( \
                 SELECT sequence_id, sum(stored_bytes) OVER (ORDER BY sequence_id) AS bytes, \
                        row_number() OVER (ORDER BY sequence_id) AS nth \
                 FROM (SELECT sequence_id, stored_bytes FROM receipt_pending \
                       WHERE topic = ?1 AND sequence_id > ?4 ORDER BY sequence_id LIMIT ?2)) \
             WHERE bytes <= ?3 OR nth = 1) \
         ORDER BY sequence_id",
    )
    .bind(topic.to_bytes())
    .bind(max_rows)
    .bind(i64::try_from(max_bytes).unwrap_or(i64::MAX))
    .bind(after.as_i64())
    .fetch_all(tx.conn())
    .await?;
    rows.iter().map(envelope).collect()
}

/// What is pending on each of some topics, read together: all of it for as many of the leading ones
/// as fit into both bounds, in the order given. Topics after those aren't in the answer. A first topic
/// that holds more than fits is the whole answer, with the part that [`pending`] would give.
///
/// # Errors
/// When the database fails.
pub async fn pending_together(
    tx: &mut impl Reads,
    topics: &[Topic],
    max_rows: u32,
    max_bytes: u64,
) -> Result<Vec<PendingPart>, ReceiptError> {
    let Some(first) = topics.first() else {
        return Ok(Vec::new());
    };
    let loads = loads(tx, topics).await?;
    let fitting = fitting(topics, &loads, max_rows, max_bytes);
    if fitting.is_empty() {
        let envelopes = pending(tx, *first, max_rows, max_bytes).await?;
        let left = loads.get(first).map_or(0, |load| load.rows.saturating_sub(envelopes.len() as u64));
        return Ok(vec![PendingPart { topic: *first, envelopes, left }]);
    }
    let mut query = QueryBuilder::new(
        "SELECT sequence_id, server_ns, expiry_ns, hash, is_commit_or_proposal, payload, topic \
         FROM receipt_pending WHERE topic IN (",
    );
    push_topics(&mut query, fitting);
    query.push(" ORDER BY topic, sequence_id");
    let mut found: BTreeMap<Topic, Vec<PendingEnvelope>> = BTreeMap::new();
    for row in query.build().fetch_all(tx.conn()).await? {
        found.entry(Topic::from_bytes(row.try_get(6)?)?).or_default().push(envelope(&row)?);
    }
    let part = |topic: &Topic| PendingPart {
        topic: *topic,
        envelopes: found.remove(topic).unwrap_or_default(),
        left: 0,
    };
    Ok(fitting.iter().map(part).collect())
}

/// The leading topics whose loads together are within the bounds.
fn fitting<'t>(
    topics: &'t [Topic],
    loads: &BTreeMap<Topic, Quantity>,
    max_rows: u32,
    max_bytes: u64,
) -> &'t [Topic] {
    let bound = Quantity { rows: max_rows.into(), bytes: max_bytes };
    let mut sum = Quantity::default();
    let fits = |topic: &&Topic| {
        sum = sum.plus(loads.get(topic).copied().unwrap_or_default());
        sum.fits(bound)
    };
    let count = topics.iter().take_while(fits).count();
    &topics[..count]
}

/// One pending envelope, or `None` when it isn't pending (any more).
///
/// # Errors
/// When the database fails.
pub async fn pending_one(
    tx: &mut impl Reads,
    topic: Topic,
    sequence_id: SequenceId,
) -> Result<Option<PendingEnvelope>, ReceiptError> {
    let row = sqlx::query(
        "SELECT sequence_id, server_ns, expiry_ns, hash, is_commit_or_proposal, payload \
         FROM receipt_pending WHERE topic = ? AND sequence_id = ?",
    )
    .bind(topic.to_bytes())
    .bind(sequence_id.as_i64())
    .fetch_optional(tx.conn())
    .await?;
    row.as_ref().map(envelope).transpose()
}

/// The pending ids of a topic at or below `through`, in order. At most
/// [`PER_TOPIC`](crate::budgets::PER_TOPIC) rows of them.
///
/// # Errors
/// When the database fails.
pub async fn pending_ids(
    tx: &mut impl Reads,
    topic: Topic,
    through: Cursor,
) -> Result<Vec<SequenceId>, ReceiptError> {
    let rows = sqlx::query(
        "SELECT sequence_id FROM receipt_pending WHERE topic = ? AND sequence_id <= ? \
         ORDER BY sequence_id",
    )
    .bind(topic.to_bytes())
    .bind(through.as_i64())
    .fetch_all(tx.conn())
    .await?;
    rows.iter().map(|row| Ok(SequenceId::try_from(row.try_get::<i64, _>(0)?)?)).collect()
}

/// The topics that hold pending envelopes, of one kind or of all, in topic order. After a restart
/// this is where unfinished work is found again, without the network (STR-036).
///
/// # Errors
/// When the database fails.
pub async fn pending_topics(
    tx: &mut impl Reads,
    kind: Option<TopicKind>,
) -> Result<Vec<PendingTopic>, ReceiptError> {
    let rows = sqlx::query(
        "SELECT topic, pending_rows, pending_bytes, \
             (SELECT min(sequence_id) FROM receipt_pending AS p WHERE p.topic = t.topic) \
         FROM receipt_topics AS t WHERE pending_rows > 0 AND kind BETWEEN ? AND ? \
         ORDER BY topic",
    )
    .bind(kind.map_or(0, TopicKind::byte))
    .bind(kind.map_or(u8::MAX, TopicKind::byte))
    .fetch_all(tx.conn())
    .await?;
    rows.iter()
        .map(|row| {
            let head = row.try_get::<Option<i64>, _>(3)?;
            let head = head.ok_or(ReceiptError::Damaged("a counted envelope isn't there"))?;
            Ok(PendingTopic {
                topic: Topic::from_bytes(row.try_get(0)?)?,
                rows: count(row.try_get(1)?)?,
                bytes: count(row.try_get(2)?)?,
                head: SequenceId::try_from(head)?,
            })
        })
        .collect()
}

fn envelope(row: &SqliteRow) -> Result<PendingEnvelope, ReceiptError> {
    Ok(PendingEnvelope {
        sequence_id: SequenceId::try_from(row.try_get::<i64, _>(0)?)?,
        server_ns: row.try_get(1)?,
        expiry_ns: row.try_get::<i64, _>(2)?.cast_unsigned(),
        hash: MessageHash::try_from(row.try_get::<&[u8], _>(3)?)?,
        is_commit_or_proposal: row.try_get(4)?,
        payload: Bytes::from(row.try_get::<Vec<u8>, _>(5)?),
    })
}
