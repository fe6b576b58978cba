//! The tables, and the steps that made them.

use sqlx::SqliteConnection;

use super::failed;
use crate::store::StoreError;

/// Step i brings a database from version i to version i+1. Steps never change once released.
const STEPS: &[&[&str]] = &[&[
    // The allocation counter is a row of its own: ids aren't given out again even if the envelopes
    // that had them are gone.
    "CREATE TABLE backend_sequence (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        last INTEGER NOT NULL CHECK (last >= 0)
    )",
    "INSERT INTO backend_sequence (one, last) VALUES (1, 0)",
    "CREATE TABLE backend_envelopes (
        sequence_id INTEGER PRIMARY KEY CHECK (sequence_id >= 1),
        topic BLOB NOT NULL,
        hash BLOB NOT NULL CHECK (length(hash) = 32),
        server_ns INTEGER NOT NULL CHECK (server_ns >= 0),
        expiry_ns INTEGER NOT NULL CHECK (expiry_ns >= 0),
        is_commit_or_proposal INTEGER NOT NULL,
        payload BLOB NOT NULL,
        UNIQUE (topic, hash)
    )",
    "CREATE INDEX backend_envelopes_in_order ON backend_envelopes (topic, sequence_id)",
    "CREATE TABLE backend_heads (
        topic BLOB PRIMARY KEY,
        sequence_id INTEGER NOT NULL
    ) WITHOUT ROWID",
    "CREATE TABLE backend_identifiers (
        kind INTEGER NOT NULL,
        identifier TEXT NOT NULL,
        inbox_id BLOB NOT NULL CHECK (length(inbox_id) = 32),
        since INTEGER NOT NULL,
        PRIMARY KEY (kind, identifier, inbox_id)
    ) WITHOUT ROWID",
]];

/// Brings the database to the version this server knows, inside the caller's transaction.
pub(super) async fn migrate(conn: &mut SqliteConnection) -> Result<(), StoreError> {
    sqlx::query("CREATE TABLE IF NOT EXISTS backend_schema (version INTEGER NOT NULL)")
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
        sqlx::query("INSERT INTO backend_schema (version) VALUES (?)")
            .bind(version)
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
    }
    Ok(())
}
