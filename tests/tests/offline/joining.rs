use highwater_delivery::MessageKind;
use highwater_join::JoinReport;
use highwater_outbox::ChangeRequest;
use highwater_processing::Stop;
use highwater_tests::{Peer, World};
use highwater_wire::Topic;
use std::collections::BTreeSet;

/// Shows: STR-083, STR-084, STR-085, PROC-010.
#[tokio::test]
async fn an_invited_member_starts_at_the_anchor_and_keeps_what_came_in_above_it() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    alice.send(&mut world, group, "before bo looked").await;
    // Bo's receiver brought the group's envelopes before the Welcome was handled.
    bo.receive(&world, Topic::group(group)).await;
    assert!(matches!(bo.join(&world).await.as_slice(), [JoinReport::Joined(joined)] if *joined == group));
    bo.catch_up(&world, group).await;
    assert_eq!(bo.texts(group).await, ["before bo looked"]);
    alice.catch_up(&world, group).await;
    assert_eq!(alice.agreement(group).await, bo.agreement(group).await);
    alice.audit().await;
    bo.audit().await;
}

/// Shows: STR-080, STR-084.
#[tokio::test]
async fn a_replayed_welcome_changes_nothing() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let mut bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::welcome(bo.installation);
    let welcome = world.newest(topic).unwrap().clone();
    bo.join(&world).await;
    bo.publish_key_package(&mut world).await;
    bo.restart().await;
    world.publish_on(topic, welcome);
    let before = bo.agreement(group).await;
    assert!(matches!(bo.join(&world).await.as_slice(), [JoinReport::Rejected(_)]));
    assert_eq!(bo.agreement(group).await, before);
    bo.audit().await;
}

/// Removed and added again before the removal was read: the old membership is read to its end first, whatever arrives
/// first.
///
/// Shows: STR-082, STR-086, PROC-005.
#[tokio::test]
async fn a_removal_is_read_before_the_next_membership_starts() {
    for welcome_first in [true, false] {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let mut bo = Peer::new(&mut world).await;
        let group = alice.create_group(&mut world, &[&bo]).await;
        bo.join(&world).await;
        bo.publish_key_package(&mut world).await;
        let only_bo = BTreeSet::from([bo.inbox]);
        alice.send(&mut world, group, "m1").await;
        alice.send(&mut world, group, "m2").await;
        alice.catch_up(&world, group).await;
        alice.change(&mut world, group, ChangeRequest::RemoveMembers(only_bo.clone())).await;
        alice.catch_up(&world, group).await;
        alice.send(&mut world, group, "m3").await;
        alice.catch_up(&world, group).await;
        alice.change(&mut world, group, ChangeRequest::AddMembers(only_bo)).await;
        alice.catch_up(&world, group).await;
        alice.publish_welcomes(&mut world).await;
        alice.send(&mut world, group, "m4").await;
        alice.send(&mut world, group, "m5").await;
        alice.catch_up(&world, group).await;
        if !welcome_first {
            let report = bo.catch_up(&world, group).await;
            assert_eq!(report.stop, Some(Stop::Inactive));
            bo.restart().await;
        }
        assert!(matches!(bo.join(&world).await.as_slice(), [JoinReport::Joined(_)]));
        bo.restart().await;
        bo.catch_up(&world, group).await;
        assert_eq!(bo.texts(group).await, ["m1", "m2", "m4", "m5"], "welcome first: {welcome_first}");
        let removals = bo
            .messages(group)
            .await
            .iter()
            .filter(|message| message.kind == MessageKind::MembershipChange)
            .count();
        assert!(removals >= 2, "the removal and the new invitation are there to see");
        bo.send(&mut world, group, "back").await;
        alice.catch_up(&world, group).await;
        assert_eq!(alice.texts(group).await.last().unwrap(), "back");
        alice.audit().await;
        bo.audit().await;
    }
}

/// Shows: STR-073, STR-080, PROC-012.
#[tokio::test]
async fn a_welcome_waits_for_identity_state_and_keeps_its_keys() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let mut bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::welcome(bo.installation);
    bo.receive(&world, topic).await;
    let pending = world.prefix(topic, highwater_wire::Cursor::ZERO).into_envelopes();
    let id = pending[0].sequence_id();
    for _ in 0..3 {
        let report = highwater_join::attempt(&bo.store, topic, id, highwater_mls::Resolutions::default())
            .await
            .unwrap();
        let JoinReport::Held { needs, held } = report else { panic!("not held: {report:?}") };
        assert!(!needs.is_empty() && held.deadline_ns.is_none());
        bo.restart().await;
    }
    assert!(matches!(bo.join(&world).await.as_slice(), [JoinReport::Joined(joined)] if *joined == group));
    bo.audit().await;
}
