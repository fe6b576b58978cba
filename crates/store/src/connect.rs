//! Opening one connection: the key before anything else.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Row as _};

use crate::{DatabaseKey, OpenError};

/// What every connection of a store is opened with.
#[derive(Clone)]
pub(crate) struct Connector {
    options: SqliteConnectOptions,
}

impl Connector {
    pub(crate) fn new(path: &Path, key: &DatabaseKey, busy_timeout: Duration) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(busy_timeout)
            .pragma("key", key.pragma().to_string())
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .pragma("temp_store", "memory")
            .disable_statement_logging();
        Self { options }
    }

    pub(crate) async fn connect(&self, create: bool) -> Result<SqliteConnection, sqlx::Error> {
        self.options.clone().create_if_missing(create).connect().await
    }
}

/// Refuses a build whose SQLite would take the key for an unknown pragma and write plain text.
pub(crate) async fn require_cipher() -> Result<(), OpenError> {
    use sqlx::Connection as _;
    let mut probe = SqliteConnection::connect("sqlite::memory:").await?;
    let version = sqlx::query("PRAGMA cipher_version").fetch_optional(&mut probe).await?;
    probe.close().await?;
    match version {
        Some(row) if !row.get::<String, _>(0).is_empty() => Ok(()),
        _ => Err(OpenError::NoCipher),
    }
}
