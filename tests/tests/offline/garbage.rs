use highwater_mls::{Need, Resolution, Resolutions};
use highwater_processing::{HoldCause, Stop};
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, client_envelope};
use highwater_wire::{Cursor, Topic};

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

/// However much of it there is: each piece is settled by one attempt of its whole life, over a restart too.
///
/// Shows: PROC-005, PROC-011, STR-074.
#[tokio::test]
async fn thousands_of_pieces_of_garbage_are_each_settled_once() {
    const PIECES: u32 = 2_000;
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let mut bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::group(group);
    bo.join(&world).await;
    let mut texts = Vec::new();
    let mut last = alice.encrypt(group, b"tampered with").await;
    *last.last_mut().unwrap() ^= 1;
    for n in 0..PIECES {
        let data = match n % 4 {
            0 => vec![0, 1, 0, 2, n as u8],
            1 => n.to_be_bytes().map(|byte| byte & 1).to_vec(),
            2 => last.clone(),
            _ => Vec::new(),
        };
        // A version that isn't MLS 1.0 would be held, not garbage.
        let data = if data.starts_with(&[0, 0]) { vec![0, 1] } else { data };
        world.publish_data(group, data);
        if n % 100 == 0 {
            texts.push(format!("good {n}"));
            alice.send(&mut world, group, texts.last().unwrap()).await;
        }
    }
    let newest = world.next_id() - 1;
    let (mut settled, mut attempts, mut received) = (0, 0, 0);
    // A topic may have 1,024 envelopes pending.
    while received < newest {
        received = newest.min(received + 500);
        bo.receive_through(&world, topic, Cursor::try_from(received).unwrap()).await;
        loop {
            let before = bo.pending(topic).await.len();
            let report =
                highwater_processing::attempt(&bo.store, topic, Resolutions::default()).await.unwrap();
            let passed = before - bo.pending(topic).await.len();
            assert_eq!((report.applied + report.rejected) as usize, passed, "what is touched is settled");
            (settled, attempts) = (settled + passed, attempts + 1);
            if attempts == 8 {
                bo.restart().await;
            }
            if report.stop == Stop::Drained {
                break;
            }
            assert_eq!(report.stop, Stop::More);
        }
    }
    assert_eq!(settled, PIECES as usize + texts.len());
    assert!(attempts < 30, "{attempts} attempts");
    assert_eq!(bo.rejections(topic).await.len(), PIECES as usize);
    assert_eq!(bo.texts(group).await, texts);
    bo.audit().await;
}
