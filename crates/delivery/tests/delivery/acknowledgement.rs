use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use highwater_delivery::{ConsumerError, DeliveryError, Selection};
use highwater_store::{OpenError, Store, StoreError};

use highwater_wire::GroupId;

use crate::support::*;

async fn five() -> highwater_testkit_base::StoreFixture {
    let fixture = store().await;
    let names = ["1", "2", "3", "4", "5"].map(|name| (A, name));
    arrive(fixture.store(), &names).await;
    fixture
}

/// Shows: STR-094, PROC-052.
#[tokio::test]
async fn asking_for_the_next_item_acknowledges_the_last_and_handing_out_does_not() {
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    for (item, before) in [("1", 0), ("2", 1), ("3", 2)] {
        assert_eq!(next(&mut consumer).await, item);
        assert_eq!(d(store, A).await, before);
    }
    consumer.acknowledge().await.unwrap();
    assert_eq!(d(store, A).await, 3);
    assert!(consumer.out().is_none());
    consumer.acknowledge().await.unwrap();
    assert_eq!(drain(&mut consumer).await, ["4", "5"]);
    assert_eq!(d(store, A).await, 5);
}

/// Reported failure D2: whatever ends the reader while 3 is out, the next one starts with 3.
/// Shows: STR-094, STR-095, STR-097, PROC-052.
#[tokio::test]
async fn dropping_or_closing_with_an_item_out_acknowledges_nothing() {
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    for item in ["1", "2", "3"] {
        assert_eq!(next(&mut consumer).await, item);
    }
    consumer.release().await.unwrap();
    assert_eq!(d(store, A).await, 2);

    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "3");
    drop(consumer);
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "3");
    // A handler that panics takes the consumer with it.
    let panicked = tokio::spawn(async move {
        let _in_hand = consumer;
        panic!("the handler of the test");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(d(store, A).await, 2);
    assert_eq!(deliver(store, Selection::all()).await, ["3", "4", "5"]);
}

/// Reported failure D2: the handler of 3 returns an error, and the error is the caller's.
/// Shows: STR-094, STR-095, PROC-052.
#[tokio::test]
async fn a_handler_that_fails_acknowledges_nothing_and_its_error_arrives() {
    async fn handle_all(consumer: &mut highwater_delivery::DefaultConsumer) -> Result<(), String> {
        while let Some(item) = consumer.next().await.unwrap() {
            match name(&item).as_str() {
                "3" => return Err("the handler of the test".into()),
                _ => continue,
            }
        }
        Ok(())
    }
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(handle_all(&mut consumer).await.unwrap_err(), "the handler of the test");
    assert_eq!(d(store, A).await, 2);
    assert_eq!(consumer.out().unwrap().number().unwrap().get(), 3);
    drop(consumer);
    assert_eq!(deliver(store, Selection::all()).await, ["3", "4", "5"]);
}

async fn poll_times<F: Future + Unpin>(future: &mut F, times: usize) -> Option<F::Output> {
    for _ in 0..times {
        let polled = poll_fn(|context| {
            Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        });
        if let Some(output) = polled.await {
            return Some(output);
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    None
}

/// Waits until no write is under way.
async fn settled(store: &Store) {
    store.write::<_, DeliveryError, _>("settled", |_| Box::pin(async { Ok(()) })).await.unwrap();
}

/// Shows: PROC-052, STR-094.
#[tokio::test]
async fn a_dropped_read_has_acknowledged_its_item_or_left_it_out_and_handed_out_nothing() {
    let fixture = store().await;
    let store = fixture.store();
    let names: Vec<_> = (1..=40).map(|n| n.to_string()).collect();
    publish(store, names.iter().map(|name| text(A, name)).collect()).await;
    let mut consumer = open(store, Selection::all()).await;
    let mut out = 0;
    for polls in 0..30 {
        let before = d(store, A).await;
        let mut read = Box::pin(consumer.next());
        let done = poll_times(&mut read, polls % 10).await;
        drop(read);
        settled(store).await;
        let after = d(store, A).await;
        match done {
            Some(item) => {
                assert_eq!(after, out, "asking acknowledged the item that was out");
                out = item.unwrap().unwrap().cursor.number().unwrap().get();
                assert_eq!(out, after + 1);
            }
            None => assert!(after == before || after == out, "D {before} -> {after}, out {out}"),
        }
    }
    // Whatever happened, nothing was skipped.
    drop(consumer);
    let resumed = d(store, A).await as usize;
    assert_eq!(deliver(store, Selection::all()).await, names[resumed..]);
}

/// The writer is busy, so the acknowledgement can't have been admitted when its read is dropped.
/// Shows: PROC-052.
#[tokio::test]
async fn a_read_dropped_before_its_commit_is_admitted_leaves_the_item_out() {
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "1");
    let (release, held) = tokio::sync::oneshot::channel::<()>();
    let (entered, inside) = tokio::sync::oneshot::channel::<()>();
    let writer = store.clone();
    let busy = tokio::spawn(async move {
        writer
            .write::<_, DeliveryError, _>("busy", move |_| {
                Box::pin(async move {
                    let _ = entered.send(());
                    let _ = held.await;
                    Ok(())
                })
            })
            .await
    });
    inside.await.unwrap();
    let mut read = Box::pin(consumer.next());
    assert!(poll_times(&mut read, 3).await.is_none());
    drop(read);
    release.send(()).unwrap();
    busy.await.unwrap().unwrap();
    settled(store).await;
    assert_eq!(d(store, A).await, 0);
    assert_eq!(consumer.out().unwrap().number().unwrap().get(), 1);
    // The same consumer goes on: asking again acknowledges 1 and hands out 2.
    assert_eq!(next(&mut consumer).await, "2");
    assert_eq!(d(store, A).await, 1);
}

async fn run(store: &Store, sql: &'static str) -> Result<(), DeliveryError> {
    store
        .write("run", move |tx| {
            Box::pin(async move {
                sqlx::query(sql).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await
}

/// Whether some transaction holds the writer of the database. Asked without waiting, from outside.
async fn writer_is_held(fixture: &highwater_testkit_base::StoreFixture) -> bool {
    let mut options = fixture.options();
    options.busy_timeout = Duration::ZERO;
    match Store::open(options).await {
        Ok(store) => {
            store.close().await;
            false
        }
        Err(error) => {
            assert!(matches!(error, OpenError::Busy), "{error:?}");
            true
        }
    }
}

/// The writer is held and D is being written when the read is dropped; the commit is still to come.
/// Shows: PROC-052.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_dropped_while_its_acknowledgement_is_written_leaves_the_item_out() {
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "1");
    // Writing D takes a while.
    let slow = "CREATE TRIGGER delivery_test_slow AFTER INSERT ON delivery_positions BEGIN \
         SELECT (WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 4000000) \
                 SELECT count(*) FROM c); END";
    run(store, slow).await.unwrap();
    let mut read = Box::pin(consumer.next());
    assert!(poll_times(&mut read, 1).await.is_none());
    while !writer_is_held(&fixture).await {}
    drop(read);
    run(store, "DROP TRIGGER delivery_test_slow").await.unwrap();
    assert_eq!(d(store, A).await, 0);
    drop(consumer);
    assert_eq!(deliver(store, Selection::all()).await, ["1", "2", "3", "4", "5"]);
}

/// Shows: STR-095, PROC-040, PROC-052.
#[tokio::test]
async fn an_acknowledgement_that_cannot_be_stored_ends_the_reader_and_the_item_comes_again() {
    let fixture = five().await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "1");
    let broken = "CREATE TRIGGER delivery_test_fault BEFORE INSERT ON delivery_positions \
         BEGIN SELECT RAISE(ABORT, 'the disk of the test'); END";
    run(store, broken).await.unwrap();
    let error = consumer.next().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Delivery(DeliveryError::Store(_))), "{error:?}");
    assert!(matches!(consumer.next().await, Err(ConsumerError::Ended)));
    assert!(matches!(consumer.acknowledge().await, Err(ConsumerError::Ended)));
    run(store, "DROP TRIGGER delivery_test_fault").await.unwrap();
    assert!(matches!(consumer.next().await, Err(ConsumerError::Ended)));
    drop(consumer);
    assert_eq!(d(store, A).await, 0);
    assert_eq!(deliver(store, Selection::all()).await, ["1", "2", "3", "4", "5"]);
}

/// Shows: STR-095, PROC-040.
#[tokio::test]
async fn a_full_disk_ends_the_reader_with_its_cause_and_loses_nothing() {
    let mut fixture = five().await;
    // Enough groups that their positions need pages of their own.
    let groups: Vec<_> = (0..200_u8).map(|n| GroupId::from_bytes([n; 16])).collect();
    for group in &groups {
        put(fixture.store(), conversation(*group)).await;
    }
    publish(fixture.store(), groups.iter().map(|group| text(*group, "x")).collect()).await;
    fixture.fill_disk(0).await.unwrap();
    let mut consumer = open(fixture.store(), Selection::all()).await;
    let mut handed = 0;
    let error = loop {
        match consumer.next().await {
            Ok(item) => handed += usize::from(item.is_some()),
            Err(error) => break error,
        }
        assert!(handed < 205, "the disk of the test never filled up");
    };
    let full = DeliveryError::Store(StoreError::DiskFull);
    assert_eq!(error.to_string(), full.to_string());
    drop(consumer);
    fixture.reopen().await;
    assert_eq!(deliver(fixture.store(), Selection::all()).await.len(), 205 - handed + 1);
    sound(fixture.store()).await;
}

/// Shows: PROC-040.
#[tokio::test]
async fn a_closed_database_ends_a_waiting_reader() {
    let fixture = store().await;
    let store = fixture.store().clone();
    let mut consumer = open(&store, Selection::all()).await;
    let waiting = tokio::spawn(async move {
        let error = consumer.next_wait().await.unwrap_err();
        (error, matches!(consumer.next().await, Err(ConsumerError::Ended)))
    });
    store.close().await;
    let (error, ended) = waiting.await.unwrap();
    assert!(matches!(error, ConsumerError::Delivery(DeliveryError::Store(_))), "{error:?}");
    assert!(ended);
}
