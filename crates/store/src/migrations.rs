//! Schema versions, one per owning crate.

use std::collections::BTreeMap;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor as _, Row as _};

use crate::{DatabaseId, OpenError};

/// The schema of one owning crate, as the steps that lead to it. Step `i` leads from version `i` to `i + 1`; a step that
/// was released never changes.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// The owning crate's folder name, which its tables' names start with.
    pub owner: &'static str,
    /// The steps, each one or more statements.
    pub steps: &'static [&'static str],
}

/// Brings the file to the newest schema in one transaction, and returns its identity.
pub(crate) async fn migrate(
    conn: &mut SqliteConnection,
    wanted: &[Migrations],
) -> Result<DatabaseId, OpenError> {
    conn.execute("BEGIN IMMEDIATE").await?;
    match apply(conn, wanted).await {
        Ok(id) => {
            conn.execute("COMMIT").await?;
            Ok(id)
        }
        Err(error) => {
            conn.execute("ROLLBACK").await?;
            Err(error)
        }
    }
}

async fn apply(
    conn: &mut SqliteConnection,
    wanted: &[Migrations],
) -> Result<DatabaseId, OpenError> {
    let fresh = sqlx::query("SELECT count(*) FROM sqlite_schema WHERE name = 'store_schema'")
        .fetch_one(&mut *conn)
        .await?
        .get::<i64, _>(0)
        == 0;
    if fresh {
        sqlx::raw_sql(
            "CREATE TABLE store_schema (owner TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT; \
             CREATE TABLE store_meta (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), database_id BLOB NOT NULL) STRICT",
        )
        .execute(&mut *conn)
        .await?;
        sqlx::query("INSERT INTO store_meta (only_row, database_id) VALUES (1, ?)")
            .bind(rand::random::<[u8; 16]>().to_vec())
            .execute(&mut *conn)
            .await?;
    }
    let found = sqlx::query("SELECT owner, version FROM store_schema").fetch_all(&mut *conn).await?;
    let found: BTreeMap<String, i64> =
        found.iter().map(|row| (row.get(0), row.get(1))).collect();
    for (owner, version) in &found {
        let known = wanted
            .iter()
            .find(|migrations| migrations.owner == owner)
            .map_or(0, |migrations| migrations.steps.len() as i64);
        if *version > known {
            return Err(OpenError::NewerSchema { owner: owner.clone(), found: *version, known });
        }
    }
    for migrations in wanted {
        let from = found.get(migrations.owner).copied().unwrap_or(0);
        let steps = migrations.steps.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        if from == migrations.steps.len() as i64 {
            continue;
        }
        for step in steps {
            sqlx::raw_sql(*step).execute(&mut *conn).await?;
        }
        sqlx::query(
            "INSERT INTO store_schema (owner, version) VALUES (?, ?) \
             ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
        )
        .bind(migrations.owner)
        .bind(migrations.steps.len() as i64)
        .execute(&mut *conn)
        .await?;
    }
    let id = sqlx::query("SELECT database_id FROM store_meta").fetch_one(&mut *conn).await?;
    let id = id.get::<&[u8], _>(0).try_into().map_err(|_| OpenError::NotADatabase)?;
    Ok(DatabaseId::from_bytes(id))
}
