//! Case I2: futures dropped at every poll.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use highwater_store::{CommitGate, Store, StoreError};

use crate::support::{Place, SOON, insert, texts, texts_in};

/// Polls `future` at most `polls` times, whenever it asks to be polled, and drops it. Whether it had ended.
async fn polled<F: Future>(future: F, mut polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A plain write of another task is visible to a second connection at once.
async fn works(store: &Store, other: &Store, round: u32) {
    let text = format!("round {round}");
    let wanted = text.clone();
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.write("plain", move |tx| Box::pin(async move { insert(tx, &text).await })).await }
    });
    tokio::time::timeout(SOON, task).await.unwrap().unwrap().unwrap();
    assert!(texts(other).await.contains(&wanted), "round {round} is not visible");
    assert!(texts(store).await.contains(&wanted), "round {round} reads an old snapshot");
}

/// Two rows, to see a transaction that was split.
async fn pair(store: &Store, round: u32) -> Result<(), StoreError> {
    store
        .write("pair", move |tx| {
            Box::pin(async move {
                insert(tx, &format!("pair {round}")).await?;
                tokio::time::sleep(Duration::from_micros(200)).await;
                insert(tx, &format!("pair {round}")).await
            })
        })
        .await
}

fn count(texts: &[String], text: &str) -> usize {
    texts.iter().filter(|found| *found == text).count()
}

/// Shows: STR-071.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_dropped_at_any_poll_is_whole_or_absent() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    for polls in 0..4 {
        for round in polls * 25..(polls + 1) * 25 {
            let ended = polled(pair(&store, round), polls).await;
            works(&store, &other, round).await;
            let seen = async || count(&texts(&other).await, &format!("pair {round}"));
            match ended {
                Some(ended) => assert_eq!((ended.is_ok(), seen().await), (true, 2)),
                None if polls == 0 => assert_eq!(seen().await, 0),
                // One that was polled runs to its end, perhaps after the plain write.
                None => loop {
                    match seen().await {
                        2 => break,
                        partly => assert_eq!(partly, 0, "the write was split"),
                    }
                },
            }
        }
    }
}

/// Shows: PROC-052.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_write_dropped_at_any_poll_is_whole_or_absent() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    for round in 0..100 {
        let gate = CommitGate::pending();
        let text = format!("gated {round}");
        let wanted = text.clone();
        let ended = polled(
            store.write_gated("gated", gate.clone(), move |tx| {
                Box::pin(async move {
                    insert(tx, &text).await?;
                    insert(tx, &text).await
                })
            }),
            round % 4,
        )
        .await;
        let admitted = gate.admit();
        let _: Option<Result<_, StoreError>> = ended;
        works(&store, &other, round).await;
        let seen = count(&texts(&other).await, &wanted);
        assert_eq!(seen, if admitted && round % 4 > 0 { 2 } else { 0 }, "round {round}");
    }
}

/// Reads are dropped by the poll and by the microsecond, alone and beside writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_dropped_anywhere_ends_its_snapshot_and_poisons_nothing() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    for round in 0..150_u32 {
        let read = store.read("dropped", |tx| {
            Box::pin(async move {
                for _ in 0..5 {
                    texts_in(tx).await?;
                }
                Ok::<_, StoreError>(())
            })
        });
        if round % 2 == 0 {
            let _ = polled(read, round % 6).await;
        } else {
            let within = Duration::from_micros(u64::from(round) * 10);
            let _ = tokio::time::timeout(within, read).await;
        }
        if round % 3 == 0 {
            works(&store, &other, round).await;
        }
    }
    other.close().await;
    tokio::time::timeout(SOON, store.close()).await.unwrap();
    let files = place.files();
    assert_eq!(files.into_keys().collect::<Vec<_>>(), ["notes.db"], "an old snapshot held the WAL");
}

/// Tasks aborted at any moment, whatever they are about: with the rounds above that makes a thousand.
///
/// Shows: STR-071.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_aborted_anywhere_poisons_nothing() {
    let place = Place::new();
    let (store, other) = (place.open().await, place.open().await);
    for round in 1_000..1_650_u32 {
        let task = tokio::spawn({
            let store = store.clone();
            async move {
                match round % 3 {
                    0 => pair(&store, round).await,
                    1 => {
                        let gate = CommitGate::pending();
                        let text = format!("aborted {round}");
                        let gated = store.write_gated("gated", gate, move |tx| {
                            Box::pin(async move { insert(tx, &text).await })
                        });
                        gated.await.map(|_| ())
                    }
                    _ => texts_of(&store).await,
                }
            }
        });
        tokio::time::sleep(Duration::from_micros(u64::from(round % 40) * 25)).await;
        task.abort();
        let _ = task.await;
        works(&store, &other, round).await;
        let split = count(&texts(&other).await, &format!("pair {round}"));
        assert_ne!(split, 1, "the write was split");
    }
    other.close().await;
    tokio::time::timeout(SOON, store.close()).await.unwrap();
    let files = place.files();
    assert_eq!(files.into_keys().collect::<Vec<_>>(), ["notes.db"], "a lock was left behind");
}

/// Reads everything once.
async fn texts_of(store: &Store) -> Result<(), StoreError> {
    store
        .read("texts", |tx| {
            Box::pin(async move {
                texts_in(tx).await?;
                Ok(())
            })
        })
        .await
}

/// Opening is dropped by the microsecond: there is a database that opens, or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_dropped_anywhere_can_be_repeated() {
    for round in 0..40_u64 {
        let place = Place::new();
        let within = Duration::from_micros(round * 150);
        let _ = tokio::time::timeout(within, Store::open(place.options())).await;
        let store = place.open().await;
        assert!(texts(&store).await.is_empty());
        store.close().await;
    }
}
