//! The store for any number of instances: a PostgreSQL database, and maybe a physical standby of it that
//! serves streams.
//!
//! Publishes to different topics run side by side, so ids don't become visible in their order. On one
//! topic they do: its row in `backend_heads` is locked before an id is taken. What readers of all topics
//! need to know about the rest is the closed allocation boundary, see `boundary`.
//!
//! Every call is one statement, or several that could as well be made at different times. So a call that
//! is dropped leaves no transaction open, and the server's statement timeout bounds all of them.

mod boundary;
mod gaps;
mod hints;
mod read;
mod schema;
mod tail;
mod turns;
mod write;

use std::{collections::HashMap, sync::Arc, time::Duration};

use highwater_wire::{InboxId, SequenceId, Topic};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::{Notify, watch};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::{boundary::Boundary, tail::PostgresTail, turns::Turns};
use crate::{
    config::{PostgresConfig, Timing},
    store::{
        AdmissionView, Committed, EnvelopeKey, EnvelopeStore, Identifier, NewEnvelope, PoolUse, ReadBounds,
        ReadPage, Source, StoreError, StoredEnvelope, StoredMeta, Tail, TopicRead,
    },
};

/// Connections of the tasks, beside those of requests.
const TASK_CONNECTIONS: u32 = 3;

/// An [`EnvelopeStore`] in a PostgreSQL database, version 14 or later.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    writer: PgPool,
    /// The primary, for reads: publishes that wait for a lock leave these connections alone.
    reader: PgPool,
    /// The standby's connections, or the primary's.
    serving: PgPool,
    has_standby: bool,
    tasks_pool: PgPool,
    boundary: Boundary,
    committed: Arc<Notify>,
    turns: Turns,
    visible: watch::Sender<u64>,
    statement_timeout: Duration,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_when_dropped: Arc<DropGuard>,
}

impl PostgresStore {
    /// Connects, and brings the database to this server's schema. Instances may do so at the same time.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the database or the standby can't be reached,
    /// [`StoreError::Corrupt`] when it has a newer schema than this server knows.
    pub async fn open(config: &PostgresConfig, timing: &Timing) -> Result<Self, StoreError> {
        let timeout = timing.statement_timeout;
        let lifetime = timing.publish_lifetime;
        let tasks_pool = pool(&config.primary, TASK_CONNECTIONS, timeout, lifetime).await?;
        schema::migrate(&tasks_pool).await?;
        let half = (config.max_connections / 2).max(1);
        let writer = pool(&config.primary, half, timeout, lifetime).await?;
        let reader = pool(&config.primary, half, timeout, lifetime).await?;
        let serving = match &config.replica {
            Some(replica) => {
                let serving = pool(replica, config.max_connections, timeout, lifetime).await?;
                schema::replayed(&serving, timing.store_poll).await?;
                schema::is_standby_of(&serving, &reader).await?;
                serving
            }
            None => reader.clone(),
        };
        let stop = CancellationToken::new();
        let store = Self {
            writer,
            reader,
            serving,
            has_standby: config.replica.is_some(),
            tasks_pool,
            boundary: Boundary::default(),
            committed: Arc::default(),
            turns: Turns::default(),
            visible: watch::Sender::new(0),
            statement_timeout: timeout,
            tasks: TaskTracker::new(),
            _stop_when_dropped: Arc::new(stop.clone().drop_guard()),
            stop,
        };
        store.start_tasks(timing.store_poll);
        Ok(store)
    }

    fn start_tasks(&self, poll: Duration) {
        let pool = || self.tasks_pool.clone();
        self.tasks.spawn(self.boundary.clone().run(pool(), poll, self.stop.clone()));
        self.tasks.spawn(hints::speak(pool(), Arc::clone(&self.committed), self.stop.clone()));
        self.tasks.spawn(hints::listen(pool(), self.visible.clone(), self.stop.clone()));
    }

    /// Runs `work` within the statement timeout and the time a connection takes: the database's own
    /// timeout answers first, unless it doesn't answer at all.
    async fn timed<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let limit = self.statement_timeout * 2;
        match tokio::time::timeout(limit, work).await {
            Ok(Err(StoreError::TimedOut(_))) => Err(StoreError::TimedOut(self.statement_timeout)),
            Ok(done) => done,
            Err(_) => Err(StoreError::TimedOut(limit)),
        }
    }
}

async fn pool(
    options: &PgConnectOptions,
    connections: u32,
    statement_timeout: Duration,
    lifetime: Duration,
) -> Result<PgPool, StoreError> {
    let options = options.clone().application_name("highwater").options([
        ("statement_timeout", statement_timeout.as_millis().max(1).to_string()),
        // Statements are short and estimates of list parameters high: compiling would take ten times
        // longer than running.
        ("jit", "off".to_owned()),
        // All of them are meant for an index. A plan made while a table was small would go on reading it
        // whole when it no longer is.
        ("enable_seqscan", "off".to_owned()),
        ("client_min_messages", "warning".to_owned()),
        // What the publish function is written for.
        ("default_transaction_isolation", "read committed".to_owned()),
        // Nothing here leaves a transaction open; should anything, the database ends it.
        ("idle_in_transaction_session_timeout", lifetime.as_millis().max(1).to_string()),
    ]);
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(statement_timeout)
        .connect_with(options)
        .await
        .map_err(failed)
}

#[tonic::async_trait]
impl EnvelopeStore for PostgresStore {
    async fn admission_view(
        &self,
        keys: &[EnvelopeKey],
        inboxes: &[InboxId],
    ) -> Result<AdmissionView, StoreError> {
        self.timed(async {
            // Logs first: an update that became visible in between is then answered as stored.
            let histories = read::histories(&self.reader, inboxes).await?;
            Ok(AdmissionView { stored: read::stored(&self.reader, keys).await?, histories })
        })
        .await
    }

    async fn commit(&self, envelopes: &[NewEnvelope]) -> Result<Committed, StoreError> {
        // Outside the time limit: the caller bounds a publish as a whole.
        let _turns = self.turns.take(envelopes.iter().map(|envelope| envelope.topic)).await;
        let committed = self.timed(write::publish(&self.writer, envelopes)).await;
        // Also after an error: it doesn't say that nothing was stored.
        self.visible.send_modify(|count| *count += 1);
        self.committed.notify_one();
        committed
    }

    async fn read_after(
        &self,
        source: Source,
        reads: &[TopicRead],
        bounds: ReadBounds,
    ) -> Result<ReadPage, StoreError> {
        let pool = match source {
            Source::Primary => &self.reader,
            Source::Serving => &self.serving,
        };
        self.timed(read::after(pool, reads, bounds)).await
    }

    async fn read_ids(&self, ids: &[SequenceId]) -> Result<Vec<StoredEnvelope>, StoreError> {
        self.timed(read::by_ids(&self.serving, ids)).await
    }

    async fn heads(&self, topics: &[Topic]) -> Result<HashMap<Topic, SequenceId>, StoreError> {
        self.timed(read::heads(&self.serving, topics)).await
    }

    async fn newest(&self, topics: &[Topic]) -> Result<Vec<StoredMeta>, StoreError> {
        self.timed(read::newest(&self.serving, topics)).await
    }

    async fn inbox_ids(
        &self,
        identifiers: &[Identifier],
    ) -> Result<HashMap<Identifier, InboxId>, StoreError> {
        self.timed(read::inbox_ids(&self.reader, identifiers)).await
    }

    async fn tail(&self) -> Result<Box<dyn Tail>, StoreError> {
        let tail = self.timed(PostgresTail::start(self.clone())).await?;
        Ok(Box::new(tail))
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let reading = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(&self.reader);
        let is_standby: bool = self.timed(async { reading.await.map_err(failed) }).await?;
        if is_standby {
            return Err(StoreError::Unavailable("the primary is a standby".to_owned()));
        }
        // Being reached isn't enough: a database that is read-only or whose disk is full takes nothing.
        let writing = sqlx::query("UPDATE backend_identity_lock SET one = one").execute(&self.writer);
        self.timed(async { writing.await.map(drop).map_err(failed) }).await
    }

    fn pools(&self) -> Vec<PoolUse> {
        // Without a standby the serving pool is the primary's.
        let standby = self.has_standby.then(|| PoolUse::of("standby", &self.serving));
        let own = [
            PoolUse::of("writer", &self.writer),
            PoolUse::of("reader", &self.reader),
            PoolUse::of("tasks", &self.tasks_pool),
        ];
        own.into_iter().chain(standby).collect()
    }

    fn hints(&self) -> watch::Receiver<u64> {
        self.visible.subscribe()
    }

    async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        tokio::join!(self.writer.close(), self.reader.close(), self.serving.close(), self.tasks_pool.close());
    }
}

/// What a database error means to a caller.
fn failed(error: sqlx::Error) -> StoreError {
    const QUERY_CANCELED: &str = "57014";
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    match &error {
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some(QUERY_CANCELED | LOCK_NOT_AVAILABLE) => StoreError::TimedOut(Duration::ZERO),
            // Data that the schema refuses, or a schema that isn't this server's.
            Some(code) if ["22", "23", "42"].iter().any(|class| code.starts_with(class)) => {
                StoreError::Corrupt(error.to_string())
            }
            _ => StoreError::Unavailable(error.to_string()),
        },
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// A stored value that this server would not have written.
fn corrupt(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("{what}: {error}"))
}
