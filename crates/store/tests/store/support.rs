//! A database with one table of counters, and the ways to look at it from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use highwater_store::{DatabaseKey, Migrations, OpenOptions, Reads, Store, StoreError, WriteTx};
use tempfile::TempDir;

pub(crate) const NOTES: Migrations = Migrations {
    owner: "notes",
    steps: &["CREATE TABLE notes_rows (id INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL) STRICT"],
};

/// Long enough for a loaded machine, short enough to fail.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) key: DatabaseKey,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), key: DatabaseKey::from_bytes([7; 32]) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("notes.db")
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions::new(self.path(), self.key.clone(), vec![NOTES])
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(self.options()).await.unwrap()
    }

    /// Every file of the folder with its bytes.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(self.folder.path())
    }
}

pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

pub(crate) async fn insert(tx: &mut WriteTx, text: &str) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO notes_rows (text) VALUES (?)").bind(text).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn texts_in(tx: &mut impl Reads) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar("SELECT text FROM notes_rows ORDER BY id").fetch_all(tx.conn()).await?)
}

pub(crate) async fn write(store: &Store, text: &'static str) -> Result<(), StoreError> {
    store.write("note", move |tx| Box::pin(async move { insert(tx, text).await })).await
}

pub(crate) async fn texts(store: &Store) -> Vec<String> {
    store.read("notes", |tx| Box::pin(async move { texts_in(tx).await })).await.unwrap()
}

/// A transaction that never ends by itself.
pub(crate) fn forever<T: Send + 'static>() -> BoxFuture<'static, T> {
    Box::pin(std::future::pending())
}
