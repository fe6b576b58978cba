use highwater_mls::{Need, Resolution, Resolutions};
use highwater_processing::{HoldCause, Stop};
use highwater_tests::{Peer, World};
use highwater_wire::Topic;
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, client_envelope};

fn garbage(data: Vec<u8>) -> ClientEnvelope {
    let message = GroupMessage { data, ..GroupMessage::default() };
    ClientEnvelope { payload: Some(client_envelope::Payload::GroupMessage(message)) }
}

/// A bad last message is tried once and never again.
///
/// Shows: STR-074, PROC-011.
#[tokio::test]
async fn garbage_between_good_messages_is_rejected_once_and_passed() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let mut bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::group(group);
    bo.join(&world).await;
    for n in 0..20 {
        // A known version and wire format; nothing after them makes sense.
        world.publish_on(topic, garbage([vec![0, 1, 0, 2], vec![n; 40]].concat()));
        alice.send(&mut world, group, &format!("good {n}")).await;
    }
    world.publish_on(topic, ClientEnvelope::default());
    let report = bo.catch_up(&world, group).await;
    assert_eq!((report.applied, report.rejected), (20, 21));
    assert_eq!(report.stop, Some(Stop::Drained));
    bo.restart().await;
    let again = bo.catch_up(&world, group).await;
    assert_eq!((again.applied, again.rejected), (0, 0));
    assert_eq!(bo.texts(group).await.len(), 20);
    bo.audit().await;
}

/// A tampered copy before the original doesn't use up the original's secret.
///
/// Shows: PROC-008, STR-071.
#[tokio::test]
async fn a_rejected_envelope_leaves_no_trace() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::group(group);
    bo.join(&world).await;
    alice.queue(group, "intact").await;
    let bytes = alice.prepare(&world, group).await;
    let original = prost::Message::decode(bytes[0].as_slice()).unwrap();
    let mut tampered: ClientEnvelope = original;
    if let Some(client_envelope::Payload::GroupMessage(message)) = &mut tampered.payload {
        *message.data.last_mut().unwrap() ^= 1;
    }
    world.publish_on(topic, tampered);
    world.publish(&bytes[0]);
    let report = bo.catch_up(&world, group).await;
    assert_eq!((report.applied, report.rejected), (1, 1));
    assert_eq!(bo.texts(group).await, ["intact"]);
    bo.audit().await;
}

/// "Come back later" is not "never": a commit that needs an identity update waits for it, and what is behind it waits
/// too; only proof of absence rejects it.
///
/// Shows: STR-020, STR-072, STR-073, STR-076, PROC-012.
#[tokio::test]
async fn a_commit_waits_for_identity_state_until_it_is_proven_absent() {
    for absent in [false, true] {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let mut bo = Peer::new(&mut world).await;
        let carol = Peer::new(&mut world).await;
        let group = alice.create_group(&mut world, &[&bo]).await;
        let topic = Topic::group(group);
        bo.join(&world).await;
        let members = std::collections::BTreeSet::from([carol.inbox]);
        let add = highwater_outbox::ChangeRequest::AddMembers(members);
        alice.change(&mut world, group, add).await;
        alice.catch_up(&world, group).await;
        for n in 1..=5 {
            alice.send(&mut world, group, &format!("m{n}")).await;
        }
        bo.receive(&world, topic).await;
        let held = bo.process(topic).await;
        let Some(Stop::Held(hold)) = held.stop else { panic!("not held") };
        assert!(matches!(hold.cause, HoldCause::Dependency(_)));
        let [need @ Need::Identity { inbox, .. }] = hold.needs.as_slice() else { panic!("{:?}", hold.needs) };
        assert_eq!(*inbox, carol.inbox);
        bo.restart().await;
        if absent {
            let mut resolutions = Resolutions::default();
            let reason = "proven".to_owned();
            resolutions.insert(need.clone(), Resolution::Permanent { reason });
            let report = bo.process_with(topic, resolutions).await;
            // The commit, and the messages of an epoch that the prefix never reaches.
            assert_eq!((report.applied, report.rejected), (0, 6));
        } else {
            bo.catch_up(&world, group).await;
            assert_eq!(bo.texts(group).await, ["m1", "m2", "m3", "m4", "m5"]);
            assert_eq!(bo.agreement(group).await, alice.agreement(group).await);
        }
        bo.audit().await;
    }
}
