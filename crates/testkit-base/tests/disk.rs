//! The store on a disk that fails: every failure has a name of its own, and nothing is lost by it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use highwater_store::{DatabaseKey, Migrations, OpenError, OpenOptions, Store, StoreError, audit};
use highwater_testkit_base::{Disk, Fault, Kind, Operation};

const NOTES: Migrations = Migrations {
    owner: "notes",
    steps: &["CREATE TABLE notes_rows (id INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL) STRICT"],
};

struct Place {
    folder: tempfile::TempDir,
    key: DatabaseKey,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), key: DatabaseKey::from_bytes([7; 32]) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notes.db")
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new(self.path(), self.key.clone(), vec![NOTES])
    }

    async fn open(&self) -> Store {
        Store::open(self.options()).await.unwrap()
    }

    /// Every file of the folder with its bytes.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap);
        let read = |file: std::fs::DirEntry| {
            (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
        };
        files.map(read).collect()
    }
}

async fn write(store: &Store, text: &'static str) -> Result<(), StoreError> {
    store
        .write("note", move |tx| {
            Box::pin(async move {
                sqlx::query("INSERT INTO notes_rows (text) VALUES (?)").bind(text).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await
}

async fn texts(store: &Store) -> Vec<String> {
    let read = store.read("notes", |tx| {
        Box::pin(async move {
            let texts = sqlx::query_scalar("SELECT text FROM notes_rows ORDER BY id");
            Ok::<_, StoreError>(texts.fetch_all(tx.conn()).await?)
        })
    });
    read.await.unwrap()
}

fn on(disk: &Disk, place: &Place) -> OpenOptions {
    place.options().vfs(disk.vfs()).busy_timeout(Duration::from_millis(200))
}

/// What a killed process leaves: the files without the shared memory, which has no content of its own.
fn left_behind(place: &Place) -> Place {
    let copy = Place { key: place.key.clone(), ..Place::new() };
    for (name, bytes) in place.files() {
        if !name.ends_with("-shm") {
            std::fs::write(copy.folder.path().join(name), bytes).unwrap();
        }
    }
    copy
}

/// A closed database with a few pages.
async fn closed() -> Place {
    let place = Place::new();
    let store = place.open().await;
    for _ in 0..20 {
        write(&store, "kept").await.unwrap();
    }
    store.close().await;
    place
}

/// The first operation of this sort, counted from when the disk was reset.
fn first(disk: &Disk, wanted: (Operation, Kind)) -> usize {
    disk.operations().iter().position(|found| *found == wanted).expect("the operation takes place")
}

/// Shows: STR-071.
#[tokio::test]
async fn a_full_disk_is_typed_at_every_write_and_passes_when_there_is_space() {
    let (disk, place) = (Disk::new(), closed().await);
    let store = Store::open(on(&disk, &place)).await.unwrap();
    write(&store, "first").await.unwrap();
    disk.reset();
    write(&store, "second").await.unwrap();
    let operations = disk.operations().into_iter().enumerate();
    let writes: Vec<_> = operations.filter(|(_, (operation, _))| *operation == Operation::Write).collect();
    assert!(!writes.is_empty());
    for (at, _) in writes {
        let before = texts(&store).await;
        disk.arm(at, Fault::Full);
        let error = write(&store, "refused").await.unwrap_err();
        assert!(error.is_disk_full() && !error.is_retryable(), "{error:?}");
        let error = write(&store, "refused").await.unwrap_err();
        assert!(error.is_disk_full(), "still full: {error:?}");
        assert_eq!(texts(&store).await, before);
        disk.heal();
        write(&store, "accepted").await.unwrap();
        assert_eq!(texts(&store).await.len(), before.len() + 1);
    }
}

/// A sync that fails in COMMIT doesn't tell what a crash would leave, so the caller isn't told either. Reading tells:
/// here nothing, and after a crash at this moment the whole of it.
///
/// Shows: STR-071.
#[tokio::test]
async fn a_commit_that_fails_is_unknown_and_reading_settles_it() {
    let (disk, place) = (Disk::new(), closed().await);
    let store = Store::open(on(&disk, &place)).await.unwrap();
    write(&store, "first").await.unwrap();
    disk.reset();
    write(&store, "second").await.unwrap();
    let sync = first(&disk, (Operation::Sync, Kind::Wal));
    let before = texts(&store).await;
    disk.arm(sync, Fault::FailOnce);
    let error = write(&store, "third").await.unwrap_err();
    assert_eq!(disk.struck(), Some((Operation::Sync, Kind::Wal)));
    assert!(matches!(error, StoreError::CommitUnknown { .. }) && !error.is_retryable(), "{error:?}");
    assert_eq!(texts(&store).await, before, "the commit did not take place");
    let crashed = left_behind(&place).open_elsewhere().await;
    assert!([before.len(), before.len() + 1].contains(&crashed.len()), "a part of it: {crashed:?}");
    write(&store, "again").await.unwrap();
    assert_eq!(texts(&store).await.len(), before.len() + 1);
    store.close().await;
    assert_eq!(texts(&place.open().await).await.last().unwrap(), "again");
}

impl Place {
    /// The notes, and proof that the database is sound.
    async fn open_elsewhere(&self) -> Vec<String> {
        let store = self.open().await;
        let found = store.read("audit", |tx| Box::pin(async move { audit(tx).await })).await.unwrap();
        assert!(found.is_clean(), "{found:?}");
        texts(&store).await
    }
}

/// Killed at any operation of its creation, a database can be opened again, with the same key, and used.
#[tokio::test]
async fn a_database_killed_while_it_is_created_opens_again() {
    let disk = Disk::new();
    let place = Place::new();
    disk.reset();
    Store::open(on(&disk, &place)).await.unwrap().close().await;
    let operations = disk.operations().len();
    assert!(operations > 10, "{operations}");
    for at in 0..operations {
        let place = Place::new();
        disk.arm(at, Fault::Stop);
        // The last operations are those of closing, after which nobody is told.
        if let Ok(store) = Store::open(on(&disk, &place)).await {
            store.close().await;
        }
        let struck = disk.struck();
        assert!(struck.is_some(), "operation {at} did not come");
        let left = left_behind(&place);
        let store =
            Store::open(left.options()).await.unwrap_or_else(|error| panic!("{at} {struck:?}: {error:?}"));
        write(&store, "works").await.unwrap();
        assert_eq!(texts(&store).await, ["works"]);
        store.close().await;
    }
}

const NEWER: Migrations =
    Migrations { owner: "notes", steps: &[NOTES.steps[0], "ALTER TABLE notes_rows ADD COLUMN colour TEXT"] };

/// Case I5: opening fails with a name, changes nothing, and works once the cause is gone.
#[tokio::test]
async fn an_opening_that_the_disk_fails_changes_nothing() {
    let (disk, place) = (Disk::new(), closed().await);
    let newer = |place: &Place| OpenOptions { migrations: vec![NEWER], ..on(&disk, place) };
    let rehearsal = left_behind(&place);
    disk.reset();
    let store = Store::open(newer(&rehearsal)).await.unwrap();
    let sync = first(&disk, (Operation::Sync, Kind::Wal));
    store.close().await;
    let before = place.files();

    disk.arm(0, Fault::Full);
    let error = Store::open(newer(&place)).await.unwrap_err();
    assert!(matches!(error, OpenError::DiskFull) && error.is_disk_full(), "{error:?}");
    assert!(before["notes.db"] == place.files()["notes.db"]);

    disk.arm(0, Fault::Stop);
    let error = Store::open(newer(&place)).await.unwrap_err();
    assert!(matches!(error, OpenError::Database(_)), "{error:?}");
    disk.reset();
    assert!(before["notes.db"] == place.files()["notes.db"]);

    disk.arm(sync, Fault::FailOnce);
    let error = Store::open(newer(&place)).await.unwrap_err();
    assert!(matches!(error, OpenError::Database(_)), "{error:?}");
    assert_eq!(disk.struck().map(|(_, kind)| kind), Some(Kind::Wal), "the migration's COMMIT");
    assert!(before["notes.db"] == place.files()["notes.db"]);

    // The new tables may be there by now, for which this page was not needed.
    disk.reset();
    disk.spoil_page(3);
    let error = Store::open(newer(&place)).await.unwrap_err();
    assert!(matches!(error, OpenError::Database(_)), "{error:?}");

    disk.heal();
    let store = Store::open(newer(&place)).await.unwrap();
    assert_eq!(texts(&store).await, ["kept"; 20]);
}
