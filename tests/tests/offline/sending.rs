use highwater_outbox::{ChangeRequest, Outcome};
use highwater_tests::{Peer, World, deletion_of};
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{PayloadIdentity, Topic};
use prost::Message as _;

fn payload_identity(envelope: &[u8]) -> PayloadIdentity {
    match ClientEnvelope::decode(envelope).unwrap().payload {
        Some(client_envelope::Payload::GroupMessage(message)) => PayloadIdentity::of(&message.data),
        other => panic!("{other:?}"),
    }
}

/// Shows: STR-110, STR-111.
#[tokio::test]
async fn an_unclear_publish_is_repeated_byte_for_byte_over_restarts() {
    let mut world = World::new();
    let mut alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let (intent, _) = alice.queue(group, "hello").await;
    let first = alice.prepare(&world, group).await;
    assert_eq!(first.len(), 1);
    for _ in 0..3 {
        alice.restart().await;
        assert_eq!(alice.prepare(&world, group).await, first);
        assert_eq!(alice.outcome(intent).await, Outcome::Queued);
    }
    alice.audit().await;
}

/// Shows: STR-113, STR-114, REVIEW-AUTHORITATIVE-HASH.
#[tokio::test]
async fn an_echo_confirms_without_a_reply_and_a_reply_alone_does_not() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    // The reply got lost; the echo alone settles it. The world's hashes are not the envelopes' hashes.
    let (intent, message) = alice.queue(group, "one").await;
    let bytes = alice.prepare(&world, group).await;
    let sequence_id = world.publish(&bytes[0]);
    alice.catch_up(&world, group).await;
    assert_eq!(alice.outcome(intent).await, Outcome::Confirmed { sequence_id: Some(sequence_id) });
    assert_eq!(alice.messages(group).await.last().unwrap().id, message);
    // The reply came; the echo didn't yet.
    let (intent, _) = alice.send(&mut world, group, "two").await;
    let outcome = alice.outcome(intent).await;
    assert!(matches!(outcome, Outcome::PublishedUnconfirmed { sequence_id: Some(_) }), "{outcome:?}");
    assert_eq!(alice.texts(group).await, ["one"]);
    alice.catch_up(&world, group).await;
    assert_eq!(alice.texts(group).await, ["one", "two"]);
    alice.audit().await;
}

/// A second copy of an own message on the topic is no second message.
///
/// Shows: STR-074, PROC-008.
#[tokio::test]
async fn an_echo_applies_once() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    alice.queue(group, "once").await;
    let bytes = alice.prepare(&world, group).await;
    world.publish(&bytes[0]);
    world.publish(&bytes[0]);
    let report = alice.catch_up(&world, group).await;
    assert_eq!(report.rejected, 1);
    assert_eq!(alice.texts(group).await, ["once"]);
    bo.catch_up(&world, group).await;
    assert_eq!(bo.texts(group).await, ["once"]);
    alice.audit().await;
    bo.audit().await;
}

/// Window of own echoes: two epochs back is applied, more is prepared again under the same id and read by all once.
///
/// Shows: PROC-011, STR-111.
#[tokio::test]
async fn a_message_that_lagged_too_many_epochs_is_made_again() {
    for (commits, readable_at_once) in [(2, true), (4, false)] {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let bo = Peer::new(&mut world).await;
        let group = bo.create_group(&mut world, &[&alice]).await;
        alice.join(&world).await;
        alice.catch_up(&world, group).await;
        let (intent, id) = alice.queue(group, "late").await;
        let bytes = alice.prepare(&world, group).await;
        for n in 0..commits {
            bo.change(&mut world, group, ChangeRequest::SetName(format!("name {n}"))).await;
            bo.catch_up(&world, group).await;
        }
        world.publish(&bytes[0]);
        alice.catch_up(&world, group).await;
        if !readable_at_once {
            assert_eq!(alice.outcome(intent).await, Outcome::Queued);
            let again = alice.prepare(&world, group).await;
            assert_ne!(payload_identity(&again[0]), payload_identity(&bytes[0]));
            alice.drain(&mut world, group).await;
            alice.catch_up(&world, group).await;
        }
        bo.catch_up(&world, group).await;
        assert!(matches!(alice.outcome(intent).await, Outcome::Confirmed { .. }));
        for peer in [&alice, &bo] {
            let texts: Vec<_> = peer
                .messages(group)
                .await
                .into_iter()
                .filter(|message| message.kind == highwater_delivery::MessageKind::Application)
                .map(|message| message.id)
                .collect();
            assert_eq!(texts, [id], "after {commits} commits");
            peer.audit().await;
        }
    }
}

/// An unfinished change of an old membership doesn't block the new one.
///
/// Shows: STR-112.
#[tokio::test]
async fn intents_end_with_the_membership_they_were_made_in() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let mut bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    bo.publish_key_package(&mut world).await;
    bo.catch_up(&world, group).await;
    let rename = bo
        .write(move |tx| {
            Box::pin(async move {
                let change = ChangeRequest::SetName("never".into());
                highwater_outbox::queue_change(tx, group, change).await
            })
        })
        .await;
    bo.prepare(&world, group).await;
    let members = std::collections::BTreeSet::from([bo.inbox]);
    alice.change(&mut world, group, ChangeRequest::RemoveMembers(members.clone())).await;
    alice.catch_up(&world, group).await;
    bo.catch_up(&world, group).await;
    assert_eq!(bo.outcome(rename).await, Outcome::InactiveGroup);
    alice.change(&mut world, group, ChangeRequest::AddMembers(members)).await;
    alice.catch_up(&world, group).await;
    alice.publish_welcomes(&mut world).await;
    bo.restart().await;
    bo.join(&world).await;
    bo.catch_up(&world, group).await;
    let (intent, _) = bo.send(&mut world, group, "m1").await;
    bo.catch_up(&world, group).await;
    alice.catch_up(&world, group).await;
    assert!(matches!(bo.outcome(intent).await, Outcome::Confirmed { .. }));
    assert_eq!(alice.texts(group).await, ["m1"]);
    bo.audit().await;
}

/// Queue order is publish order, and one group doesn't hold up another.
///
/// Shows: STR-110.
#[tokio::test]
async fn messages_go_out_in_the_order_they_were_queued() {
    let mut world = World::new();
    let mut alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let x = alice.create_group(&mut world, &[&bo]).await;
    let y = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    for n in 1..=5 {
        alice.queue(x, &format!("m{n}")).await;
    }
    for n in 1..=3 {
        alice.queue(y, &format!("n{n}")).await;
    }
    alice.prepare(&world, x).await;
    alice.restart().await;
    alice.drain(&mut world, y).await;
    alice.queue(x, "m6").await;
    alice.drain(&mut world, x).await;
    for group in [x, y] {
        alice.catch_up(&world, group).await;
        bo.catch_up(&world, group).await;
        assert_eq!(alice.texts(group).await, bo.texts(group).await);
    }
    assert_eq!(bo.texts(x).await, ["m1", "m2", "m3", "m4", "m5", "m6"]);
    assert_eq!(bo.texts(y).await, ["n1", "n2", "n3"]);
    assert!(world.newest(Topic::group(x)).is_some());
}

/// The sender and a super admin may delete; another member's deletion is a message without effect.
///
/// Shows: PROC-037.
#[tokio::test]
async fn only_an_authorised_deletion_changes_its_target() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    bo.catch_up(&world, group).await;
    let (_, by_alice) = alice.send(&mut world, group, "alice's").await;
    let (_, by_bo) = bo.send(&mut world, group, "bo's").await;
    for peer in [&alice, &bo] {
        peer.catch_up(&world, group).await;
    }
    let delete = async |peer: &Peer, world: &mut World, target| {
        let content = deletion_of(target);
        peer.write(move |tx| {
            Box::pin(async move { highwater_outbox::queue_message(tx, group, content, None).await })
        })
        .await;
        peer.drain(world, group).await;
        alice.catch_up(world, group).await;
        bo.catch_up(world, group).await;
    };
    let deleted = async |target| {
        let mut found = Vec::new();
        for peer in [&alice, &bo] {
            let stored = peer
                .write(move |tx| Box::pin(async move { highwater_delivery::message(tx, target).await }))
                .await
                .unwrap();
            found.push(stored.deleted);
        }
        assert_eq!(found[0], found[1], "both see the same");
        found[0]
    };
    // Bo is no super admin.
    delete(&bo, &mut world, by_alice).await;
    assert!(!deleted(by_alice).await);
    delete(&alice, &mut world, by_alice).await;
    assert!(deleted(by_alice).await);
    // Alice made the group, and is.
    delete(&alice, &mut world, by_bo).await;
    assert!(deleted(by_bo).await);
    alice.audit().await;
    bo.audit().await;
}
