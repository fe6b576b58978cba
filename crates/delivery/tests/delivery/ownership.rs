use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use highwater_delivery::{
    ConsumerError, ConsumerOwner, DEFAULT_CONSUMER_LEASE, DefaultConsumer, DeliveryError, MIGRATIONS,
    Selection, owner,
};
use highwater_store::{DatabaseKey, OpenOptions, Store, StoreError};
use highwater_testkit_base::{Disk, Fault, TestClock, eventually};

use crate::support::*;

async fn recorded(store: &Store) -> Option<ConsumerOwner> {
    store.read::<_, DeliveryError, _>("owner", |tx| Box::pin(async move { owner(tx).await })).await.unwrap()
}

/// Shows: STR-023, STR-096, PROC-031.
#[tokio::test]
async fn a_second_default_consumer_is_refused_until_the_first_closes() {
    let fixture = store().await;
    let store = fixture.store();
    let first = open(store, Selection::groups([A])).await;
    let error = refused(store).await;
    let ConsumerError::AlreadyActive { process, until_ns } = error else { panic!("{error:?}") };
    assert_eq!(process, std::process::id());
    assert_eq!(until_ns, store.now_ns() + DEFAULT_CONSUMER_LEASE.as_nanos() as i64);
    assert!(!error.is_retryable());
    assert_eq!(recorded(store).await.unwrap().until_ns, until_ns);
    first.release().await.unwrap();
    assert!(recorded(store).await.is_none());
    open(store, Selection::all()).await.release().await.unwrap();
}

/// Another connection to the same file is refused as well: it is one database.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn ownership_is_one_over_all_connections_to_the_database() {
    let fixture = store().await;
    let other = fixture.another().await;
    let mut first = open(fixture.store(), Selection::all()).await;
    assert!(matches!(refused(&other).await, ConsumerError::AlreadyActive { .. }));
    arrive(&other, &[(A, "a")]).await;
    assert_eq!(next(&mut first).await, "a");
    first.release().await.unwrap();
    assert_eq!(deliver(&other, Selection::all()).await, ["a"]);
    other.close().await;
}

/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn a_dropped_consumer_is_replaced_at_once() {
    let fixture = store().await;
    let store = fixture.store();
    drop(open(store, Selection::all()).await);
    let left = recorded(store).await.unwrap();
    assert!(left.until_ns > store.now_ns());
    open(store, Selection::all()).await.release().await.unwrap();
}

const CHILD_DATABASE: &str = "HIGHWATER_TEST_CHILD_DATABASE";

/// Not a test of its own: the process that [`a_killed_owner_is_replaced_at_once`] starts and kills.
#[tokio::test]
async fn child_that_owns_until_it_is_killed() {
    let Ok(database) = std::env::var(CHILD_DATABASE) else {
        return;
    };
    let (path, key) = database.split_once('|').unwrap();
    let key = DatabaseKey::from_hex(key).unwrap();
    let options = OpenOptions::new(path, key, vec![MIGRATIONS]).clock(Arc::new(TestClock::default()));
    let store = Store::open(options).await.unwrap();
    let mut consumer = open(&store, Selection::all()).await;
    let item = consumer.next().await.unwrap().unwrap();
    println!("\nowns, has {}", name(&item));
    std::future::pending::<()>().await;
}

/// Shows: STR-095, STR-096, PROC-031.
#[tokio::test]
async fn a_killed_owner_is_replaced_at_once() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b")]).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ownership::child_that_owns_until_it_is_killed", "--exact", "--nocapture"])
        .env(CHILD_DATABASE, format!("{}|{}", fixture.path().display(), fixture.key().to_hex().as_str()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = tokio::task::spawn_blocking(move || {
        lines.find_map(|line| line.ok().filter(|line| line.starts_with("owns")))
    });
    let said = tokio::time::timeout(Duration::from_secs(60), said).await.unwrap().unwrap();
    assert_eq!(said.as_deref(), Some("owns, has a"));

    let error = refused(store).await;
    assert!(
        matches!(error, ConsumerError::AlreadyActive { process: found, .. } if found == process),
        "{error:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // The lease has most of its time left; that the process is gone is enough.
    assert!(recorded(store).await.unwrap().until_ns > store.now_ns());
    assert_eq!(deliver(store, Selection::all()).await, ["a", "b"]);
}

/// The first owner keeps its lock, as a stopped process does, and doesn't renew.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn a_frozen_owner_is_replaced_after_its_lease_and_cannot_move_d_any_more() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b"), (A, "c")]).await;
    let mut frozen = open(store, Selection::all()).await;
    assert_eq!(next(&mut frozen).await, "a");
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE - Duration::from_nanos(1));
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    fixture.clock().advance(Duration::from_nanos(1));

    let mut second = open(store, Selection::all()).await;
    assert_eq!(next(&mut second).await, "a");
    assert_eq!(next(&mut second).await, "b");
    assert_eq!(d(store, A).await, 1);

    let error = frozen.next().await.unwrap_err();
    assert!(matches!(error, ConsumerError::OwnershipLost), "{error:?}");
    assert!(!error.is_retryable());
    assert!(matches!(frozen.acknowledge().await, Err(ConsumerError::Ended)));
    assert_eq!(d(store, A).await, 1);

    // The end of the frozen one frees its lock, but not the second one's place.
    frozen.release().await.unwrap();
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    assert_eq!(next(&mut second).await, "c");
    drop(second);
    assert_eq!(deliver(store, Selection::all()).await, ["c"]);
}

/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn a_late_acknowledgement_of_a_replaced_owner_changes_nothing() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (B, "b")]).await;
    let mut frozen = open(store, Selection::all()).await;
    assert_eq!(next(&mut frozen).await, "a");
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    let second = open(store, Selection::groups([B])).await;
    assert!(matches!(frozen.acknowledge().await, Err(ConsumerError::OwnershipLost)));
    assert_eq!(d(store, A).await, 0);
    second.release().await.unwrap();
    assert_eq!(deliver(store, Selection::all()).await, ["a", "b"]);
}

/// A machine that slept, or a handler that kept its thread busy for longer than the lease: the lease ran out, and nobody
/// asked for the place. It gets on all the same.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn an_owner_whose_lease_ran_out_unnoticed_goes_on_where_it_was() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a");
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    assert_eq!(next(&mut consumer).await, "b");
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }), "it owns again");
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    consumer.acknowledge().await.unwrap();
    assert_eq!(d(store, A).await, 2);
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
}

/// The renewal goes on after the machine slept, so that an owner that waits for a message keeps its place.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn an_idle_owner_keeps_its_place_after_its_machine_slept() {
    let fixture = store().await;
    let store = fixture.store();
    let lease = Duration::from_millis(150);
    let mut owner = DefaultConsumer::acquire_for(lease, store.clone(), Selection::all()).await.unwrap();
    let waiting = tokio::spawn(async move { owner.next_wait().await.map(|item| item.message.id) });
    fixture.clock().advance(2 * lease);
    eventually(Duration::from_secs(30), async || {
        recorded(store).await.is_some_and(|owner| owner.until_ns > store.now_ns())
    })
    .await;
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    arrive(store, &[(A, "a")]).await;
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap().unwrap();
}

/// Shows: STR-096, PROC-031, PROC-040.
#[tokio::test]
async fn an_owner_that_waits_is_told_when_another_takes_over() {
    let fixture = store().await;
    let store = fixture.store();
    let mut old = open(store, Selection::all()).await;
    let waiting = tokio::spawn(async move { old.next_wait().await });
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    let _new = open(store, Selection::all()).await;
    let told = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
    assert!(matches!(told, Err(ConsumerError::OwnershipLost)), "{told:?}");
}

/// Shows: STR-079, STR-096.
#[tokio::test]
async fn a_living_owner_renews_its_lease() {
    let fixture = store().await;
    let store = fixture.store();
    let lease = Duration::from_millis(300);
    let consumer = DefaultConsumer::acquire_for(lease, store.clone(), Selection::all()).await.unwrap();
    let until = recorded(store).await.unwrap().until_ns;
    fixture.clock().advance(lease / 2);
    eventually(Duration::from_secs(30), async || {
        recorded(store).await.is_some_and(|owner| owner.until_ns > until)
    })
    .await;
    fixture.clock().advance(lease / 2);
    assert!(matches!(refused(store).await, ConsumerError::AlreadyActive { .. }));
    consumer.release().await.unwrap();
}

/// The disk is full when the lease is to be renewed. That ends the owner with its cause, whether it waits for an item or has
/// one out; nothing is retried behind the app's back, and what was out comes again.
/// Shows: STR-079, STR-096, PROC-031, PROC-040.
#[tokio::test]
async fn a_renewal_that_fails_ends_the_owner_with_its_cause() {
    let lease = Duration::from_millis(300);
    for waits in [true, false] {
        let fixture = store().await;
        arrive(fixture.store(), &[(A, "a")]).await;
        let disk = Disk::new();
        let ours = Store::open(fixture.options().vfs(disk.vfs())).await.unwrap();
        let mut owner = DefaultConsumer::acquire_for(lease, ours.clone(), Selection::all()).await.unwrap();
        assert_eq!(next(&mut owner).await, "a");
        if waits {
            assert!(owner.next().await.unwrap().is_none());
        }
        disk.arm(0, Fault::Full);
        // A lease that ends where it ended is nothing to write.
        fixture.clock().advance(lease / 2);
        let ends = async {
            match waits {
                true => owner.next_wait().await.unwrap_err(),
                false => owner.failed().await,
            }
        };
        let error = tokio::time::timeout(Duration::from_secs(30), ends).await.unwrap();
        let full = ConsumerError::Delivery(DeliveryError::Store(StoreError::DiskFull));
        assert_eq!(error.to_string(), full.to_string());
        disk.heal();
        assert!(matches!(owner.next().await, Err(ConsumerError::Ended)), "the error is told once");
        let mut next_owner = open(fixture.store(), Selection::all()).await;
        let found = next_owner.next().await.unwrap();
        assert_eq!(found.map(|item| name(&item)), (!waits).then(|| "a".to_owned()));
        next_owner.release().await.unwrap();
        drop(owner);
        ours.close().await;
    }
}

/// A reader that failed is over, though the app has not let go of it.
/// Shows: PROC-031, PROC-040.
#[tokio::test]
async fn a_consumer_that_ended_with_an_error_keeps_nobody_out() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b")]).await;
    let mut failed = open(store, Selection::all()).await;
    assert_eq!(next(&mut failed).await, "a");
    run(store, "ALTER TABLE delivery_positions RENAME TO delivery_test_positions").await;
    failed.next().await.unwrap_err();
    run(store, "ALTER TABLE delivery_test_positions RENAME TO delivery_positions").await;
    assert_eq!(deliver(store, Selection::all()).await, ["a", "b"]);
    assert!(matches!(failed.next().await, Err(ConsumerError::Ended)));
    failed.release().await.unwrap();
}

async fn run(store: &Store, sql: &'static str) {
    let done: Result<(), DeliveryError> = store
        .write("run", move |tx| {
            Box::pin(async move {
                sqlx::query(sql).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    done.unwrap();
}

/// Many ask at the same moment, while the last owner's row is still there.
/// Shows: STR-096, PROC-031.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_successors_of_a_dead_owner_one_succeeds() {
    let fixture = store().await;
    let store = fixture.store();
    drop(open(store, Selection::all()).await);
    let attempts: Vec<_> =
        (0..8).map(|_| tokio::spawn(DefaultConsumer::acquire(store.clone(), Selection::all()))).collect();
    let mut owners = Vec::new();
    for attempt in attempts {
        match attempt.await.unwrap() {
            Ok(owner) => owners.push(owner),
            Err(error) => assert!(matches!(error, ConsumerError::AlreadyActive { .. })),
        }
    }
    assert_eq!(owners.len(), 1);
}
