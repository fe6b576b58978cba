use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use highwater_store::{ACTIVE_DATABASE_POLL_INTERVAL, CommitGate, GateOutcome, StoreError, WriteTx, audit};
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use crate::support::{Place, SOON, insert, texts, texts_in, write};

/// Shows: STR-071.
#[tokio::test]
async fn an_error_rolls_everything_back() {
    let place = Place::new();
    let store = place.open().await;
    let failed: Result<(), StoreError> = store
        .write("fails", |tx| {
            Box::pin(async move {
                insert(tx, "never").await?;
                sqlx::query("INSERT INTO nowhere VALUES (1)").execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    assert!(matches!(failed, Err(StoreError::Database(_))), "{failed:?}");
    write(&store, "then").await.unwrap();
    assert_eq!(texts(&store).await, ["then"]);
}

/// Shows: STR-071.
#[tokio::test]
async fn a_panic_rolls_back_and_reaches_the_caller_as_an_error() {
    let place = Place::new();
    let store = place.open().await;
    let failed: Result<(), StoreError> = store
        .write("panics", |tx| {
            Box::pin(async move {
                insert(tx, "never").await?;
                panic!("on purpose");
            })
        })
        .await;
    let Err(StoreError::Panicked { name: "panics", message }) = failed else { panic!("{failed:?}") };
    assert_eq!(message, "on purpose");
    let failed: Result<(), StoreError> = store.write("at once", |_| panic!("before any await")).await;
    assert!(matches!(failed, Err(StoreError::Panicked { .. })), "{failed:?}");
    let failed: Result<(), StoreError> =
        store.read("read panics", |_| Box::pin(async { panic!("on purpose") })).await;
    assert!(matches!(failed, Err(StoreError::Panicked { .. })), "{failed:?}");
    write(&store, "then").await.unwrap();
    assert_eq!(texts(&store).await, ["then"]);
}

/// Shows: STR-071.
#[tokio::test]
async fn savepoints_nest_and_undo_only_what_came_after_them() {
    let place = Place::new();
    let store = place.open().await;
    let written = store
        .write("steps", |tx| {
            Box::pin(async move {
                insert(tx, "kept").await?;
                tx.savepoint().await?;
                insert(tx, "outer").await?;
                tx.savepoint().await?;
                insert(tx, "inner").await?;
                tx.rollback_to().await?;
                insert(tx, "after inner").await?;
                tx.release().await?;
                tx.savepoint().await?;
                insert(tx, "undone").await?;
                tx.rollback_to().await?;
                assert!(matches!(tx.release().await, Err(StoreError::NoSavepoint)));
                assert!(matches!(tx.rollback_to().await, Err(StoreError::NoSavepoint)));
                texts_in(tx).await
            })
        })
        .await
        .unwrap();
    assert_eq!(written, ["kept", "outer", "after inner"]);
    assert_eq!(texts(&store).await, written);
}

/// Shows: PROC-052.
#[tokio::test]
async fn a_gate_cancelled_after_the_tentative_write_rolls_it_back() {
    let place = Place::new();
    let store = place.open().await;
    let gate = CommitGate::pending();
    let cancelled = gate.clone();
    let outcome: Result<GateOutcome<()>, StoreError> = store
        .write_gated("acknowledge", gate, move |tx| {
            Box::pin(async move {
                insert(tx, "tentative").await?;
                assert!(cancelled.cancel());
                Ok(())
            })
        })
        .await;
    assert_eq!(outcome.unwrap(), GateOutcome::Cancelled);
    assert!(texts(&store).await.is_empty());
}

/// Shows: PROC-052.
#[tokio::test]
async fn an_admitted_commit_stays() {
    let place = Place::new();
    let store = place.open().await;
    let gate = CommitGate::pending();
    let outcome: Result<_, StoreError> = store
        .write_gated("acknowledge", gate.clone(), |tx| {
            Box::pin(async move { insert(tx, "acknowledged").await })
        })
        .await;
    assert_eq!(outcome.unwrap(), GateOutcome::Committed(()));
    assert!(!gate.cancel(), "the commit was admitted before");
    assert_eq!(texts(&store).await, ["acknowledged"]);
}

/// Shows: PROC-052.
#[tokio::test]
async fn dropping_a_gated_write_before_its_commit_withdraws_it() {
    let place = Place::new();
    let store = place.open().await;
    let gate = CommitGate::pending();
    let (reached, is_reached) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let task = tokio::spawn({
        let (store, gate) = (store.clone(), gate.clone());
        async move {
            store
                .write_gated("acknowledge", gate, move |tx| {
                    Box::pin(async move {
                        insert(tx, "withdrawn").await?;
                        reached.send(()).unwrap();
                        goes_on.await.unwrap();
                        Ok::<_, StoreError>(())
                    })
                })
                .await
        }
    });
    is_reached.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    go_on.send(()).unwrap();
    write(&store, "next").await.unwrap();
    assert!(!gate.admit());
    assert_eq!(texts(&store).await, ["next"]);
}

/// Shows: STR-070, STR-071.
#[tokio::test]
async fn dropping_the_caller_of_a_write_does_not_split_it() {
    let place = Place::new();
    let store = place.open().await;
    let (reached, is_reached) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let task = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .write("outlives its caller", move |tx| {
                    Box::pin(async move {
                        insert(tx, "first").await?;
                        reached.send(()).unwrap();
                        goes_on.await.unwrap();
                        insert(tx, "second").await
                    })
                })
                .await
        }
    });
    is_reached.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(texts(&store).await.is_empty(), "nothing shows before the commit");
    go_on.send(()).unwrap();
    write(&store, "third").await.unwrap();
    assert_eq!(texts(&store).await, ["first", "second", "third"]);
}

#[tokio::test]
async fn a_read_is_one_snapshot_and_can_not_write() {
    let place = Place::new();
    let store = place.open().await;
    write(&store, "old").await.unwrap();
    let writer = store.clone();
    let seen = store
        .read("snapshot", move |tx| {
            Box::pin(async move {
                let before = texts_in(tx).await?;
                write(&writer, "new").await?;
                Ok::<_, StoreError>((before, texts_in(tx).await?))
            })
        })
        .await
        .unwrap();
    assert_eq!(seen, (vec!["old".to_owned()], vec!["old".to_owned()]));
    assert_eq!(texts(&store).await, ["old", "new"]);
    let refused: Result<(), StoreError> = store
        .read("writes", |tx| {
            Box::pin(async move {
                sqlx::query("DELETE FROM notes_rows").execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
}

/// Shows: STR-078.
#[tokio::test]
async fn a_commit_wakes_at_once_and_a_rollback_does_not() {
    let place = Place::new();
    let store = place.open().await;
    let mut wakes = store.wakes();
    let before = *wakes.borrow_and_update();
    let failed: Result<(), StoreError> = store
        .write("fails", |tx| {
            Box::pin(async move {
                insert(tx, "never").await?;
                Err(StoreError::NoSavepoint)
            })
        })
        .await;
    assert!(failed.is_err());
    tokio::time::sleep(ACTIVE_DATABASE_POLL_INTERVAL * 3).await;
    assert_eq!(*wakes.borrow(), before);
    write(&store, "now").await.unwrap();
    assert!(wakes.has_changed().unwrap(), "the wake is raised before the write returns");
}

/// Shows: STR-078, STR-079.
#[tokio::test]
async fn another_connections_commit_wakes_within_a_poll() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    let mut wakes = store.wakes();
    // What the opening of the other store did may still be noticed.
    tokio::time::sleep(ACTIVE_DATABASE_POLL_INTERVAL * 2).await;
    wakes.borrow_and_update();
    write(&other, "from elsewhere").await.unwrap();
    tokio::time::timeout(SOON, wakes.changed()).await.unwrap().unwrap();
    assert_eq!(texts(&store).await, ["from elsewhere"]);
}

#[tokio::test]
async fn a_full_disk_is_an_error_of_its_own_and_nothing_is_lost() {
    let place = Place::new();
    let store = place.open().await;
    write(&store, "before").await.unwrap();
    limit_pages(&store, 0).await;
    let failed: Result<(), StoreError> =
        store.write("fills", |tx| Box::pin(async move { insert(tx, &"x".repeat(100_000)).await })).await;
    let error = failed.unwrap_err();
    assert!(error.is_disk_full() && !error.is_retryable(), "{error:?}");
    limit_pages(&store, 1_000_000).await;
    write(&store, "after").await.unwrap();
    assert_eq!(texts(&store).await, ["before", "after"]);
    store.close().await;
    assert_eq!(texts(&place.open().await).await, ["before", "after"]);
}

async fn limit_pages(store: &highwater_store::Store, spare: u32) {
    let limited: Result<(), StoreError> = store
        .write("limit", move |tx| {
            Box::pin(async move {
                let pages: u32 = sqlx::query_scalar("PRAGMA page_count").fetch_one(tx.conn()).await?;
                let limit = format!("PRAGMA max_page_count = {}", pages + spare);
                sqlx::raw_sql(sqlx::AssertSqlSafe(limit)).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    limited.unwrap();
}

/// A transaction that was ended behind the store's back: COMMIT has nothing to commit, and says so.
#[tokio::test]
async fn a_connection_in_an_unknown_state_is_replaced() {
    let place = Place::new();
    let store = place.open().await;
    let outcome: Result<(), StoreError> = store
        .write("ends itself", |tx| {
            Box::pin(async move {
                insert(tx, "rolled back").await?;
                sqlx::query("ROLLBACK").execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    assert!(matches!(outcome, Err(StoreError::CommitUnknown { name: "ends itself", .. })), "{outcome:?}");
    write(&store, "works").await.unwrap();
    assert_eq!(texts(&store).await, ["works"]);
}

#[tokio::test]
async fn writes_and_reads_beside_each_other_all_end() {
    let place = Place::new();
    let store = place.open().await;
    let overlap = Arc::new(AtomicBool::new(false));
    let tasks = (0..40).map(|_| {
        let (store, overlap) = (store.clone(), Arc::clone(&overlap));
        tokio::spawn(async move {
            store
                .write("alone", move |tx: &mut WriteTx| {
                    Box::pin(async move {
                        assert!(!overlap.swap(true, Ordering::SeqCst), "two writers at once");
                        insert(tx, "one").await?;
                        tokio::task::yield_now().await;
                        overlap.store(false, Ordering::SeqCst);
                        Ok::<_, StoreError>(())
                    })
                })
                .await
                .unwrap();
            texts(&store).await.len()
        })
    });
    let seen = futures::future::join_all(tasks).await;
    assert!(seen.into_iter().all(|seen| seen.unwrap() > 0));
    assert_eq!(texts(&store).await.len(), 40);
    let found = store.read("audit", |tx| Box::pin(async move { audit(tx).await })).await.unwrap();
    assert!(found.is_clean() && found.checks == 4, "{found:?}");
}

/// Shows: STR-064.
#[tokio::test]
async fn every_connection_has_the_settings_that_durability_needs() {
    async fn setting(conn: &mut SqliteConnection, sql: &'static str) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar(sql).fetch_one(conn).await?)
    }
    let place = Place::new();
    let store = place.open().await;
    let (mode, synchronous, foreign_keys, temp_store) = store
        .write("settings", |tx| {
            Box::pin(async move {
                let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(tx.conn()).await?;
                Ok::<_, StoreError>((
                    mode,
                    setting(tx.conn(), "PRAGMA synchronous").await?,
                    setting(tx.conn(), "PRAGMA foreign_keys").await?,
                    setting(tx.conn(), "PRAGMA temp_store").await?,
                ))
            })
        })
        .await
        .unwrap();
    assert_eq!((mode.as_str(), synchronous, foreign_keys, temp_store), ("wal", 2, 1, 2));
}
