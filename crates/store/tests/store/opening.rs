//! Case I5: whatever prevents opening has a name of its own, and the files stay as they are.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use highwater_store::{DatabaseKey, Migrations, OpenError, OpenOptions, Store, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::support::{NOTES, Place, insert, texts, write};

/// A database with one note, closed.
async fn closed() -> Place {
    let place = Place::new();
    let store = place.open().await;
    write(&store, "kept").await.unwrap();
    store.close().await;
    place
}

/// Opens, expects the error, and compares every byte of the folder.
async fn refused(place: &Place, options: OpenOptions) -> OpenError {
    let before = place.files();
    let error = Store::open(options).await.unwrap_err();
    assert!(before == place.files(), "the files changed: {:?}", place.files().keys());
    assert!(!error.is_retryable() || matches!(error, OpenError::Busy));
    error
}

#[tokio::test]
async fn a_missing_database_is_only_created_on_request() {
    let place = Place::new();
    let error = refused(&place, place.options().create(false)).await;
    assert!(matches!(error, OpenError::Missing), "{error:?}");
    std::fs::write(place.path(), b"").unwrap();
    let error = refused(&place, place.options().create(false)).await;
    assert!(matches!(error, OpenError::Missing), "{error:?}");
    let mut nowhere = place.options();
    nowhere.path = place.folder.path().join("no folder").join("notes.db");
    let error = refused(&place, nowhere).await;
    assert!(matches!(error, OpenError::Io(_)), "{error:?}");
    let mut folder = place.options();
    folder.path = place.folder.path().to_owned();
    let error = refused(&place, folder).await;
    assert!(matches!(error, OpenError::NotADatabase(_)), "{error:?}");
}

/// Shows: STR-064.
#[tokio::test]
async fn a_wrong_key_is_refused_and_the_right_one_still_works() {
    let place = closed().await;
    let mut wrong = place.options();
    wrong.key = DatabaseKey::generate();
    let error = refused(&place, wrong).await;
    assert!(matches!(error, OpenError::WrongKey), "{error:?}");
    assert_eq!(texts(&place.open().await).await, ["kept"]);
}

#[tokio::test]
async fn a_plain_database_or_any_other_file_is_refused() {
    let place = Place::new();
    let options = SqliteConnectOptions::new().filename(place.path()).create_if_missing(true);
    let mut plain = options.connect().await.unwrap();
    sqlx::query("CREATE TABLE notes_rows (id INTEGER)").execute(&mut plain).await.unwrap();
    plain.close().await.unwrap();
    let error = refused(&place, place.options()).await;
    assert!(matches!(error, OpenError::NotEncrypted), "{error:?}");
    for garbage in [&b"x"[..], b"a letter to nobody", &[0x5a; 5000]] {
        std::fs::write(place.path(), garbage).unwrap();
        let error = refused(&place, place.options()).await;
        assert!(matches!(error, OpenError::NotADatabase(_)), "{error:?}");
    }
    std::fs::write(place.path(), [0; 8192]).unwrap();
    refused(&place, place.options()).await;
    std::fs::write(place.path(), [0x5a; 8192]).unwrap();
    let error = refused(&place, place.options()).await;
    assert!(matches!(error, OpenError::WrongKey), "random pages look like a wrong key: {error:?}");
}

#[tokio::test]
async fn an_encrypted_database_of_somebody_else_is_refused() {
    let place = Place::new();
    let key = format!("\"x'{}'\"", place.key.to_hex().as_str());
    let options = SqliteConnectOptions::new().filename(place.path()).create_if_missing(true);
    let mut foreign = options.pragma("key", key).connect().await.unwrap();
    sqlx::query("CREATE TABLE theirs (id INTEGER)").execute(&mut foreign).await.unwrap();
    foreign.close().await.unwrap();
    let error = refused(&place, place.options()).await;
    assert!(matches!(error, OpenError::NotADatabase(_)), "{error:?}");
}

const NEWER: Migrations =
    Migrations { owner: "notes", steps: &[NOTES.steps[0], "ALTER TABLE notes_rows ADD COLUMN colour TEXT"] };
const DRAWINGS: Migrations =
    Migrations { owner: "drawings", steps: &["CREATE TABLE drawings_rows (id INTEGER) STRICT"] };

#[tokio::test]
async fn tables_are_brought_up_to_date_and_never_back() {
    let place = closed().await;
    let mut newer = place.options();
    newer.migrations = vec![NEWER, DRAWINGS];
    let store = Store::open(newer).await.unwrap();
    let id = store.database_id();
    assert_eq!(texts(&store).await, ["kept"]);
    store.close().await;
    let error = refused(&place, place.options()).await;
    let OpenError::NewerSchema { owner, found, known } = error else { panic!("{error:?}") };
    assert!([("drawings", 1, 0), ("notes", 2, 1)].contains(&(owner.as_str(), found, known)));
    let mut newer = place.options();
    newer.migrations = vec![NEWER, DRAWINGS];
    assert_eq!(Store::open(newer).await.unwrap().database_id(), id);
}

/// The newer version is only in the WAL yet, as after a crash: it is seen, and the WAL stays as it is.
#[tokio::test]
async fn a_newer_schema_in_a_leftover_wal_is_seen_and_left_alone() {
    let place = closed().await;
    let newer = |path| OpenOptions::new(path, place.key.clone(), vec![NEWER]);
    let store = Store::open(newer(place.path())).await.unwrap();
    write(&store, "in the WAL").await.unwrap();
    // A copy of the open files is what a killed process leaves.
    let crashed = Place { key: place.key.clone(), ..Place::new() };
    for (name, bytes) in place.files() {
        std::fs::write(crashed.folder.path().join(name), bytes).unwrap();
    }
    store.close().await;
    assert!(!crashed.files()["notes.db-wal"].is_empty());
    let before = without_index(&crashed);
    let error = Store::open(crashed.options()).await.unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { .. }), "{error:?}");
    let mut wrong = crashed.options();
    wrong.key = DatabaseKey::generate();
    let error = Store::open(wrong).await.unwrap_err();
    assert!(matches!(error, OpenError::WrongKey), "{error:?}");
    assert!(before == without_index(&crashed), "the main file or the WAL changed");
    let store = Store::open(newer(crashed.path())).await.unwrap();
    assert_eq!(texts(&store).await, ["kept", "in the WAL"]);
}

/// Content, as opposed to the index of the WAL, which SQLite rebuilds whenever it likes.
fn without_index(place: &Place) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut files = place.files();
    files.retain(|name, _| !name.ends_with("-shm"));
    files
}

#[tokio::test]
async fn a_failing_migration_leaves_the_old_tables() {
    let place = closed().await;
    const BROKEN: Migrations = Migrations {
        owner: "notes",
        steps: &[NOTES.steps[0], "DELETE FROM notes_rows; CREATE TABLE notes_rows (id INTEGER)"],
    };
    let mut broken = place.options();
    broken.migrations = vec![BROKEN];
    let error = Store::open(broken).await.unwrap_err();
    assert!(matches!(error, OpenError::Database(_)), "{error:?}");
    assert_eq!(texts(&place.open().await).await, ["kept"]);
}

#[tokio::test]
async fn a_file_marked_read_only_is_refused() {
    let place = closed().await;
    let set = |mode| std::fs::set_permissions(place.path(), PermissionsExt::from_mode(mode)).unwrap();
    set(0o400);
    let error = refused(&place, place.options()).await;
    assert!(matches!(error, OpenError::ReadOnly), "{error:?}");
    set(0o600);
    assert_eq!(texts(&place.open().await).await, ["kept"]);
}

#[tokio::test]
async fn a_database_whose_writer_is_held_is_busy_and_opens_once_it_is_free() {
    let place = closed().await;
    let holder = place.open().await;
    let (reached, is_reached) = tokio::sync::oneshot::channel();
    let (go_on, goes_on) = tokio::sync::oneshot::channel::<()>();
    let held = tokio::spawn(async move {
        let written: Result<(), StoreError> = holder
            .write("holds", move |tx| {
                Box::pin(async move {
                    reached.send(()).unwrap();
                    goes_on.await.unwrap();
                    insert(tx, "held").await
                })
            })
            .await;
        written.unwrap();
        holder.close().await;
    });
    is_reached.await.unwrap();
    let impatient = place.options().busy_timeout(Duration::from_millis(50));
    let error = Store::open(impatient).await.unwrap_err();
    assert!(matches!(error, OpenError::Busy) && error.is_retryable(), "{error:?}");
    let (store, ()) = tokio::join!(place.open(), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        go_on.send(()).unwrap();
    });
    held.await.unwrap();
    assert_eq!(texts(&store).await, ["kept", "held"]);
}

#[tokio::test]
async fn the_identity_is_made_once_and_can_not_be_changed() {
    let place = closed().await;
    let store = place.open().await;
    let id = store.database_id();
    assert_eq!(id.to_string().parse(), Ok(id));
    let refused: Result<(), StoreError> = store
        .write("forge", |tx| {
            Box::pin(async move {
                sqlx::query("UPDATE store_meta SET database_id = zeroblob(16)").execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    refused.unwrap_err();
    store.close().await;
    assert_eq!(place.open().await.database_id(), id);
    assert_ne!(closed().await.open().await.database_id(), id);
}
