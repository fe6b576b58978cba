use std::time::Duration;

use highwater_store::{Store, StoreError};
use tokio::sync::oneshot;

use crate::support::{Place, SOON, forever, insert, texts, write};

/// Case I4: when `close` returns, nothing of the store runs or holds a lock.
#[tokio::test]
async fn closing_leaves_one_file_that_can_be_moved() {
    let place = Place::new();
    let store = place.open().await;
    write(&store, "kept").await.unwrap();
    texts(&store).await;
    store.close().await;
    assert_eq!(place.files().into_keys().collect::<Vec<_>>(), ["notes.db"]);
    assert!(locks_on(&place.path()).is_empty());
    let moved = Place { key: place.key.clone(), ..Place::new() };
    std::fs::rename(place.path(), moved.path()).unwrap();
    assert_eq!(texts(&moved.open().await).await, ["kept"]);
}

/// What this process holds open, seen from outside of SQLite.
fn locks_on(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|open| open.to_string_lossy().starts_with(&*path.to_string_lossy()))
        .collect()
}

#[tokio::test]
async fn everything_fails_as_closed_afterwards_and_waits_end() {
    let place = Place::new();
    let store = place.open().await;
    let mut wakes = store.wakes();
    let clone = store.clone();
    tokio::join!(store.close(), clone.close());
    store.close().await;
    assert!(write(&store, "late").await.unwrap_err().is_closed());
    let read: Result<(), StoreError> = clone.read("late", |_| Box::pin(async { Ok(()) })).await;
    assert!(read.unwrap_err().is_closed());
    tokio::time::timeout(SOON, async { while wakes.changed().await.is_ok() {} }).await.unwrap();
    assert!(store.wakes().changed().await.is_err());
}

#[tokio::test]
async fn closing_waits_for_the_write_under_way_and_for_those_in_line() {
    let place = Place::new();
    let store = place.open().await;
    let (reached, is_reached) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let first = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .write("slow", move |tx| {
                    Box::pin(async move {
                        reached.send(()).unwrap();
                        goes_on.await.unwrap();
                        insert(tx, "slow").await
                    })
                })
                .await
        }
    });
    is_reached.await.unwrap();
    let mut second = Box::pin(write(&store, "in line"));
    assert!(futures::poll!(&mut second).is_pending());
    let mut closing = Box::pin(store.close());
    assert!(futures::poll!(&mut closing).is_pending());
    tokio::time::timeout(Duration::from_millis(50), &mut closing).await.unwrap_err();
    go_on.send(()).unwrap();
    tokio::time::timeout(SOON, closing).await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap();
    assert_eq!(texts(&place.open().await).await, ["slow", "in line"]);
}

/// A read whose future nobody polls any more would otherwise keep its lock, and `close` waiting.
#[tokio::test]
async fn closing_does_not_wait_for_a_future_that_nobody_polls() {
    let place = Place::new();
    let store = place.open().await;
    let mut read = Box::pin(texts(&store));
    assert!(futures::poll!(&mut read).is_pending());
    tokio::time::timeout(SOON, store.close()).await.unwrap();
    assert!(read.await.is_empty());
}

#[tokio::test]
async fn a_dropped_read_that_never_ends_does_not_stop_closing() {
    let place = Place::new();
    let store = place.open().await;
    let (reached, is_reached) = oneshot::channel();
    let task = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .read("stuck", move |_| {
                    reached.send(()).unwrap();
                    forever::<Result<(), StoreError>>()
                })
                .await
        }
    });
    is_reached.await.unwrap();
    task.abort();
    tokio::time::timeout(SOON, store.close()).await.unwrap();
    assert!(locks_on(&place.path()).is_empty());
}

#[tokio::test]
async fn a_dropped_close_goes_on() {
    let place = Place::new();
    let store = place.open().await;
    {
        let closing = store.close();
        let mut closing = Box::pin(closing);
        assert!(futures::poll!(&mut closing).is_pending());
    }
    tokio::time::timeout(SOON, store.close()).await.unwrap();
    assert!(locks_on(&place.path()).is_empty());
}

/// The poller doesn't outlive the last clone, and takes nothing with it.
#[tokio::test]
async fn a_store_that_is_only_dropped_lets_go_of_its_files() {
    let place = Place::new();
    let store: Store = place.open().await;
    write(&store, "kept").await.unwrap();
    drop(store);
    tokio::time::timeout(SOON, async {
        while !locks_on(&place.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(texts(&place.open().await).await, ["kept"]);
}
