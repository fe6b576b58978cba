//! A read given up at each of its await points, and in each order of giving up and committing.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use highwater_delivery::{
    Consent, ConsumerError, DEFAULT_CONSUMER_LEASE, DefaultConsumer, DeliveryError, Item, MIGRATIONS,
    Selection,
};
use highwater_store::{DatabaseKey, OpenOptions, Store};
use highwater_testkit_base::{Disk, Kind, Operation, StoreFixture, eventually};

use crate::support::*;

/// Polls as often as it is woken, and gives up at the `points`-th time it has to wait: 0 never polls.
async fn through<F: Future>(future: F, points: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = points;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        let polled = future.as_mut().poll(context).map(Some);
        left -= usize::from(polled.is_pending());
        match polled {
            Poll::Pending if left == 0 => Poll::Ready(None),
            polled => polled,
        }
    })
    .await
}

/// Waits until no write is under way.
async fn settled(store: &Store) {
    store.write::<_, DeliveryError, _>("settled", |_| Box::pin(async { Ok(()) })).await.unwrap();
}

async fn numbers(count: u32) -> StoreFixture {
    let fixture = StoreFixture::fleeting(vec![MIGRATIONS]).await;
    for group in [A, B] {
        put(fixture.store(), conversation(group)).await;
    }
    publish(fixture.store(), (1..=count).map(|n| text(A, &n.to_string())).collect()).await;
    fixture
}

fn number(item: &Item) -> u64 {
    item.cursor.number().unwrap().get()
}

/// What a read hands out, whichever way the app asks.
#[derive(Clone, Copy, Debug)]
enum Asks {
    Next,
    Waits,
    Acknowledges,
}

impl Asks {
    async fn of(self, consumer: &mut DefaultConsumer) -> Result<Option<Item>, ConsumerError> {
        match self {
            Self::Next => consumer.next().await,
            Self::Waits => consumer.next_wait().await.map(Some),
            Self::Acknowledges => consumer.acknowledge().await.map(|_| None),
        }
    }
}

const WAYS: [Asks; 3] = [Asks::Next, Asks::Waits, Asks::Acknowledges];

/// Shows: STR-094, PROC-052.
#[tokio::test]
async fn a_read_given_up_at_any_await_point_acknowledged_its_item_or_did_not_and_handed_out_nothing() {
    for asks in WAYS {
        let fixture = numbers(60).await;
        let store = fixture.store();
        let mut consumer = open(store, Selection::all()).await;
        let mut out = number(&consumer.next().await.unwrap().unwrap());
        let mut completed = 0;
        for points in 0.. {
            let given_up = through(asks.of(&mut consumer), points).await;
            settled(store).await;
            let covered = d(store, A).await;
            match given_up {
                None => assert!(covered == out - 1 || covered == out, "{asks:?} {points}: D {covered}"),
                Some(done) => {
                    assert_eq!(covered, out, "{asks:?} {points}");
                    out = done.unwrap().as_ref().map_or(out, number);
                    completed += 1;
                }
            }
            // Whether it was acknowledged or not, the one that follows is the next.
            let next = consumer.next().await.unwrap().unwrap();
            assert_eq!(number(&next), out + 1, "{asks:?} {points}");
            assert_eq!(d(store, A).await, out, "{asks:?} {points}");
            out += 1;
            if completed == 3 {
                break;
            }
        }
        drop(consumer);
        let rest: Vec<_> = (out..=60).map(|n| n.to_string()).collect();
        assert_eq!(deliver(store, Selection::all()).await, rest, "{asks:?}");
    }
}

/// A read that passes over thousands of excluded messages takes several turns; wherever it is given up, the next one
/// goes on from what was passed.
/// Shows: STR-093, PROC-047, PROC-052.
#[tokio::test]
async fn a_read_given_up_between_its_turns_goes_on_where_it_was() {
    let fixture = numbers(0).await;
    let store = fixture.store();
    consent(store, B, Consent::Denied).await;
    let allowed = Selection::all().with_consent([Consent::Allowed]);
    let mut completed = false;
    let mut points = 0;
    while !completed {
        publish(store, (0..2_100).map(|n| text(B, &format!("{points}.{n}"))).collect()).await;
        let after = format!("after {points}");
        arrive(store, &[(A, &after)]).await;
        let mut consumer = open(store, allowed.clone()).await;
        if let Some(item) = through(consumer.next(), points).await {
            assert_eq!(name(&item.unwrap().unwrap()), after);
            completed = true;
        } else {
            settled(store).await;
            assert_eq!(drain(&mut consumer).await, [after]);
        }
        assert!(consumer.next().await.unwrap().is_none());
        consumer.release().await.unwrap();
        assert_eq!(d(store, B).await, d(store, A).await - 1);
        points += 1;
    }
    assert!(points > 4, "it took {points} points to wait at");
    sound(store).await;
}

/// Shows: STR-096, PROC-031, PROC-052.
#[tokio::test]
async fn a_read_given_up_while_it_takes_its_lease_anew_leaves_a_consumer_that_can_be_used() {
    for asks in WAYS {
        let mut completed = false;
        for points in 0.. {
            let fixture = numbers(3).await;
            let store = fixture.store();
            let mut consumer = open(store, Selection::all()).await;
            assert_eq!(next(&mut consumer).await, "1");
            fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
            if let Some(done) = through(asks.of(&mut consumer), points).await {
                assert!(done.unwrap().is_none_or(|item| number(&item) == 2));
                completed = true;
            }
            settled(store).await;
            let acknowledged = d(store, A).await;
            assert!(acknowledged == 1 || !completed && acknowledged == 0, "{asks:?} {points}");
            let mut rest = vec![next(&mut consumer).await];
            let expected = if completed && !matches!(asks, Asks::Acknowledges) { "3" } else { "2" };
            assert_eq!(rest, [expected], "{asks:?} {points}");
            assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
            rest.extend(drain(&mut consumer).await);
            assert_eq!(rest.last().unwrap(), "3");
            assert_eq!(d(store, A).await, 3);
            if completed {
                break;
            }
        }
    }
}

/// A store whose disk can be made to wait.
async fn on_a_disk(folder: &tempfile::TempDir) -> (Store, Disk) {
    let disk = Disk::new();
    let options = OpenOptions::new(folder.path().join("held.db"), DatabaseKey::generate(), vec![MIGRATIONS]);
    let store = Store::open(options.vfs(disk.vfs())).await.unwrap();
    put(&store, conversation(A)).await;
    arrive(&store, &[(A, "1"), (A, "2"), (A, "3")]).await;
    (store, disk)
}

/// The commit was admitted and is on its way to the disk when the read is given up: it is finished, and the item that
/// the read would have handed out was handed to nobody.
/// Shows: STR-094, PROC-052.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_given_up_after_its_commit_was_admitted_has_acknowledged_and_handed_out_nothing() {
    for (asks, operation) in
        WAYS.into_iter().flat_map(|asks| [(asks, Operation::Write), (asks, Operation::Sync)])
    {
        let folder = tempfile::tempdir().unwrap();
        let (store, disk) = on_a_disk(&folder).await;
        let mut consumer = open(&store, Selection::all()).await;
        assert_eq!(next(&mut consumer).await, "1");
        disk.hold(operation, Kind::Wal);
        let mut read = Box::pin(asks.of(&mut consumer));
        assert!(through(&mut read, 1).await.is_none());
        eventually(Duration::from_secs(20), async || disk.holds()).await;
        drop(read);
        disk.heal();
        settled(&store).await;
        assert_eq!(d(&store, A).await, 1, "{asks:?} {operation:?}");
        assert_eq!(next(&mut consumer).await, "2");
        assert_eq!(d(&store, A).await, 1);
        drop(consumer);
        assert_eq!(deliver(&store, Selection::all()).await, ["2", "3"]);
        store.close().await;
    }
}

/// Committed in full, and given up before the app was told.
/// Shows: STR-094, PROC-052.
#[tokio::test]
async fn a_read_given_up_after_its_commit_hands_the_same_item_to_the_next_one() {
    for asks in WAYS {
        let fixture = numbers(3).await;
        let store = fixture.store();
        let mut consumer = open(store, Selection::all()).await;
        assert_eq!(next(&mut consumer).await, "1");
        let mut read = Box::pin(asks.of(&mut consumer));
        assert!(through(&mut read, 1).await.is_none());
        eventually(Duration::from_secs(20), async || d(store, A).await == 1).await;
        drop(read);
        assert_eq!(next(&mut consumer).await, "2");
        assert_eq!(d(store, A).await, 1);
    }
}

/// Reported failure D2: a future that was given up holds the item back from nobody.
/// Shows: STR-094, PROC-052.
#[tokio::test]
async fn a_future_that_is_kept_and_never_polled_again_lets_nothing_pass() {
    let fixture = numbers(5).await;
    let store = fixture.store();
    let mut consumer = open(store, Selection::all()).await;
    for item in ["1", "2", "3"] {
        assert_eq!(next(&mut consumer).await, item);
    }
    let mut read = Box::pin(consumer.next());
    assert!(through(&mut read, 1).await.is_none());
    settled(store).await;
    // It asked for the next, so 3 may be acknowledged. 4 is not out, whatever the future holds.
    assert!(d(store, A).await <= 3);
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    drop(read);
    drop(consumer);
    let from = d(store, A).await + 1;
    let rest: Vec<_> = (from..=5).map(|n| n.to_string()).collect();
    assert_eq!(deliver(store, Selection::all()).await, rest);
}

/// Reported failure D2: two tasks can't be in one `next()`, the borrow forbids it. Behind a lock they take turns, and
/// each item goes to one of them, in order.
/// Shows: STR-094.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_that_share_a_consumer_get_each_item_once() {
    let fixture = numbers(200).await;
    let consumer =
        std::sync::Arc::new(tokio::sync::Mutex::new(open(fixture.store(), Selection::all()).await));
    let (got, mut all) = tokio::sync::mpsc::unbounded_channel();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (consumer, got) = (consumer.clone(), got.clone());
            tokio::spawn(async move {
                loop {
                    let mut consumer = consumer.lock().await;
                    let Some(item) = consumer.next().await.unwrap() else { return };
                    got.send(number(&item)).unwrap();
                }
            })
        })
        .collect();
    drop(got);
    for task in tasks {
        task.await.unwrap();
    }
    let mut seen = Vec::new();
    while let Some(number) = all.recv().await {
        seen.push(number);
    }
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    consumer.lock().await.acknowledge().await.unwrap();
    assert_eq!(d(fixture.store(), A).await, 200);
}
