//! Reads. Lists of topics and ids go in as one JSON parameter, so that every statement has one text
//! and is prepared once, however long the list.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use bytes::Bytes;
use highwater_identity::LogEntry;
use highwater_wire::{
    InboxId, MessageHash, SequenceId, Topic,
    proto::{associations::IdentifierKind, backend::client_envelope::Payload},
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{corrupt, failed};
use crate::{
    choice::Choice,
    store::{
        Arrival, EnvelopeKey, Identifier, ReadBounds, ReadPage, StoreError, StoredEnvelope, StoredMeta,
        TopicRead,
    },
};

/// List entries of one statement.
const CHUNK: usize = 1_000;
/// Index entries that one statement of an ordered read may visit.
const CANDIDATES: usize = 16_384;

/// The envelopes among `keys` that are stored.
pub(super) async fn stored(
    conn: &mut SqliteConnection,
    keys: &[EnvelopeKey],
) -> Result<HashMap<EnvelopeKey, StoredMeta>, StoreError> {
    let mut found = HashMap::new();
    for chunk in keys.chunks(CHUNK) {
        let wanted = json_list(chunk, |json, (topic, hash)| {
            write!(json, "[\"{}\",\"{}\"]", topic.to_hex(), hash.to_hex())
        });
        let rows = sqlx::query(
            "SELECT e.sequence_id, e.topic, e.hash, e.server_ns, e.expiry_ns,
                    e.is_commit_or_proposal
             FROM json_each(?1) AS r
             CROSS JOIN backend_envelopes AS e
                ON e.topic = unhex(r.value ->> 0) AND e.hash = unhex(r.value ->> 1)",
        )
        .bind(wanted)
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
        for row in rows {
            let meta = meta(&row)?;
            found.insert((meta.topic, meta.hash), meta);
        }
    }
    Ok(found)
}

/// The whole identity log of each inbox.
pub(super) async fn histories(
    conn: &mut SqliteConnection,
    inboxes: &[InboxId],
) -> Result<BTreeMap<InboxId, Vec<LogEntry>>, StoreError> {
    let mut histories = BTreeMap::new();
    for inbox in inboxes {
        let rows = sqlx::query(
            "SELECT sequence_id, topic, hash, server_ns, expiry_ns, is_commit_or_proposal, payload
             FROM backend_envelopes WHERE topic = ? ORDER BY sequence_id",
        )
        .bind(Topic::identity(*inbox).to_bytes())
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
        let log = rows.iter().map(log_entry).collect::<Result<_, _>>()?;
        histories.insert(*inbox, log);
    }
    Ok(histories)
}

fn log_entry(row: &SqliteRow) -> Result<LogEntry, StoreError> {
    let stored = envelope(row)?;
    match stored.client_envelope()?.payload {
        Some(Payload::IdentityUpdate(update)) => {
            Ok(LogEntry { sequence_id: stored.meta.sequence_id, update })
        }
        _ => Err(corrupt("identity topic", "an envelope of another kind")),
    }
}

/// The greatest id of each topic that has one.
pub(super) async fn heads(
    conn: &mut SqliteConnection,
    topics: &[Topic],
) -> Result<HashMap<Topic, SequenceId>, StoreError> {
    let mut heads = HashMap::new();
    for chunk in topics.chunks(CHUNK) {
        let rows = sqlx::query(
            "SELECT h.topic, h.sequence_id FROM json_each(?1) AS r
             CROSS JOIN backend_heads AS h ON h.topic = unhex(r.value)",
        )
        .bind(topic_list(chunk))
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
        for row in rows {
            heads.insert(topic(&row)?, sequence_id(&row)?);
        }
    }
    Ok(heads)
}

/// Reads on from the given places. Ids and sizes are chosen first, so that no payload is loaded that
/// a bound then throws away.
pub(super) async fn after(
    conn: &mut SqliteConnection,
    reads: &[TopicRead],
    bounds: ReadBounds,
) -> Result<ReadPage, StoreError> {
    let topics: Vec<Topic> = reads.iter().map(|read| read.topic).collect();
    let heads = heads(conn, &topics).await?;
    let behind: Vec<usize> = (0..reads.len())
        .filter(|i| heads.get(&reads[*i].topic).is_some_and(|head| !reads[*i].after.covers(*head)))
        .collect();

    let mut chosen = Choice::new(reads.len(), bounds);
    for chunk in behind.chunks((CANDIDATES / bounds.rows_per_topic.max(1)).max(1)) {
        for (index, id, bytes) in candidates(conn, reads, chunk, &chosen).await? {
            chosen.offer(index, id, bytes);
        }
        if chosen.is_cut() {
            break;
        }
    }

    let envelopes = by_ids(conn, &chosen.ids()).await?;
    chosen.page(envelopes)
}

/// The next rows of some topics as (index of the read, id, payload bytes), one more of each topic
/// than a page may have, so that "has more" is known from the same snapshot.
async fn candidates(
    conn: &mut SqliteConnection,
    reads: &[TopicRead],
    chunk: &[usize],
    chosen: &Choice,
) -> Result<Vec<(usize, SequenceId, usize)>, StoreError> {
    let wanted = json_list(chunk, |json, index| {
        let read = &reads[*index];
        write!(json, "[\"{}\",{},{index}]", read.topic.to_hex(), read.after)
    });
    let limit = chosen.rows_wanted(chunk.len());
    let rows = sqlx::query(
        "WITH asked AS MATERIALIZED (
            SELECT unhex(value ->> 0) AS topic, value ->> 1 AS after, value ->> 2 AS position
            FROM json_each(?1)
         ), wanted AS MATERIALIZED (
            SELECT topic, after, position, coalesce(
                (SELECT n.sequence_id FROM backend_envelopes AS n
                 WHERE n.topic = asked.topic AND n.sequence_id > asked.after
                 ORDER BY n.sequence_id LIMIT 1 OFFSET ?2),
                9223372036854775807) AS through
            FROM asked
         )
         SELECT w.position, e.sequence_id, length(e.payload) AS bytes
         FROM wanted AS w
         CROSS JOIN backend_envelopes AS e INDEXED BY backend_envelopes_in_order
            ON e.topic = w.topic AND e.sequence_id > w.after AND e.sequence_id <= w.through
         ORDER BY w.position, e.sequence_id
         LIMIT ?3",
    )
    .bind(wanted)
    .bind(as_i64(chosen.bounds.rows_per_topic))
    .bind(as_i64(limit))
    .fetch_all(&mut *conn)
    .await
    .map_err(failed)?;
    rows.iter()
        .map(|row| {
            let position: i64 = row.try_get(0).map_err(failed)?;
            let position = usize::try_from(position).map_err(|error| corrupt("position", error))?;
            Ok((position, sequence_id(row)?, payload_bytes(row)?))
        })
        .collect()
}

/// The given envelopes, in no particular order.
pub(super) async fn by_ids(
    conn: &mut SqliteConnection,
    ids: &[SequenceId],
) -> Result<Vec<StoredEnvelope>, StoreError> {
    let mut envelopes = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(CHUNK) {
        let rows = sqlx::query(
            "SELECT e.sequence_id, e.topic, e.hash, e.server_ns, e.expiry_ns,
                    e.is_commit_or_proposal, e.payload
             FROM json_each(?1) AS r CROSS JOIN backend_envelopes AS e ON e.sequence_id = r.value",
        )
        .bind(json_list(chunk, |json, id| write!(json, "{id}")))
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
        for row in &rows {
            envelopes.push(envelope(row)?);
        }
    }
    Ok(envelopes)
}

/// What is known of the newest envelope of each topic that has one.
pub(super) async fn newest(
    conn: &mut SqliteConnection,
    topics: &[Topic],
) -> Result<Vec<StoredMeta>, StoreError> {
    let mut newest = Vec::with_capacity(topics.len());
    for chunk in topics.chunks(CHUNK) {
        let rows = sqlx::query(
            "SELECT e.sequence_id, e.topic, e.hash, e.server_ns, e.expiry_ns, e.is_commit_or_proposal
             FROM json_each(?1) AS r
             CROSS JOIN backend_heads AS h ON h.topic = unhex(r.value)
             CROSS JOIN backend_envelopes AS e ON e.sequence_id = h.sequence_id",
        )
        .bind(topic_list(chunk))
        .fetch_all(&mut *conn)
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
    conn: &mut SqliteConnection,
    identifiers: &[Identifier],
) -> Result<HashMap<Identifier, InboxId>, StoreError> {
    let mut inboxes = HashMap::new();
    for chunk in identifiers.chunks(CHUNK) {
        // Hex keeps arbitrary text out of the JSON.
        let wanted = json_list(chunk, |json, identifier| {
            write!(json, "[{},\"{}\"]", identifier.kind as i32, hex::encode(&identifier.text))
        });
        let rows = sqlx::query(
            "SELECT i.kind, i.identifier, i.inbox_id FROM json_each(?1) AS r
             CROSS JOIN backend_identifiers AS i
                ON i.kind = r.value ->> 0 AND i.identifier = CAST(unhex(r.value ->> 1) AS TEXT)
             ORDER BY i.since",
        )
        .bind(wanted)
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
        for row in rows {
            let kind: i32 = row.try_get(0).map_err(failed)?;
            let kind = IdentifierKind::try_from(kind).map_err(|e| corrupt("identifier kind", e))?;
            let text = row.try_get(1).map_err(failed)?;
            let inbox: &[u8] = row.try_get(2).map_err(failed)?;
            let inbox = InboxId::try_from(inbox).map_err(|e| corrupt("inbox id", e))?;
            inboxes.insert(Identifier { kind, text }, inbox);
        }
    }
    Ok(inboxes)
}

/// The last id allocated by a committed publish, 0 for none.
pub(super) async fn last_id(conn: &mut SqliteConnection) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT last FROM backend_sequence").fetch_one(conn).await.map_err(failed)
}

/// What became visible above `last`, ascending over all topics.
pub(super) async fn arrivals(
    conn: &mut SqliteConnection,
    last: i64,
    limit: i64,
) -> Result<Vec<Arrival>, StoreError> {
    let rows = sqlx::query(
        "SELECT sequence_id, topic, length(payload) AS bytes FROM backend_envelopes
         WHERE sequence_id > ? ORDER BY sequence_id LIMIT ?",
    )
    .bind(last)
    .bind(limit)
    .fetch_all(conn)
    .await
    .map_err(failed)?;
    rows.iter()
        .map(|row| {
            Ok(Arrival { topic: topic(row)?, sequence_id: sequence_id(row)?, bytes: payload_bytes(row)? })
        })
        .collect()
}

fn topic(row: &SqliteRow) -> Result<Topic, StoreError> {
    let bytes: &[u8] = row.try_get("topic").map_err(failed)?;
    Topic::from_bytes(bytes).map_err(|error| corrupt("topic", error))
}

fn sequence_id(row: &SqliteRow) -> Result<SequenceId, StoreError> {
    let id: i64 = row.try_get("sequence_id").map_err(failed)?;
    SequenceId::try_from(id).map_err(|error| corrupt("sequence id", error))
}

fn payload_bytes(row: &SqliteRow) -> Result<usize, StoreError> {
    let bytes: i64 = row.try_get("bytes").map_err(failed)?;
    usize::try_from(bytes).map_err(|error| corrupt("payload length", error))
}

fn meta(row: &SqliteRow) -> Result<StoredMeta, StoreError> {
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

fn envelope(row: &SqliteRow) -> Result<StoredEnvelope, StoreError> {
    let payload: Vec<u8> = row.try_get("payload").map_err(failed)?;
    Ok(StoredEnvelope { meta: meta(row)?, payload: Bytes::from(payload) })
}

fn topic_list(topics: &[Topic]) -> String {
    json_list(topics, |json, topic| write!(json, "\"{}\"", topic.to_hex()))
}

/// A JSON array whose elements `element` writes.
fn json_list<T>(items: &[T], element: impl Fn(&mut String, &T) -> std::fmt::Result) -> String {
    let mut json = String::from("[");
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            json.push(',');
        }
        element(&mut json, item).expect("writing to a String doesn't fail");
    }
    json.push(']');
    json
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
