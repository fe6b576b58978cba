//! Reads, each one statement, so that no transaction is ever left open by a caller that went away.
//!
//! Rows never change and never go. So what one statement chose, a later one on the same server finds.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use highwater_identity::LogEntry;
use highwater_wire::{
    InboxId, MessageHash, SequenceId, Topic,
    proto::{associations::IdentifierKind, backend::client_envelope::Payload},
};
use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::{corrupt, failed};
use crate::{
    choice::Choice,
    store::{
        EnvelopeKey, Identifier, ReadBounds, ReadPage, StoreError, StoredEnvelope, StoredMeta, TopicRead,
    },
};

/// List entries of one statement.
const CHUNK: usize = 1_000;
/// Rows that one statement of an ordered read may find.
const CANDIDATES: usize = 16_384;

/// The whole identity log of each inbox, all in one snapshot.
pub(super) async fn histories(
    pool: &PgPool,
    inboxes: &[InboxId],
) -> Result<BTreeMap<InboxId, Vec<LogEntry>>, StoreError> {
    let mut histories: BTreeMap<InboxId, Vec<LogEntry>> =
        inboxes.iter().map(|inbox| (*inbox, Vec::new())).collect();
    let topics: HashMap<Topic, InboxId> =
        inboxes.iter().map(|inbox| (Topic::identity(*inbox), *inbox)).collect();
    let asked: Vec<Topic> = topics.keys().copied().collect();
    let rows = sqlx::query("SELECT * FROM backend_envelopes WHERE topic = ANY ($1) ORDER BY sequence_id")
        .bind(bytes_of(&asked))
        .fetch_all(pool)
        .await
        .map_err(failed)?;
    for row in &rows {
        let stored = envelope(row)?;
        let Some(Payload::IdentityUpdate(update)) = stored.client_envelope()?.payload else {
            return Err(corrupt("identity topic", "an envelope of another kind"));
        };
        let log = topics.get(&stored.meta.topic).and_then(|inbox| histories.get_mut(inbox));
        log.ok_or_else(|| corrupt("identity log", "a topic that was not asked for"))?
            .push(LogEntry { sequence_id: stored.meta.sequence_id, update });
    }
    Ok(histories)
}

/// The envelopes among `keys` that are stored.
pub(super) async fn stored(
    pool: &PgPool,
    keys: &[EnvelopeKey],
) -> Result<HashMap<EnvelopeKey, StoredMeta>, StoreError> {
    let mut found = HashMap::new();
    for chunk in keys.chunks(CHUNK) {
        let topics: Vec<Vec<u8>> = chunk.iter().map(|(topic, _)| topic.to_bytes()).collect();
        let hashes: Vec<Vec<u8>> = chunk.iter().map(|(_, hash)| hash.as_bytes().to_vec()).collect();
        let rows = sqlx::query(
            "SELECT e.sequence_id, e.topic, e.hash, e.server_ns, e.expiry_ns, e.is_commit_or_proposal
             FROM unnest($1, $2) AS asked (topic, hash)
             JOIN backend_envelopes AS e ON e.topic = asked.topic AND e.hash = asked.hash",
        )
        .bind(topics)
        .bind(hashes)
        .fetch_all(pool)
        .await
        .map_err(failed)?;
        for row in &rows {
            let meta = meta(row)?;
            found.insert((meta.topic, meta.hash), meta);
        }
    }
    Ok(found)
}

/// The greatest id of each topic that has one.
pub(super) async fn heads(pool: &PgPool, topics: &[Topic]) -> Result<HashMap<Topic, SequenceId>, StoreError> {
    let mut heads = HashMap::new();
    for chunk in topics.chunks(CHUNK) {
        let rows = sqlx::query(
            "SELECT topic, sequence_id FROM backend_heads WHERE topic = ANY ($1) AND sequence_id > 0",
        )
        .bind(bytes_of(chunk))
        .fetch_all(pool)
        .await
        .map_err(failed)?;
        for row in &rows {
            heads.insert(topic(row)?, sequence_id(row)?);
        }
    }
    Ok(heads)
}

/// Reads on from the given places. Ids and sizes are chosen first, so that no payload is loaded that a
/// bound then throws away.
pub(super) async fn after(
    pool: &PgPool,
    reads: &[TopicRead],
    bounds: ReadBounds,
) -> Result<ReadPage, StoreError> {
    let mut chosen = Choice::new(reads.len(), bounds);
    let per_statement = (CANDIDATES / bounds.rows_per_topic.max(1)).max(1);
    for (number, chunk) in reads.chunks(per_statement).enumerate() {
        for (index, id, bytes) in candidates(pool, chunk, &chosen).await? {
            chosen.offer(number * per_statement + index, id, bytes);
        }
        if chosen.is_cut() {
            break;
        }
    }
    let envelopes = by_ids(pool, &chosen.ids()).await?;
    chosen.page(envelopes)
}

/// The next rows of some topics as (index of the read, id, payload bytes), one more of each topic than
/// a page may have, so that "has more" is known from the same snapshot.
async fn candidates(
    pool: &PgPool,
    reads: &[TopicRead],
    chosen: &Choice,
) -> Result<Vec<(usize, SequenceId, usize)>, StoreError> {
    let topics: Vec<Vec<u8>> = reads.iter().map(|read| read.topic.to_bytes()).collect();
    let after: Vec<i64> = reads.iter().map(|read| read.after.as_i64()).collect();
    let rows = sqlx::query(
        "SELECT asked.place, e.sequence_id, e.bytes
         FROM unnest($1, $2) WITH ORDINALITY AS asked (topic, after, place)
         CROSS JOIN LATERAL (
            SELECT sequence_id, octet_length(payload)::bigint AS bytes FROM backend_envelopes
            WHERE topic = asked.topic AND sequence_id > asked.after ORDER BY sequence_id LIMIT $3
         ) AS e
         ORDER BY asked.place, e.sequence_id LIMIT $4",
    )
    .bind(topics)
    .bind(after)
    .bind(as_i64(chosen.bounds.rows_per_topic.saturating_add(1)))
    .bind(as_i64(chosen.rows_wanted(reads.len())))
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    rows.iter()
        .map(|row| {
            let place: i64 = row.try_get("place").map_err(failed)?;
            let place = usize::try_from(place - 1).map_err(|error| corrupt("place", error))?;
            Ok((place, sequence_id(row)?, payload_bytes(row)?))
        })
        .collect()
}

/// The given envelopes, in no particular order.
pub(super) async fn by_ids(pool: &PgPool, ids: &[SequenceId]) -> Result<Vec<StoredEnvelope>, StoreError> {
    let mut envelopes = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(CHUNK) {
        let ids: Vec<i64> = chunk.iter().map(|id| id.as_i64()).collect();
        let rows = sqlx::query("SELECT * FROM backend_envelopes WHERE sequence_id = ANY ($1)")
            .bind(ids)
            .fetch_all(pool)
            .await
            .map_err(failed)?;
        for row in &rows {
            envelopes.push(envelope(row)?);
        }
    }
    Ok(envelopes)
}

/// What is known of the newest envelope of each topic that has one.
pub(super) async fn newest(pool: &PgPool, topics: &[Topic]) -> Result<Vec<StoredMeta>, StoreError> {
    let mut newest = Vec::new();
    for chunk in topics.chunks(CHUNK) {
        let rows = sqlx::query(
            "SELECT e.sequence_id, e.topic, e.hash, e.server_ns, e.expiry_ns, e.is_commit_or_proposal
             FROM backend_heads AS h JOIN backend_envelopes AS e ON e.sequence_id = h.sequence_id
             WHERE h.topic = ANY ($1)",
        )
        .bind(bytes_of(chunk))
        .fetch_all(pool)
        .await
        .map_err(failed)?;
        for row in &rows {
            newest.push(meta(row)?);
        }
    }
    Ok(newest)
}

/// The inbox of each identifier; of several, the one that gained it last.
pub(super) async fn inbox_ids(
    pool: &PgPool,
    identifiers: &[Identifier],
) -> Result<HashMap<Identifier, InboxId>, StoreError> {
    // A text with a zero byte is no stored one, and PostgreSQL knows no such text.
    let asked: Vec<&Identifier> =
        identifiers.iter().filter(|identifier| !identifier.text.contains('\0')).collect();
    let kinds: Vec<i32> = asked.iter().map(|identifier| identifier.kind as i32).collect();
    let texts: Vec<String> = asked.iter().map(|identifier| identifier.text.clone()).collect();
    let rows = sqlx::query(
        "SELECT i.kind, i.identifier, i.inbox_id FROM unnest($1, $2) AS asked (kind, identifier)
         JOIN backend_identifiers AS i ON i.kind = asked.kind AND i.identifier = asked.identifier
         ORDER BY i.since",
    )
    .bind(kinds)
    .bind(texts)
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    let mut inboxes = HashMap::new();
    for row in rows {
        let kind: i32 = row.try_get(0).map_err(failed)?;
        let kind = IdentifierKind::try_from(kind).map_err(|error| corrupt("identifier kind", error))?;
        let text = row.try_get(1).map_err(failed)?;
        let inbox: &[u8] = row.try_get(2).map_err(failed)?;
        let inbox = InboxId::try_from(inbox).map_err(|error| corrupt("inbox id", error))?;
        inboxes.insert(Identifier { kind, text }, inbox);
    }
    Ok(inboxes)
}

pub(super) fn topic(row: &PgRow) -> Result<Topic, StoreError> {
    let bytes: &[u8] = row.try_get("topic").map_err(failed)?;
    Topic::from_bytes(bytes).map_err(|error| corrupt("topic", error))
}

pub(super) fn sequence_id(row: &PgRow) -> Result<SequenceId, StoreError> {
    let id: i64 = row.try_get("sequence_id").map_err(failed)?;
    SequenceId::try_from(id).map_err(|error| corrupt("sequence id", error))
}

pub(super) fn payload_bytes(row: &PgRow) -> Result<usize, StoreError> {
    let bytes: i64 = row.try_get("bytes").map_err(failed)?;
    usize::try_from(bytes).map_err(|error| corrupt("payload length", error))
}

fn meta(row: &PgRow) -> Result<StoredMeta, StoreError> {
    let hash: &[u8] = row.try_get("hash").map_err(failed)?;
    Ok(StoredMeta {
        topic: topic(row)?,
        sequence_id: sequence_id(row)?,
        hash: MessageHash::try_from(hash).map_err(|error| corrupt("hash", error))?,
        server_ns: row.try_get("server_ns").map_err(failed)?,
        expiry_ns: row.try_get("expiry_ns").map_err(failed)?,
        is_commit_or_proposal: row.try_get("is_commit_or_proposal").map_err(failed)?,
    })
}

fn envelope(row: &PgRow) -> Result<StoredEnvelope, StoreError> {
    let payload: Vec<u8> = row.try_get("payload").map_err(failed)?;
    Ok(StoredEnvelope { meta: meta(row)?, payload: Bytes::from(payload) })
}

fn bytes_of(topics: &[Topic]) -> Vec<Vec<u8>> {
    topics.iter().map(|topic| topic.to_bytes()).collect()
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
