//! The store for one instance: a SQLite file.
//!
//! Writers take the file's one write lock with `BEGIN IMMEDIATE` before they allocate an id, so ids
//! are allocated in commit order over all topics, and whatever a snapshot shows is everything at or
//! below its greatest id: the closed allocation boundary needs no bookkeeping here.

mod committer;
mod read;
mod schema;
mod write;

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use highwater_wire::{InboxId, SequenceId, Topic};
use sqlx::{
    Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};

use self::committer::Committer;
use crate::store::{
    AdmissionView, Arrival, Committed, EnvelopeKey, EnvelopeStore, Identifier, NewEnvelope, PoolUse,
    ReadBounds, ReadPage, Source, StoreError, StoredEnvelope, StoredMeta, Tail, TopicRead,
};

/// Connections for reads. SQLite's readers don't block each other; each costs a thread.
const READERS: u32 = 4;
/// Arrivals of one tail step.
const TAIL_BATCH: i64 = 1_000;

/// An [`EnvelopeStore`] in one SQLite file (WAL, synchronous=FULL).
#[derive(Debug, Clone)]
pub struct SqliteStore {
    writer: SqlitePool,
    committer: Committer,
    /// Until somebody closes the store.
    committing: Arc<Mutex<Option<JoinHandle<()>>>>,
    readers: SqlitePool,
    visible: watch::Sender<u64>,
    statement_timeout: Duration,
}

impl SqliteStore {
    /// Opens the file, making it and its tables when they are missing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the file can't be opened or written,
    /// [`StoreError::Corrupt`] when it isn't a database or has a newer schema than this server knows.
    pub async fn open(path: &Path, statement_timeout: Duration) -> Result<Self, StoreError> {
        make_private(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(statement_timeout)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(60))
            .connect_with(options.clone())
            .await
            .map_err(failed)?;
        let mut tx = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        schema::migrate(&mut tx).await?;
        tx.commit().await.map_err(failed)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(statement_timeout)
            .connect_with(options)
            .await
            .map_err(failed)?;
        let visible = watch::Sender::new(0);
        let (committer, task) = Committer::start(writer.clone(), statement_timeout, visible.clone());
        let committing = Arc::new(Mutex::new(Some(task)));
        Ok(Self { writer, committer, committing, readers, visible, statement_timeout })
    }

    /// Runs `work` within the statement timeout; a dropped transaction rolls back.
    async fn timed<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        tokio::time::timeout(self.statement_timeout, work)
            .await
            .unwrap_or(Err(StoreError::TimedOut(self.statement_timeout)))
    }

    async fn snapshot(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.readers.begin().await.map_err(failed)
    }
}

#[tonic::async_trait]
impl EnvelopeStore for SqliteStore {
    async fn admission_view(
        &self,
        keys: &[EnvelopeKey],
        inboxes: &[InboxId],
    ) -> Result<AdmissionView, StoreError> {
        self.timed(async {
            let mut tx = self.snapshot().await?;
            Ok(AdmissionView {
                stored: read::stored(&mut tx, keys).await?,
                histories: read::histories(&mut tx, inboxes).await?,
            })
        })
        .await
    }

    async fn commit(&self, envelopes: &[NewEnvelope]) -> Result<Committed, StoreError> {
        self.committer.commit(envelopes.to_vec()).await
    }

    async fn read_after(
        &self,
        // One file is both.
        _source: Source,
        reads: &[TopicRead],
        bounds: ReadBounds,
    ) -> Result<ReadPage, StoreError> {
        self.timed(async { read::after(&mut *self.snapshot().await?, reads, bounds).await }).await
    }

    async fn read_ids(&self, ids: &[SequenceId]) -> Result<Vec<StoredEnvelope>, StoreError> {
        self.timed(async { read::by_ids(&mut *self.snapshot().await?, ids).await }).await
    }

    async fn heads(&self, topics: &[Topic]) -> Result<HashMap<Topic, SequenceId>, StoreError> {
        self.timed(async { read::heads(&mut *self.snapshot().await?, topics).await }).await
    }

    async fn newest(&self, topics: &[Topic]) -> Result<Vec<StoredMeta>, StoreError> {
        self.timed(async { read::newest(&mut *self.snapshot().await?, topics).await }).await
    }

    async fn inbox_ids(
        &self,
        identifiers: &[Identifier],
    ) -> Result<HashMap<Identifier, InboxId>, StoreError> {
        self.timed(async { read::inbox_ids(&mut *self.snapshot().await?, identifiers).await }).await
    }

    async fn tail(&self) -> Result<Box<dyn Tail>, StoreError> {
        let last = self.timed(async { read::last_id(&mut *self.snapshot().await?).await }).await?;
        Ok(Box::new(SqliteTail { store: self.clone(), last }))
    }

    async fn probe(&self) -> Result<(), StoreError> {
        // Through the line and the lock of publishes, or it would say nothing about them.
        self.committer.commit(Vec::new()).await?;
        self.timed(async { read::last_id(&mut *self.snapshot().await?).await }).await.map(drop)
    }

    fn pools(&self) -> Vec<PoolUse> {
        vec![PoolUse::of("writer", &self.writer), PoolUse::of("readers", &self.readers)]
    }

    fn hints(&self) -> watch::Receiver<u64> {
        self.visible.subscribe()
    }

    async fn close(&self) {
        self.committer.close();
        if let Some(task) = self.committing.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the writer failed");
        }
        self.readers.close().await;
        // The last connection to close checkpoints the WAL into the file.
        self.writer.close().await;
    }
}

struct SqliteTail {
    store: SqliteStore,
    last: i64,
}

#[tonic::async_trait]
impl Tail for SqliteTail {
    async fn next(&mut self) -> Result<Vec<Arrival>, StoreError> {
        let store = self.store.clone();
        let arrivals = store
            .timed(async { read::arrivals(&mut *store.snapshot().await?, self.last, TAIL_BATCH).await })
            .await?;
        if let Some(arrival) = arrivals.last() {
            self.last = arrival.sequence_id.as_i64();
        }
        Ok(arrivals)
    }
}

/// Makes the file when it is missing, for its owner alone. SQLite gives its companions the same rights.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::Unavailable(format!("the file can't be made: {error}"))),
    }
}

/// What a database error means to a caller.
fn failed(error: sqlx::Error) -> StoreError {
    const SQLITE_CORRUPT: i32 = 11;
    const SQLITE_NOTADB: i32 = 26;
    match &error {
        sqlx::Error::Database(database) => {
            let primary = database.code().and_then(|code| code.parse::<i32>().ok()).map(|code| code & 0xff);
            match primary {
                Some(SQLITE_CORRUPT | SQLITE_NOTADB) => StoreError::Corrupt(error.to_string()),
                _ if database.is_check_violation() || database.is_unique_violation() => {
                    StoreError::Corrupt(error.to_string())
                }
                _ => StoreError::Unavailable(error.to_string()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// A stored value that this server would not have written.
fn corrupt(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("{what}: {error}"))
}
