//! The tables, the one function that writes them, and the steps that made both.

use std::time::{Duration, Instant};

use sqlx::{PgConnection, PgPool};

use super::failed;
use crate::store::StoreError;

/// Instances that start together take turns at it.
const MIGRATION_LOCK: i64 = 0x6869_6768_7761;

/// How far a standby may be behind at the start.
const REPLAY: Duration = Duration::from_secs(60);

/// Step i brings a database from version i to version i+1. Steps never change once released.
const STEPS: &[&[&str]] = &[&[
    // No cache: ids are given out in the order in which publishes ask for them.
    "CREATE SEQUENCE backend_ids AS bigint MINVALUE 1 CACHE 1 NO CYCLE",
    "CREATE TABLE backend_envelopes (
        sequence_id bigint PRIMARY KEY CHECK (sequence_id >= 1),
        topic bytea NOT NULL,
        hash bytea NOT NULL CHECK (octet_length(hash) = 32),
        server_ns bigint NOT NULL CHECK (server_ns >= 0),
        expiry_ns bigint NOT NULL CHECK (expiry_ns >= 0),
        is_commit_or_proposal boolean NOT NULL,
        payload bytea NOT NULL,
        UNIQUE (topic, hash)
    )",
    "CREATE INDEX backend_envelopes_in_order ON backend_envelopes (topic, sequence_id)",
    // 0 while the topic's first publish is under way.
    "CREATE TABLE backend_heads (
        topic bytea PRIMARY KEY,
        sequence_id bigint NOT NULL CHECK (sequence_id >= 0)
    ) WITH (fillfactor = 50)",
    "CREATE TABLE backend_identifiers (
        kind integer NOT NULL,
        identifier text NOT NULL,
        inbox_id bytea NOT NULL CHECK (octet_length(inbox_id) = 32),
        since bigint NOT NULL,
        PRIMARY KEY (kind, identifier, inbox_id)
    )",
    // Every publish that could hold an id at or below it has ended.
    "CREATE TABLE backend_boundary (
        one boolean PRIMARY KEY CHECK (one),
        closed bigint NOT NULL CHECK (closed >= 0)
    )",
    "INSERT INTO backend_boundary (one, closed) VALUES (true, 0)",
    // What publishes with identity updates lock before any topic.
    "CREATE TABLE backend_identity_lock (one boolean PRIMARY KEY CHECK (one))",
    "INSERT INTO backend_identity_lock (one) VALUES (true)",
    // Tells a standby of this database from any other.
    "CREATE TABLE backend_database (id uuid NOT NULL)",
    "INSERT INTO backend_database (id) VALUES (gen_random_uuid())",
    FRESH,
    PUBLISH,
]];

/// A publish is one call of this function, which is one statement: the database's statement timeout
/// bounds it whole, lock waits included, and no client can leave its transaction open.
///
/// Each statement inside takes a new snapshot. Locks come in one global order: that for identity
/// updates, then heads by topic. Making or locking a head also gives the transaction its id, before it
/// takes a sequence id; the allocation boundary rests on that.
const PUBLISH: &str = "
CREATE FUNCTION backend_publish(
    topics bytea[], hashes bytea[], payloads bytea[], retentions bigint[], commits boolean[],
    expected_heads bigint[],
    gained_at bigint[], gained_kinds integer[], gained_texts text[],
    lost_at bigint[], lost_kinds integer[], lost_texts text[]
) RETURNS TABLE (
    at bigint, stored_id bigint, stored_ns bigint, stored_expiry bigint, stored_commit boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    fresh bigint[];
    now_ns bigint;
BEGIN
    fresh := backend_fresh(topics, hashes);
    IF cardinality(fresh) > 0 THEN
        IF EXISTS (SELECT FROM unnest(expected_heads) AS e WHERE e IS NOT NULL) THEN
            PERFORM FROM backend_identity_lock FOR UPDATE;
        END IF;
        INSERT INTO backend_heads (topic, sequence_id)
            SELECT DISTINCT t, 0 FROM unnest(topics) AS t ORDER BY t
            ON CONFLICT (topic) DO NOTHING;
        PERFORM FROM backend_heads AS h WHERE h.topic = ANY (topics) ORDER BY h.topic FOR UPDATE;
        -- What publishes that held the locks before stored.
        fresh := backend_fresh(topics, hashes);
    END IF;
    IF cardinality(fresh) > 0 THEN
        IF EXISTS (
            SELECT FROM unnest(topics, expected_heads) WITH ORDINALITY AS asked (topic, head, i)
            JOIN backend_heads AS h ON h.topic = asked.topic
            WHERE asked.i = ANY (fresh) AND asked.head <> h.sequence_id
        ) THEN
            RAISE EXCEPTION 'an identity log grew' USING ERRCODE = 'HW001';
        END IF;
        now_ns := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000;
        WITH added AS (
            INSERT INTO backend_envelopes
                (sequence_id, topic, hash, server_ns, expiry_ns, is_commit_or_proposal, payload)
            SELECT nextval('backend_ids'), o.topic, o.hash, now_ns,
                   CASE WHEN o.retention IS NULL THEN 0
                        ELSE least(now_ns::numeric + o.retention, 9223372036854775807)::bigint END,
                   o.is_commit, o.payload
            FROM (
                SELECT * FROM unnest(topics, hashes, payloads, retentions, commits) WITH ORDINALITY
                    AS asked (topic, hash, payload, retention, is_commit, i)
                WHERE asked.i = ANY (fresh) ORDER BY asked.i
            ) AS o
            RETURNING sequence_id, topic
        ), last AS (
            SELECT a.topic, max(a.sequence_id) AS head FROM added AS a GROUP BY a.topic
        )
        UPDATE backend_heads AS h SET sequence_id = last.head FROM last WHERE h.topic = last.topic;
        DELETE FROM backend_identifiers AS i
            USING unnest(lost_at, lost_kinds, lost_texts) AS lost (i, kind, identifier)
            WHERE lost.i = ANY (fresh) AND i.kind = lost.kind AND i.identifier = lost.identifier
              AND i.inbox_id = substr(topics[lost.i], 2);
        INSERT INTO backend_identifiers (kind, identifier, inbox_id, since)
            SELECT gained.kind, gained.identifier, substr(h.topic, 2), h.sequence_id
            FROM unnest(gained_at, gained_kinds, gained_texts) AS gained (i, kind, identifier)
            JOIN backend_heads AS h ON h.topic = topics[gained.i]
            WHERE gained.i = ANY (fresh)
            ON CONFLICT (kind, identifier, inbox_id) DO UPDATE SET since = excluded.since;
    END IF;
    RETURN QUERY
        SELECT asked.i, e.sequence_id, e.server_ns, e.expiry_ns, e.is_commit_or_proposal
        FROM unnest(topics, hashes) WITH ORDINALITY AS asked (topic, hash, i)
        JOIN backend_envelopes AS e ON e.topic = asked.topic AND e.hash = asked.hash
        ORDER BY asked.i;
END $$";

/// The places of envelopes that are neither stored nor a repeat of an earlier one.
const FRESH: &str = "
CREATE FUNCTION backend_fresh(topics bytea[], hashes bytea[]) RETURNS bigint[]
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(array_agg(place ORDER BY place), '{}') FROM (
        SELECT min(asked.i) AS place
        FROM unnest(topics, hashes) WITH ORDINALITY AS asked (topic, hash, i)
        WHERE NOT EXISTS (
            SELECT FROM backend_envelopes AS e WHERE e.topic = asked.topic AND e.hash = asked.hash
        )
        GROUP BY asked.topic, asked.hash
    ) AS places
$$";

/// Brings the database to the version this server knows.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let mut tx = pool.begin().await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    step(&mut tx).await?;
    tx.commit().await.map_err(failed)
}

/// Waits until a standby shows the schema, which may have been made a moment ago.
pub(super) async fn replayed(standby: &PgPool, poll: Duration) -> Result<(), StoreError> {
    let deadline = Instant::now() + REPLAY;
    loop {
        let shown: bool = sqlx::query_scalar("SELECT to_regclass('backend_schema') IS NOT NULL")
            .fetch_one(standby)
            .await
            .map_err(failed)?;
        let version: i64 = match shown {
            true => sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM backend_schema")
                .fetch_one(standby)
                .await
                .map_err(failed)?,
            false => 0,
        };
        if usize::try_from(version).is_ok_and(|version| version >= STEPS.len()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(StoreError::Unavailable("the replica doesn't show the schema".to_owned()));
        }
        tokio::time::sleep(poll).await;
    }
}

/// Makes sure that what was named as a standby is one, and of this database.
pub(super) async fn is_standby_of(standby: &PgPool, primary: &PgPool) -> Result<(), StoreError> {
    const STATE: &str = "SELECT id::text, pg_is_in_recovery() FROM backend_database";
    let (there, follows): (String, bool) = sqlx::query_as(STATE).fetch_one(standby).await.map_err(failed)?;
    let (here, _): (String, bool) = sqlx::query_as(STATE).fetch_one(primary).await.map_err(failed)?;
    match follows && there == here {
        true => Ok(()),
        false => Err(StoreError::Unavailable("the replica is no standby of the database".to_owned())),
    }
}

async fn step(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("CREATE TABLE IF NOT EXISTS backend_schema (version bigint NOT NULL)")
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    let found: i64 = sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM backend_schema")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed)?;
    let done = usize::try_from(found).ok().filter(|done| *done <= STEPS.len()).ok_or_else(|| {
        StoreError::Corrupt(format!(
            "the database has schema version {found}; this server knows {} and older",
            STEPS.len()
        ))
    })?;
    for (version, step) in (1_i64..).zip(STEPS).skip(done) {
        for statement in *step {
            sqlx::query(*statement).execute(&mut *conn).await.map_err(failed)?;
        }
        sqlx::query("INSERT INTO backend_schema (version) VALUES ($1)")
            .bind(version)
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
    }
    Ok(())
}
