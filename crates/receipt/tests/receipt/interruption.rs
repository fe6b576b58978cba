//! What a failed or dropped admission leaves behind.

use highwater_receipt::{AdmitError, ReceiptError, admit};
use highwater_store::{Store, StoreError};
use highwater_wire::OrderedPrefix;

use crate::support::*;

async fn admit_then_fail(store: &Store, prefix: OrderedPrefix) {
    let failed: Result<(), AdmitError> = store
        .write("fail", move |tx| {
            Box::pin(async move {
                let _ = admit(tx, &prefix).await?;
                Err(ReceiptError::Damaged("a later step of the same transaction").into())
            })
        })
        .await;
    failed.unwrap_err();
}

/// Shows: STR-061, PROC-002.
#[tokio::test]
async fn a_transaction_that_fails_after_admission_leaves_rows_and_f_as_they_were() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    admit_then_fail(store, prefix(topic, 0, [1, 2])).await;
    assert_eq!((f(store, topic).await, ids(store, topic).await.len()), (0, 0));
    admit_all(store, prefix(topic, 0, [1, 2])).await;
    admit_then_fail(store, prefix(topic, 2, [3])).await;
    assert_eq!((f(store, topic).await, ids(store, topic).await), (2, vec![1, 2]));
    sound(store).await;
}

/// Shows: STR-061, STR-063, PROC-002.
#[tokio::test]
async fn a_full_disk_is_a_typed_error_and_leaves_rows_and_f_as_they_were() {
    let mut fixture = store().await;
    let topic = group(1);
    admit_all(fixture.store(), prefix(topic, 0, [1])).await;
    fixture.fill_disk(2).await.unwrap();
    let large = sized(topic, 1, 2..=20, 10_000);
    let refused = try_admit(fixture.store(), large.clone()).await;
    assert!(
        matches!(refused, Err(AdmitError::Receipt(ReceiptError::Store(StoreError::DiskFull)))),
        "{refused:?}"
    );
    assert_eq!((f(fixture.store(), topic).await, ids(fixture.store(), topic).await), (1, vec![1]));
    fixture.reopen().await;
    admit_all(fixture.store(), large).await;
    assert_eq!(f(fixture.store(), topic).await, 20);
    sound(fixture.store()).await;
}

/// A refused topic doesn't spoil the transaction for the others in it.
/// Shows: STR-062, PROC-020.
#[tokio::test]
async fn a_gap_on_one_topic_leaves_the_rest_of_the_transaction_good() {
    let fixture = store().await;
    let store = fixture.store();
    let (gap, good) = (prefix(group(1), 5, [6]), prefix(group(2), 0, [7]));
    let _ = store
        .write::<_, AdmitError, _>("two topics", move |tx| {
            Box::pin(async move {
                assert!(matches!(admit(tx, &gap).await, Err(AdmitError::Gap { .. })));
                admit(tx, &good).await
            })
        })
        .await
        .unwrap();
    assert_eq!((f(store, group(1)).await, f(store, group(2)).await), (0, 7));
    sound(store).await;
}

/// A caller that gives up at any poll leaves either nothing or all of it (reported failure A4).
/// Shows: STR-061, PROC-002.
#[tokio::test]
async fn an_admission_dropped_at_any_poll_is_whole_or_absent() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    for polls in 0..6 {
        let start = f(store, topic).await;
        let next = prefix(topic, start, [start + 1, start + 2]);
        let mut admission = Box::pin(try_admit(store, next));
        for _ in 0..polls {
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(admission.as_mut().poll(context)));
            if polled.await.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(admission);
        // Another write waits for the writer, so the dropped one has ended by then.
        let _ = try_admit(store, prefix(group(2), 0, [1])).await.unwrap();
        let held = ids(store, topic).await;
        let end = f(store, topic).await;
        assert!(end == start || end == start + 2, "F went from {start} to {end}");
        assert_eq!(held.last().copied().unwrap_or_default(), end);
        sound(store).await;
    }
}
