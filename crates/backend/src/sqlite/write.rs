//! The one write: publishes, inside the caller's `BEGIN IMMEDIATE`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{SystemTime, UNIX_EPOCH},
};

use highwater_wire::{Cursor, SequenceId, Topic};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::{corrupt, failed, read};
use crate::store::{Committed, EnvelopeKey, Identifier, NewEnvelope, StoreError, StoredMeta};

/// Rows of one INSERT: seven parameters each stay far below SQLite's ceiling.
const INSERT_ROWS: usize = 500;

/// Stores what isn't stored yet and answers for all requests, each by itself: one whose identity log
/// moved stores nothing. The file's write lock is held, so what is read here can't move and ids come
/// in commit order.
pub(super) async fn publish(
    conn: &mut SqliteConnection,
    requests: &[&[NewEnvelope]],
) -> Result<Vec<Committed>, StoreError> {
    let all = || requests.iter().copied().flatten();
    let keys: Vec<EnvelopeKey> = all().map(key).collect();
    let mut answers = read::stored(conn, &keys).await?;
    let checked: Vec<Topic> = all()
        .filter(|envelope| envelope.identity.is_some() && !answers.contains_key(&key(envelope)))
        .map(|envelope| envelope.topic)
        .collect();
    let heads = if checked.is_empty() { HashMap::new() } else { read::heads(conn, &checked).await? };
    let mut plan = Plan { heads, planned: HashSet::new(), fresh: Vec::new() };
    let moved: Vec<bool> = requests.iter().map(|request| !plan.add(request, &answers)).collect();
    if !plan.fresh.is_empty() {
        let metas = allocate(conn, &plan.fresh).await?;
        insert(conn, &plan.fresh, &metas).await?;
        raise_heads(conn, &metas).await?;
        record_identifiers(conn, &plan.fresh, &metas).await?;
        answers.extend(metas.into_iter().map(|meta| ((meta.topic, meta.hash), meta)));
    }
    requests
        .iter()
        .zip(moved)
        .map(|(request, moved)| if moved { Ok(Committed::HistoryMoved) } else { stored(request, &answers) })
        .collect()
}

fn key(envelope: &NewEnvelope) -> EnvelopeKey {
    (envelope.topic, envelope.hash)
}

fn stored(
    request: &[NewEnvelope],
    answers: &HashMap<EnvelopeKey, StoredMeta>,
) -> Result<Committed, StoreError> {
    request
        .iter()
        .map(|envelope| answers.get(&key(envelope)).cloned().ok_or_else(|| corrupt("publish", "no metadata")))
        .collect::<Result<_, _>>()
        .map(Committed::Stored)
}

/// What the transaction will insert.
struct Plan<'e> {
    /// Where the identity logs in question ended before the transaction.
    heads: HashMap<Topic, SequenceId>,
    planned: HashSet<EnvelopeKey>,
    fresh: Vec<&'e NewEnvelope>,
}

impl<'e> Plan<'e> {
    /// Adds what of a request is neither stored nor a repeat, in request order; or nothing, when an
    /// identity log no longer ends where it did when the update was checked against it.
    fn add(&mut self, request: &'e [NewEnvelope], stored: &HashMap<EnvelopeKey, StoredMeta>) -> bool {
        let mut seen = HashSet::new();
        let fresh: Vec<&NewEnvelope> = request
            .iter()
            .filter(|envelope| {
                let key = key(envelope);
                !stored.contains_key(&key) && !self.planned.contains(&key) && seen.insert(key)
            })
            .collect();
        if fresh.iter().any(|envelope| self.has_moved(envelope)) {
            return false;
        }
        self.planned.extend(seen);
        self.fresh.extend(fresh);
        true
    }

    fn has_moved(&self, envelope: &NewEnvelope) -> bool {
        let Some(change) = &envelope.identity else {
            return false;
        };
        let stored = self.heads.get(&envelope.topic).map_or(Cursor::ZERO, |head| Cursor::from(*head));
        stored != change.head || self.fresh.iter().any(|planned| planned.topic == envelope.topic)
    }
}

async fn allocate(
    conn: &mut SqliteConnection,
    fresh: &[&NewEnvelope],
) -> Result<Vec<StoredMeta>, StoreError> {
    let count = i64::try_from(fresh.len()).map_err(|error| corrupt("publish", error))?;
    let last: i64 = sqlx::query_scalar("UPDATE backend_sequence SET last = last + ? RETURNING last")
        .bind(count)
        .fetch_one(conn)
        .await
        .map_err(failed)?;
    let server_ns = now_ns()?;
    fresh
        .iter()
        .zip(last - count + 1..)
        .map(|(envelope, id)| {
            let retention = envelope.retention.map(|r| i64::try_from(r.as_nanos()));
            Ok(StoredMeta {
                topic: envelope.topic,
                sequence_id: SequenceId::try_from(id).map_err(|e| corrupt("sequence id", e))?,
                hash: envelope.hash,
                server_ns,
                expiry_ns: retention.map_or(0, |ns| server_ns.saturating_add(ns.unwrap_or(i64::MAX))),
                is_commit_or_proposal: envelope.is_commit_or_proposal,
            })
        })
        .collect()
}

async fn insert(
    conn: &mut SqliteConnection,
    fresh: &[&NewEnvelope],
    metas: &[StoredMeta],
) -> Result<(), StoreError> {
    for (envelopes, metas) in fresh.chunks(INSERT_ROWS).zip(metas.chunks(INSERT_ROWS)) {
        let mut query = QueryBuilder::<Sqlite>::new(
            "INSERT INTO backend_envelopes
             (sequence_id, topic, hash, server_ns, expiry_ns, is_commit_or_proposal, payload) ",
        );
        query.push_values(envelopes.iter().zip(metas), |mut row, (envelope, meta)| {
            row.push_bind(meta.sequence_id.as_i64())
                .push_bind(meta.topic.to_bytes())
                .push_bind(meta.hash.as_bytes().to_vec())
                .push_bind(meta.server_ns)
                .push_bind(meta.expiry_ns)
                .push_bind(meta.is_commit_or_proposal)
                .push_bind(envelope.payload.to_vec());
        });
        // Only short texts are worth a place in the statement cache.
        query.build().persistent(envelopes.len() <= 4).execute(&mut *conn).await.map_err(failed)?;
    }
    Ok(())
}

async fn raise_heads(conn: &mut SqliteConnection, metas: &[StoredMeta]) -> Result<(), StoreError> {
    // Ids rise, so the last one of a topic is its head.
    let heads: BTreeMap<Topic, SequenceId> =
        metas.iter().map(|meta| (meta.topic, meta.sequence_id)).collect();
    let heads: Vec<_> = heads.into_iter().collect();
    for chunk in heads.chunks(INSERT_ROWS) {
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO backend_heads (topic, sequence_id) ");
        query.push_values(chunk, |mut row, (topic, id)| {
            row.push_bind(topic.to_bytes()).push_bind(id.as_i64());
        });
        query.push(" ON CONFLICT (topic) DO UPDATE SET sequence_id = excluded.sequence_id");
        query.build().persistent(chunk.len() <= 4).execute(&mut *conn).await.map_err(failed)?;
    }
    Ok(())
}

async fn record_identifiers(
    conn: &mut SqliteConnection,
    fresh: &[&NewEnvelope],
    metas: &[StoredMeta],
) -> Result<(), StoreError> {
    for (envelope, meta) in fresh.iter().zip(metas) {
        let Some(change) = &envelope.identity else {
            continue;
        };
        for Identifier { kind, text } in &change.lost {
            sqlx::query(
                "DELETE FROM backend_identifiers
                 WHERE kind = ? AND identifier = ? AND inbox_id = ?",
            )
            .bind(*kind as i32)
            .bind(text)
            .bind(meta.topic.identifier())
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
        }
        for Identifier { kind, text } in &change.gained {
            sqlx::query(
                "INSERT OR REPLACE INTO backend_identifiers (kind, identifier, inbox_id, since)
                 VALUES (?, ?, ?, ?)",
            )
            .bind(*kind as i32)
            .bind(text)
            .bind(meta.topic.identifier())
            .bind(meta.sequence_id.as_i64())
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
        }
    }
    Ok(())
}

fn now_ns() -> Result<i64, StoreError> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok())
        .ok_or_else(|| StoreError::Unavailable("the clock is outside 1970 to 2262".to_owned()))
}
