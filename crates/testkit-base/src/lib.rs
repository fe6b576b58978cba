//! Clocks, failing disks and store fixtures for the lower crates' tests.
//!
//! Only for tests. It depends on nothing above the store, so that a crate's unit tests don't meet their own crate twice.

mod disk;
mod vfs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use highwater_store::{Clock, DatabaseKey, Migrations, OpenOptions, Store, StoreError};

pub use disk::{Disk, Fault, Kind, Operation};

/// 2026-01-01 00:00:00 UTC, in nanoseconds since the Unix epoch: where a [`TestClock`] starts.
pub const START_NS: i64 = 1_767_225_600_000_000_000;

/// A clock that stands still until it is told otherwise. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// Stands at `now_ns`, nanoseconds since the Unix epoch.
    pub fn at(now_ns: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ns)))
    }

    /// Jumps there, also backwards.
    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::SeqCst);
    }

    /// Goes forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).expect("a test advances by less than 292 years");
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::at(START_NS)
    }
}

impl Clock for TestClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// An open store in a temporary folder, which goes away with the fixture.
#[derive(Debug)]
pub struct StoreFixture {
    store: Store,
    key: DatabaseKey,
    migrations: Vec<Migrations>,
    clock: TestClock,
    folder: tempfile::TempDir,
}

impl StoreFixture {
    /// A new database with these tables.
    ///
    /// # Panics
    /// When it can't be opened.
    pub async fn new(migrations: Vec<Migrations>) -> Self {
        let folder = tempfile::tempdir().expect("the folder for temporary files can be written");
        Self::new_in(folder, migrations).await
    }

    /// The same on a file system in memory where there is one: for tests of thousands of transactions, none of which
    /// is about what a disk does.
    ///
    /// # Panics
    /// When it can't be opened.
    pub async fn fleeting(migrations: Vec<Migrations>) -> Self {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(folder) => Self::new_in(folder, migrations).await,
            Err(_) => Self::new(migrations).await,
        }
    }

    async fn new_in(folder: tempfile::TempDir, migrations: Vec<Migrations>) -> Self {
        let (key, clock) = (DatabaseKey::generate(), TestClock::default());
        let options = OpenOptions::new(folder.path().join("test.db"), key.clone(), migrations.clone())
            .clock(Arc::new(clock.clone()));
        let store = Store::open(options).await.expect("a new database opens");
        Self { store, key, migrations, clock, folder }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store's clock.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// The folder of the database file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The key of the database.
    pub fn key(&self) -> DatabaseKey {
        self.key.clone()
    }

    /// What the store was opened with.
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(self.path(), self.key(), self.migrations.clone()).clock(Arc::new(self.clock.clone()))
    }

    /// A second store on the same file with the same clock, as another process would have.
    ///
    /// # Panics
    /// When it can't be opened.
    pub async fn another(&self) -> Store {
        Store::open(self.options()).await.expect("the database opens a second time")
    }

    /// Closes the store and opens it again, as a restart would.
    ///
    /// # Panics
    /// When it can't be opened.
    pub async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Store::open(self.options()).await.expect("the database opens again");
    }

    /// From now on the file can't grow by more than `spare_pages`, as on a full disk: writes that need more fail with
    /// [`StoreError::DiskFull`]. Ends with the writer's connection, so by [`Self::reopen`] at the latest.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fill_disk(&self, spare_pages: u32) -> Result<(), StoreError> {
        self.store
            .write("fill the disk", move |tx| {
                Box::pin(async move {
                    let pages: u32 = sqlx::query_scalar("PRAGMA page_count").fetch_one(tx.conn()).await?;
                    let limit = format!("PRAGMA max_page_count = {}", pages + spare_pages);
                    sqlx::raw_sql(sqlx::AssertSqlSafe(limit)).execute(tx.conn()).await?;
                    Ok(())
                })
            })
            .await
    }
}

/// Asks again until it is so. For what another process or a real connection does in its own time.
///
/// # Panics
/// When it isn't so by then.
pub async fn eventually(within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = tokio::time::timeout(within, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    asked.await.expect("what was waited for didn't come about in time");
}
