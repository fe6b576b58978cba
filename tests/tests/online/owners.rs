//! Several processes that want to be the default consumer of one database: stopped, resumed, and racing.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use crate::handing_out::{Consumer, Inbox};
use crate::process::PATIENCE;
use crate::{seed, size};

/// Short, so that a test can sit it out. A process that isn't stopped renews it three times as often.
const LEASE: Duration = Duration::from_secs(3);

/// Another process takes over from one that is stopped, as soon as the lease has run out and not before.
async fn take_over(inbox: &Inbox) -> Consumer {
    let mut successor = Consumer::start(inbox).await;
    assert_eq!(successor.ask("open").await["failed"], "already active");
    let deadline = Instant::now() + PATIENCE;
    while successor.ask("open").await["opened"] != true {
        assert!(Instant::now() < deadline, "the lease never ran out");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    successor
}

/// What the old owner can't do any more, whatever it was about to: hand out, or move D.
async fn is_over(inbox: &Inbox, old: &mut Consumer, first: &str, d: u64) {
    assert_eq!(old.ask(first).await["failed"], "ownership lost");
    for command in ["next", "acknowledge"] {
        assert_eq!(old.ask(command).await["failed"], "ended");
    }
    assert_eq!(inbox.d().await, d);
}

/// Shows: STR-096, PROC-031.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_owner_woken_after_its_lease_can_do_nothing() {
    let mut inbox = Inbox::with(2, LEASE).await;
    let mut old = Consumer::owner(&inbox).await;
    old.expect(1).await;
    old.ask("acknowledge").await;
    old.process.signal("STOP").await;
    let mut new = take_over(&inbox).await;
    new.expect(2).await;
    old.process.signal("CONT").await;
    inbox.arrive(1).await;
    is_over(&inbox, &mut old, "next", 1).await;
    new.expect(3).await;
    assert_eq!(inbox.d().await, 2);
    // The end of the old one takes nothing from the new one.
    assert_eq!(old.ask("close").await["closed"], true);
    assert_eq!(old.ask("open").await["failed"], "already active");
    new.ask("acknowledge").await;
    assert_eq!(inbox.d().await, 3);
    inbox.audit().await;
}

/// Shows: STR-095, STR-096, PROC-031.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_with_an_item_out_woken_after_its_lease_can_do_nothing() {
    for first in ["next", "acknowledge"] {
        let inbox = Inbox::with(3, LEASE).await;
        let mut old = Consumer::owner(&inbox).await;
        let out = old.expect(1).await;
        old.process.signal("STOP").await;
        let mut new = take_over(&inbox).await;
        assert_eq!(new.expect(1).await, out);
        old.process.signal("CONT").await;
        is_over(&inbox, &mut old, first, 0).await;
        new.expect(2).await;
        stands_at(&inbox, 1).await;
        new.expect(3).await;
    }
}

async fn stands_at(inbox: &Inbox, d: u64) {
    assert_eq!(inbox.d().await, d);
    inbox.audit().await;
}

/// Stopped when it has asked for its acknowledgement to be written and waits for the writer.
///
/// Shows: STR-096, PROC-031, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_stopped_on_its_way_to_the_writer_writes_nothing_when_it_is_woken_after_its_lease() {
    for asks in ["next", "acknowledge"] {
        let inbox = Inbox::with(3, LEASE).await;
        let mut old = Consumer::owner(&inbox).await;
        old.expect(1).await;
        let writer = inbox.take_writer().await;
        old.begin(asks).await;
        old.process.signal("STOP").await;
        writer.give_back().await;
        let mut new = take_over(&inbox).await;
        new.expect(1).await;
        old.process.signal("CONT").await;
        assert_eq!(old.answer().await["failed"], "ownership lost", "{asks}");
        assert_eq!(inbox.d().await, 0);
        new.expect(2).await;
        stands_at(&inbox, 1).await;
    }
}

/// Stopped with the writer in its hands, in the middle of writing D: until it is woken nobody can write, so nobody takes
/// over. Then it is whoever has the writer next, the old one's renewal or the new one. There are never two.
///
/// Shows: STR-096, PROC-031, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_stopped_while_it_writes_is_still_the_only_one() {
    let inbox = Inbox::with(3, LEASE).await;
    slow_acknowledgements(&inbox).await;
    let mut new = Consumer::start(&inbox).await;
    let mut old = Consumer::owner(&inbox).await;
    old.expect(1).await;
    old.begin("next").await;
    while !writer_is_taken(&inbox).await {}
    old.process.signal("STOP").await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(inbox.d().await, 0);
    new.process.tell("open").await;
    old.process.signal("CONT").await;
    assert_eq!(old.answer().await["number"], 2);
    let answer = new.answer().await;
    assert_eq!(inbox.d().await, 1);
    if answer["opened"] == true {
        new.expect(2).await;
        is_over(&inbox, &mut old, "next", 1).await;
        new.expect(3).await;
    } else {
        assert_eq!(answer["failed"], "already active");
        old.expect(3).await;
    }
    stands_at(&inbox, 2).await;
}

/// Writing D takes a while.
async fn slow_acknowledgements(inbox: &Inbox) {
    let slow = "CREATE TRIGGER delivery_test_slow AFTER INSERT ON delivery_positions BEGIN \
         SELECT (WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000000) \
                 SELECT count(*) FROM c); END";
    let made: Result<(), highwater_delivery::DeliveryError> = inbox
        .store
        .write("slow", move |tx| {
            Box::pin(async move {
                sqlx::query(slow).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    made.unwrap();
}

/// Whether a transaction of another process holds the writer. Asked without waiting.
async fn writer_is_taken(inbox: &Inbox) -> bool {
    match highwater_store::Store::open(inbox.without_waiting()).await {
        Ok(store) => {
            store.close().await;
            false
        }
        Err(error) => {
            assert!(matches!(error, highwater_store::OpenError::Busy), "{error:?}");
            true
        }
    }
}

/// An owner that closes hands its place over at once, whether its database stays open, is closed, or its process ends.
///
/// Shows: STR-096, STR-097, PROC-031.
#[tokio::test(flavor = "multi_thread")]
async fn a_clean_close_hands_over_at_once() {
    let inbox = Inbox::with(30, Duration::from_secs(3600)).await;
    let mut one = Consumer::owner(&inbox).await;
    let mut other = Consumer::start(&inbox).await;
    for number in 1..=20 {
        one.expect(number).await;
        assert_eq!(one.ask("acknowledge").await["acknowledged"], "stored");
        assert_eq!(other.ask("open").await["failed"], "already active");
        assert_eq!(one.ask("close").await["closed"], true);
        assert_eq!(other.ask("open").await["opened"], true, "{number}");
        std::mem::swap(&mut one, &mut other);
    }
    one.process.end().await;
    assert_eq!(other.ask("open").await["opened"], true);
    other.expect(21).await;
}

/// Three processes ask at the same moment, again and again; the last owner has closed, has died, or its process lives on
/// without a reader. One of them gets the place each time, the others are told, and every item is acknowledged once.
///
/// Shows: STR-023, STR-096, PROC-026, PROC-031.
#[tokio::test(flavor = "multi_thread")]
async fn of_three_processes_that_race_one_owns() {
    let rounds = size(50, 1_000);
    let mut random = StdRng::seed_from_u64(seed());
    let inbox = Inbox::with(rounds, Duration::from_secs(3600)).await;
    let mut racers = Vec::new();
    for _ in 0..3 {
        racers.push(Consumer::start(&inbox).await);
    }
    let mut wins = [0; 3];
    for round in 1..=rounds {
        for racer in &mut racers {
            racer.process.tell("open").await;
        }
        let mut owner = None;
        for (which, racer) in racers.iter_mut().enumerate() {
            let answer = racer.answer().await;
            if answer["opened"] == true {
                assert!(owner.replace(which).is_none(), "two owners in round {round}");
            } else {
                assert_eq!(answer["failed"], "already active", "{answer}");
            }
        }
        let owner = owner.unwrap_or_else(|| panic!("nobody owned in round {round}"));
        wins[owner] += 1;
        racers[owner].expect(round).await;
        assert_eq!(racers[owner].ask("acknowledge").await["acknowledged"], "stored");
        assert_eq!(inbox.d().await, round);
        if random.random_bool(0.2) {
            let fresh = Consumer::start(&inbox).await;
            std::mem::replace(&mut racers[owner], fresh).process.kill().await;
        } else {
            assert_eq!(racers[owner].ask("close").await["closed"], true);
        }
    }
    assert!(wins.iter().filter(|wins| **wins > 0).count() > 1, "it was no race: {wins:?}");
    inbox.audit().await;
}
