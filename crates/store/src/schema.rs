//! Which tables the file has, by owner, and how they come there.

use std::collections::BTreeMap;

use sqlx::SqliteConnection;

use crate::{DatabaseId, OpenError};

/// An owner's tables, as steps. Each step is SQL that leads from one version to the next; step `i` leads to version
/// `i + 1`. Steps that were ever released are never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrations {
    /// The owner: its tables are called `<owner>_*`.
    pub owner: &'static str,
    /// The steps, oldest first.
    pub steps: &'static [&'static str],
}

impl Migrations {
    pub(crate) fn version(&self) -> u32 {
        u32::try_from(self.steps.len()).expect("an owner has fewer steps than 2^32")
    }
}

/// This crate's own tables.
pub(crate) const STORE: Migrations =
    Migrations { owner: "store", steps: &[include_str!("../migrations/1.sql")] };

/// The version of each owner's tables in the file. `None` for a file without any table.
pub(crate) async fn versions(
    conn: &mut SqliteConnection,
) -> Result<Option<BTreeMap<String, u32>>, OpenError> {
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .fetch_all(&mut *conn)
        .await?;
    if tables.is_empty() {
        return Ok(None);
    }
    if !tables.iter().any(|name| name == "store_schema") {
        return Err(OpenError::NotADatabase("its tables are somebody else's"));
    }
    let rows: Vec<(String, u32)> =
        sqlx::query_as("SELECT owner, version FROM store_schema").fetch_all(conn).await?;
    Ok(Some(rows.into_iter().collect()))
}

/// Refuses tables that this software is too old for: a newer version, or an owner it hasn't heard of.
pub(crate) fn check(found: &BTreeMap<String, u32>, known: &[Migrations]) -> Result<(), OpenError> {
    for (owner, &found) in found {
        let known = known.iter().find(|known| known.owner == owner).map_or(0, Migrations::version);
        if found > known {
            return Err(OpenError::NewerSchema { owner: owner.clone(), found, known });
        }
    }
    Ok(())
}

/// Whether every owner's tables have their newest version.
pub(crate) fn is_current(found: &BTreeMap<String, u32>, known: &[Migrations]) -> bool {
    known.iter().all(|known| found.get(known.owner) == Some(&known.version()))
}

/// Brings all tables to their newest version, inside the caller's write transaction.
pub(crate) async fn migrate(conn: &mut SqliteConnection, known: &[Migrations]) -> Result<(), OpenError> {
    let found = versions(conn).await?;
    let is_new = found.is_none();
    let found = found.unwrap_or_default();
    check(&found, known)?;
    for owner in known {
        let from = found.get(owner.owner).copied().unwrap_or_default();
        for step in &owner.steps[from as usize..] {
            sqlx::raw_sql(*step).execute(&mut *conn).await?;
        }
        sqlx::query(
            "INSERT INTO store_schema (owner, version) VALUES (?, ?) \
             ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
        )
        .bind(owner.owner)
        .bind(owner.version())
        .execute(&mut *conn)
        .await?;
    }
    if is_new {
        sqlx::query("INSERT INTO store_meta (id, database_id) VALUES (1, ?)")
            .bind(DatabaseId::random().as_bytes().as_slice())
            .execute(conn)
            .await?;
    }
    Ok(())
}

pub(crate) async fn database_id(conn: &mut SqliteConnection) -> Result<DatabaseId, OpenError> {
    let bytes: Vec<u8> = sqlx::query_scalar("SELECT database_id FROM store_meta").fetch_one(conn).await?;
    let bytes = bytes.try_into().map_err(|_| OpenError::NotADatabase("its identity is damaged"))?;
    Ok(DatabaseId::from_bytes(bytes))
}
