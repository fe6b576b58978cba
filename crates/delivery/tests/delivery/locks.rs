//! The lock files beside the database.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use highwater_delivery::{ConsumerError, DEFAULT_CONSUMER_LEASE, DeliveryError, MIGRATIONS, Selection};
use highwater_store::{OpenOptions, Store, StoreError};

use crate::support::*;

/// The first of the database's lock files.
fn lock_file(store: &Store) -> PathBuf {
    let mut path = store.path().as_os_str().to_os_string();
    path.push(".consumer");
    path.into()
}

/// Whether somebody holds it, asked as another process would.
fn locked(store: &Store) -> bool {
    std::fs::File::open(lock_file(store)).unwrap().try_lock().is_err()
}

/// Shows: STR-023, STR-096, PROC-031.
#[cfg(unix)]
#[tokio::test]
async fn another_name_of_the_file_is_no_way_around_a_living_owner() {
    let fixture = store().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(fixture.path(), &link).unwrap();
    let clock = Arc::new(fixture.clock().clone());
    let options = OpenOptions::new(&link, fixture.key(), vec![MIGRATIONS]).clock(clock);
    let by_link = Store::open(options).await.unwrap();
    let first = open(fixture.store(), Selection::all()).await;
    assert!(matches!(refused(&by_link).await, ConsumerError::AlreadyActive { .. }));
    first.release().await.unwrap();
    let second = open(&by_link, Selection::all()).await;
    assert!(matches!(refused(fixture.store()).await, ConsumerError::AlreadyActive { .. }));
    second.release().await.unwrap();
    by_link.close().await;
}

/// Whoever is told that the reader or its client is closed can open one in another process at once. Nothing of this
/// process runs between the end and the look at the lock.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn the_lock_is_free_at_the_moment_the_consumer_ends() {
    let fixture = store().await;
    let store = fixture.store().clone();
    arrive(&store, &[(A, "a")]).await;
    let consumer = open(&store, Selection::all()).await;
    assert!(locked(&store));
    consumer.release().await.unwrap();
    assert!(!locked(&store), "released");

    let consumer = open(&store, Selection::all()).await;
    drop(consumer);
    assert!(!locked(&store), "dropped");

    let kept = open(&store, Selection::all()).await;
    assert!(locked(&store));
    store.close().await;
    assert!(!locked(&store), "the database is closed, and an app still has a reader of it");
    drop(kept);
}

/// A process that starts others all the time: each has a copy of the open lock file for a moment.
/// Shows: STR-096, PROC-031.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_are_being_started_hold_no_lock() {
    let fixture = store().await;
    let store = fixture.store();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let starting = std::thread::spawn(move || {
        while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
            Command::new("true").stdout(Stdio::null()).status().unwrap();
        }
    });
    for _ in 0..150 {
        drop(open(store, Selection::all()).await);
        open(store, Selection::all()).await.release().await.unwrap();
        assert!(!locked(store));
    }
    drop(stop);
    starting.join().unwrap();
}

/// A cleaner of temporary files takes the lock file away. The owner lives, renews and goes on.
/// Shows: STR-023, STR-096, PROC-031.
#[tokio::test]
async fn an_owner_whose_lock_file_was_removed_keeps_its_place() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b")]).await;
    let mut owner = open(store, Selection::all()).await;
    assert_eq!(next(&mut owner).await, "a");
    std::fs::remove_file(lock_file(store)).unwrap();
    for _ in 0..2 {
        assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
        assert!(!lock_file(store).exists(), "whoever only asks must not make a file that is free");
    }
    assert_eq!(next(&mut owner).await, "b");
    owner.release().await.unwrap();
    let successor = open(store, Selection::all()).await;
    assert!(locked(store));
    successor.release().await.unwrap();
}

/// Whoever is gone together with its lock file can't be told from whoever lives without one, but for the lease.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn a_dead_owner_without_a_lock_file_is_replaced_after_its_lease() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a")]).await;
    drop(open(store, Selection::all()).await);
    std::fs::remove_file(lock_file(store)).unwrap();
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    let successor = open(store, Selection::all()).await;
    assert!(locked(store));
    drop(successor);
    assert_eq!(deliver(store, Selection::all()).await, ["a"]);
}

/// The file of a closed database may be moved. That there is none any more must not pass for something that time mends.
/// Shows: PROC-043.
#[tokio::test]
async fn a_closed_store_whose_file_was_moved_says_that_it_is_closed() {
    let fixture = store().await;
    let store = fixture.another().await;
    fixture.store().close().await;
    store.close().await;
    std::fs::rename(store.path(), store.path().with_extension("moved")).unwrap();
    let error = refused(&store).await;
    assert!(matches!(error, ConsumerError::Delivery(DeliveryError::Store(StoreError::Closed))), "{error:?}");
    assert!(!error.is_retryable());
}
