//! Stores under test, and what is put into them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use highwater_backend::{
    DatabaseConfig, EnvelopeStore, PostgresStore, SqliteStore, Timing,
    store::{Committed, IdentityChange, NewEnvelope, StoredMeta},
};
use highwater_testkit_postgres::Postgres;
use highwater_wire::{InboxId, InstallationKey, MessageHash, Topic};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A store that is written and one that is read, over the same data; maybe the same one.
pub(crate) struct Pair {
    pub(crate) writer: Arc<dyn EnvelopeStore>,
    pub(crate) reader: Arc<dyn EnvelopeStore>,
    _folder: Option<TempDir>,
}

impl Pair {
    pub(crate) async fn sqlite() -> Self {
        let folder = TempDir::new().expect("a folder");
        let store = SqliteStore::open(&folder.path().join("backend.db"), Duration::from_secs(5)).await;
        let store: Arc<dyn EnvelopeStore> = Arc::new(store.expect("opened"));
        Self { writer: Arc::clone(&store), reader: store, _folder: Some(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        let store = postgres(&database()).await;
        Self { writer: Arc::clone(&store), reader: store, _folder: None }
    }

    pub(crate) async fn two_instances() -> Self {
        let url = database();
        // Both make the schema, at the same time.
        let (writer, reader) = tokio::join!(postgres(&url), postgres(&url));
        Self { writer, reader, _folder: None }
    }
}

/// A new database on the shared server.
pub(crate) fn database() -> String {
    let server = Postgres::shared();
    server.url(&server.create_database())
}

pub(crate) async fn postgres(url: &str) -> Arc<dyn EnvelopeStore> {
    opened(url.parse().expect("a database")).await
}

pub(crate) async fn opened(config: DatabaseConfig) -> Arc<dyn EnvelopeStore> {
    let DatabaseConfig::Postgres(mut config) = config else { panic!("PostgreSQL is meant") };
    // Many tests share the server.
    config.max_connections = 4;
    Arc::new(PostgresStore::open(&config, &Timing::default()).await.expect("opened"))
}

pub(crate) fn topic(number: u8) -> Topic {
    Topic::welcome(InstallationKey::from_bytes([number; 32]))
}

/// An envelope of its own kind of bytes: a store doesn't look into payloads other than identity logs.
pub(crate) fn envelope(topic: Topic, text: &str) -> NewEnvelope {
    let payload = Bytes::from(text.to_owned().into_bytes());
    let hash = MessageHash::from_bytes(Sha256::digest(&payload).into());
    NewEnvelope {
        topic,
        hash,
        payload,
        retention: Some(Duration::from_secs(90)),
        is_commit_or_proposal: false,
        identity: None,
    }
}

pub(crate) fn inbox(number: u8) -> InboxId {
    InboxId::from_bytes([number; 32])
}

/// An identity update as the checks pass it on.
pub(crate) fn update(inbox: InboxId, text: &str, change: IdentityChange) -> NewEnvelope {
    NewEnvelope { retention: None, identity: Some(change), ..envelope(Topic::identity(inbox), text) }
}

pub(crate) async fn put(store: &Arc<dyn EnvelopeStore>, envelopes: &[NewEnvelope]) -> Vec<StoredMeta> {
    match store.commit(envelopes).await.expect("committed") {
        Committed::Stored(metas) => metas,
        Committed::HistoryMoved => panic!("no history moved"),
    }
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(done) => done,
        Err(_) => panic!("not in time: {what}"),
    }
}
