use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_store::{DatabaseKey, Migrations, OpenOptions, Store};

use crate::TestClock;

/// A real encrypted database in a temporary folder, on a clock that the test sets.
pub struct StoreFixture {
    store: Store,
    path: PathBuf,
    key: DatabaseKey,
    clock: TestClock,
    migrations: Vec<Migrations>,
    _folder: tempfile::TempDir,
}

impl StoreFixture {
    /// A new database with these schemas.
    ///
    /// # Panics
    /// If it can't be made.
    pub async fn new(migrations: Vec<Migrations>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("test.db");
        let (key, clock) = (DatabaseKey::generate(), TestClock::default());
        let store = open(&path, &key, &clock, &migrations).await;
        Self { store, path, key, clock, migrations, _folder: folder }
    }

    /// The open database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its key.
    pub fn key(&self) -> &DatabaseKey {
        &self.key
    }

    /// Closes the database and opens it again, as a restart does.
    ///
    /// # Panics
    /// If it can't be opened.
    pub async fn reopen(&mut self) {
        self.store.close().await;
        self.store = open(&self.path, &self.key, &self.clock, &self.migrations).await;
    }

    /// A second store on the same file, as another process would have it.
    ///
    /// # Panics
    /// If it can't be opened.
    pub async fn another(&self) -> Store {
        open(&self.path, &self.key, &self.clock, &self.migrations).await
    }
}

async fn open(
    path: &Path,
    key: &DatabaseKey,
    clock: &TestClock,
    migrations: &[Migrations],
) -> Store {
    let options = OpenOptions::new(path, key.clone(), migrations.to_vec()).clock(Arc::new(clock.clone()));
    Store::open(options).await.expect("a database")
}
