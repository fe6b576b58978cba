use std::time::Duration;

use highwater_delivery::{
    Consent, Conversation, ConversationType, DeliveryCursor, DeliveryError, NewMessage, Selection, delete,
};
use highwater_wire::GroupId;

use crate::support::*;

/// The example of the specification: A1 and B1 through all groups, A2 through A alone while B2
/// arrives, then all groups again.
/// Shows: STR-091, STR-092, STR-097, PROC-026, PROC-047.
#[tokio::test]
async fn a_group_out_of_scope_keeps_its_backlog_and_nothing_acknowledged_returns() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "A1"), (B, "B1")]).await;
    assert_eq!(deliver(store, Selection::all()).await, ["A1", "B1"]);
    arrive(store, &[(A, "A2"), (B, "B2")]).await;
    assert_eq!(deliver(store, Selection::groups([A])).await, ["A2"]);
    assert_eq!(d(store, B).await, 2);
    assert_eq!(deliver(store, Selection::all()).await, ["B2"]);
    assert_eq!(deliver(store, Selection::all()).await, [""; 0]);
    sound(store).await;
}

/// Shows: STR-093, PROC-046, PROC-047.
#[tokio::test]
async fn a_filter_consumes_what_it_excludes_and_a_later_filter_does_not_bring_it_back() {
    let fixture = store().await;
    let store = fixture.store();
    consent(store, B, Consent::Denied).await;
    arrive(store, &[(A, "a1"), (B, "b1"), (B, "b2"), (D, "d1"), (A, "a2")]).await;
    let allowed = Selection::all().with_consent([Consent::Allowed]);
    let groups = allowed.clone().of_kinds([ConversationType::Group]);
    assert_eq!(deliver(store, groups).await, ["a1", "a2"]);
    assert_eq!((d(store, B).await, d(store, D).await), (3, 4));
    consent(store, B, Consent::Allowed).await;
    arrive(store, &[(B, "b3"), (D, "d2")]).await;
    assert_eq!(deliver(store, Selection::all()).await, ["b3", "d2"]);
    sound(store).await;
}

/// Shows: STR-093, PROC-046.
#[tokio::test]
async fn the_filter_is_evaluated_against_the_conversation_at_the_handoff() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a1"), (A, "a2"), (A, "a3")]).await;
    let mut consumer = open(store, Selection::all().with_consent([Consent::Allowed])).await;
    assert_eq!(next(&mut consumer).await, "a1");
    consent(store, A, Consent::Denied).await;
    assert_eq!(next(&mut consumer).await, "");
    consent(store, A, Consent::Allowed).await;
    arrive(store, &[(A, "a4")]).await;
    assert_eq!(next(&mut consumer).await, "a4");
    sound(store).await;
}

/// The message was found under one consent, and another is stored while its handoff waits for the writer: what counts is
/// the handoff.
/// Shows: STR-093, PROC-046, PROC-047.
#[tokio::test]
async fn consent_that_changes_between_finding_a_message_and_handing_it_out_counts() {
    for (before, after, handed) in
        [(Consent::Allowed, Consent::Denied, "b"), (Consent::Denied, Consent::Allowed, "a")]
    {
        let fixture = store().await;
        let store = fixture.store().clone();
        arrive(&store, &[(A, "a"), (B, "b")]).await;
        consent(&store, A, before).await;
        let mut consumer = open(&store, Selection::all().with_consent([Consent::Allowed])).await;
        let (entered, inside) = tokio::sync::oneshot::channel();
        let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
        let writer = store.clone();
        let flip = tokio::spawn(async move {
            let flipped: Result<(), DeliveryError> = writer
                .write("flip", move |tx| {
                    Box::pin(async move {
                        let _ = entered.send(());
                        let _ = gone_on.await;
                        highwater_delivery::set_consent(tx, A, after).await
                    })
                })
                .await;
            flipped.unwrap();
        });
        inside.await.unwrap();
        let mut read = Box::pin(consumer.next());
        // It has found what there is, under the old consent, and can't get the writer.
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut read).await.is_err());
        go_on.send(()).unwrap();
        assert_eq!(name(&read.await.unwrap().unwrap()), handed);
        flip.await.unwrap();
        assert_eq!(d(&store, A).await, u64::from(handed == "b"));
        sound(&store).await;
    }
}

/// Shows: STR-022, STR-092.
#[tokio::test]
async fn a_scope_that_changes_counts_from_the_next_handoff() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a1"), (B, "b1"), (A, "a2"), (B, "b2")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a1");
    consumer.select(Selection::groups([B, C])).await.unwrap();
    assert_eq!(next(&mut consumer).await, "b1");
    consumer.select(Selection::all()).await.unwrap();
    assert_eq!(drain(&mut consumer).await, ["a2", "b2"]);
    sound(store).await;
}

/// Reported failure D4: what arrives with no reader is all there for the next one.
/// Shows: STR-091, STR-097, PROC-026, PROC-048.
#[tokio::test]
async fn messages_without_a_listener_wait_for_one_over_restarts() {
    let mut fixture = store().await;
    let name = |n: u32| format!("m{n}");
    let at = |n: u32| if n.is_multiple_of(8) { B } else { A };
    let batch =
        |range: std::ops::Range<u32>| -> Vec<NewMessage> { range.map(|n| text(at(n), &name(n))).collect() };
    consent(fixture.store(), B, Consent::Denied).await;
    publish(fixture.store(), batch(0..30)).await;
    fixture.reopen().await;
    publish(fixture.store(), batch(30..40)).await;
    fixture.reopen().await;
    let store = fixture.store();
    assert_eq!(d(store, A).await, 0);
    let allowed = Selection::all().with_consent([Consent::Allowed]);
    let expected: Vec<_> = (0..40).filter(|n| n % 8 != 0).map(name).collect();
    assert_eq!(expected.len(), 35);
    assert_eq!(deliver(store, allowed).await, expected);
    sound(store).await;
}

/// Shows: STR-092.
#[tokio::test]
async fn a_newly_discovered_group_starts_at_its_beginning() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a1")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(drain(&mut consumer).await, ["a1"]);
    let new = GroupId::from_bytes([0xee; 16]);
    put(store, conversation(new)).await;
    arrive(store, &[(new, "n1"), (A, "a2"), (new, "n2")]).await;
    assert_eq!(drain(&mut consumer).await, ["n1", "a2", "n2"]);
}

/// Shows: STR-102, PROC-025.
#[tokio::test]
async fn a_message_deleted_while_it_waits_is_not_handed_out() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b"), (A, "c")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a");
    let gone = text(A, "b").id;
    store
        .write::<_, DeliveryError, _>("delete", move |tx| Box::pin(async move { delete(tx, gone).await }))
        .await
        .unwrap();
    assert_eq!(next(&mut consumer).await, "c");
    assert_eq!(next(&mut consumer).await, "");
    sound(store).await;
}

/// More excluded messages than one transaction looks through.
/// Shows: STR-093, STR-101.
#[tokio::test]
async fn a_long_run_of_excluded_messages_is_passed_in_bounded_turns() {
    let fixture = store().await;
    let store = fixture.store();
    consent(store, B, Consent::Denied).await;
    publish(store, (0..2_500).map(|n| text(B, &n.to_string())).collect()).await;
    arrive(store, &[(A, "a")]).await;
    publish(store, (3_000..4_200).map(|n| text(B, &n.to_string())).collect()).await;
    let allowed = Selection::all().with_consent([Consent::Allowed]);
    assert_eq!(deliver(store, allowed).await, ["a"]);
    assert_eq!(d(store, B).await, 3_701);
    sound(store).await;
}

/// Shows: STR-101, PROC-048.
#[tokio::test]
async fn a_waiting_consumer_finds_what_another_task_stores() {
    let fixture = store().await;
    let store = fixture.store().clone();
    let mut consumer = open(&store, Selection::all()).await;
    let waiting = tokio::spawn(async move {
        let item = consumer.next_wait().await.unwrap();
        (name(&item), consumer)
    });
    arrive(&store, &[(A, "a1")]).await;
    let (found, mut consumer) = waiting.await.unwrap();
    assert_eq!(found, "a1");
    // What is stored already needs no wake.
    arrive(&store, &[(A, "a2")]).await;
    assert_eq!(name(&consumer.next_wait().await.unwrap()), "a2");
}

/// Two databases on one file, as two processes have it: nothing in this process wakes the reader.
/// Shows: STR-091, STR-101, PROC-026.
#[tokio::test]
async fn a_waiting_consumer_finds_what_another_connection_stores() {
    let fixture = store().await;
    let mut consumer = open(fixture.store(), Selection::all()).await;
    let other = fixture.another().await;
    let waiting = tokio::spawn(async move { name(&consumer.next_wait().await.unwrap()) });
    arrive(&other, &[(A, "from elsewhere")]).await;
    let found = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert_eq!(found.unwrap().unwrap(), "from elsewhere");
    other.close().await;
}

/// Shows: STR-098, PROC-033, PROC-024.
#[tokio::test]
async fn every_item_carries_its_cursor_and_a_repeat_carries_the_same() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (B, "b")]).await;
    let mut consumer = open(store, Selection::all()).await;
    let first = consumer.next().await.unwrap().unwrap();
    assert_eq!(first.cursor.number().unwrap().get(), 1);
    assert_eq!(first.cursor.database(), store.database_id());
    assert_eq!(consumer.out(), Some(first.cursor));
    let text = first.cursor.to_string();
    assert_eq!(text.parse::<DeliveryCursor>().unwrap(), first.cursor);
    // Having the cursor acknowledged nothing.
    assert_eq!(d(store, A).await, 0);
    drop(consumer);
    let again = open(store, Selection::all()).await.next().await.unwrap().unwrap();
    assert_eq!(again, first);
}

/// A conversation that only an import knows is delivered like any other.
/// Shows: PROC-046.
#[tokio::test]
async fn a_restored_conversation_is_read_like_any_other() {
    let fixture = store().await;
    let store = fixture.store();
    let state = highwater_delivery::ConversationState::Restored;
    put(store, Conversation { state, ..conversation(A) }).await;
    arrive(store, &[(A, "a")]).await;
    assert_eq!(deliver(store, Selection::all()).await, ["a"]);
}
