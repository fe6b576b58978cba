use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqliteConnection;

use crate::connect::{Conn, Connector, Patience, Role, has_cipher};
use crate::inspect::{self, Found};
use crate::schema::{self, Migrations};
use crate::{BUSY_TIMEOUT, Clock, DatabaseId, DatabaseKey, OpenError, SystemClock};

/// What a store is opened with.
pub struct OpenOptions {
    /// The file. SQLite puts its `-wal` and `-shm` files beside it.
    pub path: PathBuf,
    /// Its key.
    pub key: DatabaseKey,
    /// Every owner's tables, in the order in which they are made.
    pub migrations: Vec<Migrations>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether a database is made when there is none.
    pub create: bool,
    /// How long a transaction waits for another process.
    pub busy_timeout: Duration,
    /// The file system SQLite reaches the file through, by the name it is registered under; SQLite's own if `None`.
    pub vfs: Option<String>,
}

impl OpenOptions {
    /// Creates the file if need be, with the machine's clock and [`BUSY_TIMEOUT`].
    pub fn new(path: impl Into<PathBuf>, key: DatabaseKey, migrations: Vec<Migrations>) -> Self {
        Self {
            path: path.into(),
            key,
            migrations,
            clock: Arc::new(SystemClock),
            create: true,
            busy_timeout: BUSY_TIMEOUT,
            vfs: None,
        }
    }

    /// Takes the time from another clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether a database is made when there is none.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How long a transaction waits for another process.
    pub fn busy_timeout(mut self, wait: Duration) -> Self {
        self.busy_timeout = wait;
        self
    }

    /// Reaches the file through another file system than SQLite's own.
    pub fn vfs(mut self, name: impl Into<String>) -> Self {
        self.vfs = Some(name.into());
        self
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("path", &self.path)
            .field("create", &self.create)
            .field("busy_timeout", &self.busy_timeout)
            .field("vfs", &self.vfs)
            .finish_non_exhaustive()
    }
}

/// A file that has been found or made usable, and the connection that writes it.
pub(crate) struct Opened {
    pub(crate) connector: Connector,
    pub(crate) writer: Conn,
    pub(crate) id: DatabaseId,
}

pub(crate) async fn open(
    connector: Connector,
    migrations: Vec<Migrations>,
    create: bool,
) -> Result<Opened, OpenError> {
    if !has_cipher().await? {
        return Err(OpenError::NoCipher);
    }
    let known: Vec<Migrations> = std::iter::once(schema::STORE).chain(migrations).collect();
    let patience = Patience::new(connector.busy_timeout);
    loop {
        let found = inspect::inspect(&connector, &known).await?;
        if found == Found::Nothing && !create {
            return Err(OpenError::Missing);
        }
        match wal_writer(&connector).await {
            Ok(writer) => return finish(connector, writer, &known).await,
            // Another process is creating the file. A connection that was opened on the empty file is of no use once it
            // isn't empty: SQLCipher has chosen a salt for it, and the file has another.
            Err(error) if found == Found::Nothing => patience.again_if_new(error).await?,
            Err(error) => patience.again(error).await?,
        }
    }
}

/// A connection that writes, with the file in WAL mode.
async fn wal_writer(connector: &Connector) -> Result<Conn, sqlx::Error> {
    let mut writer = connector.connect(Role::Writer).await?;
    match sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *writer).await {
        Ok(_) => Ok(writer),
        Err(error) => {
            inspect::close(writer).await;
            Err(error)
        }
    }
}

async fn finish(connector: Connector, mut writer: Conn, known: &[Migrations]) -> Result<Opened, OpenError> {
    match prepare(&mut writer, known, connector.busy_timeout).await {
        Ok(id) => Ok(Opened { connector, writer, id }),
        Err(error) => {
            inspect::close(writer).await;
            Err(error)
        }
    }
}

/// All tables at their newest version. Others may do the same at the same moment.
async fn prepare(
    conn: &mut SqliteConnection,
    known: &[Migrations],
    wait: Duration,
) -> Result<DatabaseId, OpenError> {
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *conn).await?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NotADatabase("its file system has no shared memory"));
    }
    // Taken even when there is nothing to do: a file that can't be written says so here.
    begin_immediate(conn, wait).await?;
    let migrated = match schema::versions(conn).await? {
        Some(found) if schema::is_current(&found, known) => schema::check(&found, known),
        _ => schema::migrate(conn, known).await,
    };
    match migrated {
        Ok(()) => sqlx::query("COMMIT").execute(&mut *conn).await?,
        Err(error) => {
            // The connection is closed next, which rolls back in any case.
            let _ = sqlx::query("ROLLBACK").execute(&mut *conn).await;
            return Err(error);
        }
    };
    schema::database_id(conn).await
}

/// Takes the write lock, across all processes.
pub(crate) async fn begin_immediate(conn: &mut SqliteConnection, wait: Duration) -> Result<(), sqlx::Error> {
    let patience = Patience::new(wait);
    loop {
        match sqlx::query("BEGIN IMMEDIATE").execute(&mut *conn).await {
            Ok(_) => return Ok(()),
            Err(error) => patience.again(error).await?,
        }
    }
}
