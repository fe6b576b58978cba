use std::collections::BTreeSet;

use highwater_mls::{Proof, Resolution};
use highwater_outbox::{ChangeRequest, Outcome};
use highwater_processing::Stop;
use highwater_tests::{Peer, World};
use highwater_wire::Topic;

/// Shows: STR-112, STR-113.
#[tokio::test]
async fn the_loser_of_a_commit_race_is_prepared_again_and_all_agree() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    bo.catch_up(&world, group).await;
    let first = alice.change(&mut world, group, ChangeRequest::SetName("alice's".into())).await;
    let second = bo.change(&mut world, group, ChangeRequest::SetDescription("bo's".into())).await;
    for peer in [&alice, &bo] {
        peer.catch_up(&world, group).await;
    }
    assert!(matches!(alice.outcome(first).await, Outcome::Confirmed { .. }));
    assert!(!bo.outcome(second).await.is_final(), "the loser isn't lost");
    bo.drain(&mut world, group).await;
    for peer in [&alice, &bo] {
        peer.catch_up(&world, group).await;
        peer.audit().await;
    }
    assert!(matches!(bo.outcome(second).await, Outcome::Confirmed { .. }));
    assert_eq!(alice.agreement(group).await, bo.agreement(group).await);
}

/// Shows: STR-112.
#[tokio::test]
async fn a_change_that_the_winner_already_made_is_confirmed_without_a_commit() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let carol = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    bo.catch_up(&world, group).await;
    let add = || ChangeRequest::AddMembers(BTreeSet::from([carol.inbox]));
    alice.change(&mut world, group, add()).await;
    let second = bo.change(&mut world, group, add()).await;
    for peer in [&alice, &bo] {
        peer.catch_up(&world, group).await;
    }
    let before = world.newest(Topic::group(group)).cloned();
    bo.drain(&mut world, group).await;
    assert_eq!(bo.outcome(second).await, Outcome::Confirmed { sequence_id: None });
    assert_eq!(world.newest(Topic::group(group)).cloned(), before);
    alice.publish_welcomes(&mut world).await;
    assert_eq!(carol.join(&world).await.len(), 1);
}

/// A crash after the commit was accepted and before any Welcome went out: they go out from stored bytes.
///
/// Shows: STR-110, STR-114.
#[tokio::test]
async fn owed_welcomes_survive_a_restart_and_confirm_their_change() {
    let mut world = World::new();
    let mut alice = Peer::new(&mut world).await;
    let mut guests = Vec::new();
    for _ in 0..5 {
        guests.push(Peer::new(&mut world).await);
    }
    let group = alice.create_group(&mut world, &[]).await;
    let inboxes = guests.iter().map(|guest| guest.inbox).collect();
    let intent = alice.change(&mut world, group, ChangeRequest::AddMembers(inboxes)).await;
    alice.catch_up(&world, group).await;
    alice.restart().await;
    assert!(matches!(alice.outcome(intent).await, Outcome::PublishedUnconfirmed { .. }));
    alice.audit().await;
    alice.publish_welcomes(&mut world).await;
    assert!(matches!(alice.outcome(intent).await, Outcome::Confirmed { .. }));
    for guest in &guests {
        assert_eq!(guest.join(&world).await.len(), 1);
        assert_eq!(guest.agreement(group).await, alice.agreement(group).await);
    }
}

/// Shows: STR-086.
#[tokio::test]
async fn a_removed_member_stops_at_the_removal_and_keeps_what_it_had() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let carol = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo, &carol]).await;
    for peer in [&bo, &carol] {
        peer.join(&world).await;
    }
    alice.send(&mut world, group, "for all").await;
    alice.catch_up(&world, group).await;
    let removed = BTreeSet::from([bo.inbox]);
    alice.change(&mut world, group, ChangeRequest::RemoveMembers(removed)).await;
    alice.catch_up(&world, group).await;
    alice.send(&mut world, group, "without bo").await;
    for peer in [&alice, &bo, &carol] {
        peer.catch_up(&world, group).await;
    }
    assert_eq!(bo.texts(group).await, ["for all"]);
    assert_eq!(carol.texts(group).await, ["for all", "without bo"]);
    assert_eq!(alice.agreement(group).await, carol.agreement(group).await);
    let again = bo.catch_up(&world, group).await;
    assert_eq!((again.applied, again.rejected), (0, 0), "nothing is tried again");
    bo.audit().await;
}

/// Shows: PROC-011.
#[tokio::test]
async fn a_member_without_the_right_cannot_remove() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    bo.join(&world).await;
    bo.catch_up(&world, group).await;
    let removal = ChangeRequest::RemoveMembers(BTreeSet::from([alice.inbox]));
    let intent = bo.change(&mut world, group, removal).await;
    assert!(matches!(bo.outcome(intent).await, Outcome::Refused { .. }));
    bo.audit().await;
}

/// What one process waited for, another one found and finished: the first does nothing again, and keeps nothing of what
/// it knew.
///
/// Shows: STR-073, PROC-008.
#[tokio::test]
async fn a_commit_that_another_process_finished_is_not_applied_again() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let carol = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::group(group);
    bo.join(&world).await;
    alice.change(&mut world, group, ChangeRequest::AddMembers(BTreeSet::from([carol.inbox]))).await;
    alice.catch_up(&world, group).await;
    alice.send(&mut world, group, "behind").await;
    bo.receive(&world, topic).await;
    let Some(Stop::Held(hold)) = bo.process(topic).await.stop else { panic!("carol's identity is not here") };

    let other = bo.another_process().await;
    let report = other.catch_up(&world, group).await;
    assert_eq!((report.applied, report.stop), (2, Some(Stop::Drained)));

    let answers = hold.needs.into_iter().map(|need| (need, Resolution::Ready(Proof::Done)));
    let again = bo.process_with(topic, answers.collect()).await;
    assert_eq!((again.applied, again.rejected, again.stop), (0, 0, Some(Stop::Drained)));
    assert_eq!(bo.texts(group).await, ["behind"]);
    assert_eq!(bo.held(topic).await, None);
    assert_eq!(bo.agreement(group).await, alice.agreement(group).await);
    bo.audit().await;
    other.store.close().await;
}
