//! The floor of what is durable: SQLCipher transactions of `Store::write` that do nothing but write.

use std::sync::Arc;

use anyhow::Result;
use highwater_store::{DatabaseKey, Migrations, OpenOptions, Store, StoreError, SystemClock};
use highwater_wire::proto::backend::ServerEnvelope;
use highwater_wire::{Topic, received};
use sqlx::QueryBuilder;

const TABLES: Migrations = Migrations {
    owner: "bench",
    steps: &["CREATE TABLE bench_rows (topic BLOB NOT NULL, sequence_id INTEGER NOT NULL, \
             kind INTEGER NOT NULL, server_ns INTEGER NOT NULL, expiry_ns INTEGER NOT NULL, \
             hash BLOB NOT NULL, is_commit_or_proposal INTEGER NOT NULL, \
             stored_bytes INTEGER NOT NULL, payload BLOB NOT NULL, \
             PRIMARY KEY (topic, sequence_id)) STRICT; \
         CREATE TABLE bench_position (id INTEGER PRIMARY KEY, at INTEGER NOT NULL) STRICT; \
         INSERT INTO bench_position VALUES (1, 0);"],
};

/// A database of its own, opened as every other is.
pub(crate) struct Floor {
    pub(crate) store: Store,
    _folder: tempfile::TempDir,
}

impl Floor {
    pub(crate) async fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("floor.db");
        let options =
            OpenOptions::new(path, DatabaseKey::generate(), vec![TABLES]).clock(Arc::new(SystemClock));
        let store = Store::open(options).await?;
        Ok(Self { store, _folder: folder })
    }

    /// The rows of a batch in one statement and one transaction.
    pub(crate) async fn insert(&self, topic: Topic, batch: Vec<ServerEnvelope>) -> Result<()> {
        let rows = batch.into_iter().map(received).collect::<Result<Vec<_>, _>>()?;
        self.store
            .write("floor", move |tx| {
                Box::pin(async move {
                    let mut insert = QueryBuilder::new("INSERT INTO bench_rows ");
                    insert.push_values(&rows, |mut row, envelope| {
                        row.push_bind(topic.to_bytes())
                            .push_bind(envelope.sequence_id().as_i64())
                            .push_bind(topic.kind().byte())
                            .push_bind(envelope.server_ns())
                            .push_bind(envelope.expiry_ns().cast_signed())
                            .push_bind(envelope.hash().as_bytes().to_vec())
                            .push_bind(envelope.is_commit_or_proposal())
                            .push_bind(envelope.stored_bytes() as i64)
                            .push_bind(envelope.payload().to_vec());
                    });
                    insert.build().execute(tx.conn()).await?;
                    Ok::<_, StoreError>(())
                })
            })
            .await?;
        Ok(())
    }

    /// As many transactions, each of which moves one number.
    pub(crate) async fn advance(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.store
                .write("floor", |tx| {
                    Box::pin(async move {
                        sqlx::query("UPDATE bench_position SET at = at + 1 WHERE id = 1")
                            .execute(tx.conn())
                            .await?;
                        Ok::<_, StoreError>(())
                    })
                })
                .await?;
        }
        Ok(())
    }
}
