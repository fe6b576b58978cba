//! Opening a store: every way it can go wrong is told apart, and leaves the files alone.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use crate::connect::{Connector, require_cipher};
use crate::migrations::{Migrations, migrate};
use crate::{BUSY_TIMEOUT, Clock, DatabaseId, DatabaseKey, OpenError, SystemClock};

/// How to open a store.
pub struct OpenOptions {
    /// The database file.
    pub path: PathBuf,
    /// Its key.
    pub key: DatabaseKey,
    /// The schemas of the crates that use it.
    pub migrations: Vec<Migrations>,
    /// Local time.
    pub clock: Arc<dyn Clock>,
    /// Whether a missing file is made. On by default.
    pub create: bool,
    /// How long to wait for other processes' locks.
    pub busy_timeout: Duration,
}

impl OpenOptions {
    /// Opens or makes `path`, with the system's clock and [`BUSY_TIMEOUT`].
    pub fn new(path: impl Into<PathBuf>, key: DatabaseKey, migrations: Vec<Migrations>) -> Self {
        Self {
            path: path.into(),
            key,
            migrations,
            clock: Arc::new(SystemClock),
            create: true,
            busy_timeout: BUSY_TIMEOUT,
        }
    }

    /// Takes local time from this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether a missing file is made.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
}

/// Opens the first connection, which becomes the writer, and brings the schema up to date.
pub(crate) async fn open_writer(
    options: &OpenOptions,
) -> Result<(Connector, SqliteConnection, DatabaseId), OpenError> {
    require_cipher().await?;
    inspect(&options.path, options.create)?;
    let connector = Connector::new(&options.path, &options.key, options.busy_timeout);
    let mut conn = first_connection(&connector, options).await?;
    match migrate(&mut conn, &options.migrations).await {
        Ok(id) => Ok((connector, conn, id)),
        Err(error) => {
            // The error that matters is the migration's.
            let _ = conn.close().await;
            Err(error)
        }
    }
}

/// Switching a new file to WAL needs an exclusive lock that SQLite doesn't wait for, so two processes that open a new
/// file at once would fail each other.
async fn first_connection(
    connector: &Connector,
    options: &OpenOptions,
) -> Result<SqliteConnection, OpenError> {
    let deadline = Instant::now() + options.busy_timeout;
    loop {
        match connector.connect(options.create).await.map_err(OpenError::from) {
            Err(OpenError::Busy) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            result => return result,
        }
    }
}

/// What can be told from the outside of the file.
fn inspect(path: &Path, create: bool) -> Result<(), OpenError> {
    const PLAIN_HEADER: &[u8; 16] = b"SQLite format 3\0";
    const PAGE: u64 = 4096;
    let io = |error: std::io::Error| OpenError::Database(sqlx::Error::Io(error));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && create => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::Missing(path.to_path_buf()));
        }
        Err(error) => return Err(io(error)),
    };
    if !metadata.is_file() {
        return Err(OpenError::NotADatabase);
    }
    if metadata.permissions().readonly() {
        return Err(OpenError::ReadOnly);
    }
    // An empty file is what a crash during creation leaves behind.
    if metadata.len() == 0 {
        return if create { Ok(()) } else { Err(OpenError::Missing(path.to_path_buf())) };
    }
    let mut header = [0; 16];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut header)).or_else(|error| {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Ok(()),
            _ => Err(io(error)),
        }
    })?;
    if &header == PLAIN_HEADER || !metadata.len().is_multiple_of(PAGE) {
        return Err(OpenError::NotADatabase);
    }
    Ok(())
}
