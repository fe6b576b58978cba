//! What goes over the wire, and what doesn't.

use std::time::Duration;

use highwater::{ConnectionState, Content, MessageStream, Topic, TopicKind};
use highwater_testkit::{Link, Relay, TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Outsider, garbage};

use crate::process::PATIENCE;
use crate::size;

async fn next_text(stream: &mut MessageStream) -> String {
    loop {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Content::Text(text) = item.message.content {
            return text;
        }
    }
}

/// Case A2: a quiet topic is asked for after its own F on every reconnect, and the server sends nothing twice.
///
/// Shows: STR-036, PROC-021.
#[tokio::test(flavor = "multi_thread")]
async fn every_reconnect_asks_for_each_topic_after_its_own_position() {
    // Each reopening waits twice as long as the one before.
    let reopenings = size(3, 5);
    let backend = TestBackend::start().await;
    let relay = Relay::to(backend.address()).await;
    let link = Link::to(relay.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&link.url()).await;
    let mut groups = Vec::new();
    for n in 1..=3 {
        let group = alice.create_group([bob.inbox_id()]).await.unwrap();
        for m in 0..n {
            group.send_text(&format!("history {m}")).await.unwrap();
        }
        groups.push(group);
    }
    bob.sync().await.unwrap();
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let received = async |topic| inside.position(topic).await.received;
    let topics: Vec<_> = groups.iter().map(|group| Topic::group(group.id())).collect();
    let quiet = [received(topics[0]).await, received(topics[1]).await];

    relay.forget();
    let mut stream = bob.messages().open().await.unwrap();
    for _ in 0..6 {
        assert!(next_text(&mut stream).await.starts_with("history"));
    }
    let connection = stream.connection_state().await.unwrap();
    let mut expected = Vec::new();
    for reopening in 0..=reopenings {
        let busy = received(topics[2]).await;
        eventually("all three to be registered", async || {
            let asked = relay.traffic().registered;
            let groups = asked.iter().filter(|(topic, _)| topics.contains(topic));
            groups.count() == 3 * (reopening + 1) && *connection.borrow() == ConnectionState::Connected
        })
        .await;
        expected.push([quiet[0], quiet[1], busy]);
        if reopening == reopenings {
            break;
        }
        for n in 0..10 {
            let text = format!("{reopening}.{n}");
            groups[2].send_text(&text).await.unwrap();
            assert_eq!(next_text(&mut stream).await, text);
        }
        link.cut();
    }
    let traffic = relay.traffic();
    for (nth, topic) in topics.iter().enumerate() {
        let asked = traffic.registered.iter().filter(|(of, _)| of == topic).map(|(_, after)| *after);
        assert_eq!(asked.collect::<Vec<_>>(), expected.iter().map(|at| at[nth]).collect::<Vec<_>>());
    }
    assert_eq!(traffic.envelopes.keys().collect::<Vec<_>>(), [&topics[2]]);
    assert_eq!(traffic.total(), 10 * reopenings);
    stream.close().await;
    inside.close().await;
}

/// Case B2: an undecryptable last message is tried once and never fetched again.
///
/// Shows: STR-042, STR-074, PROC-011, PROC-016.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_last_message_costs_later_syncs_nothing() {
    let conversations = size(25, 200);
    let backend = TestBackend::start().await;
    let relay = Relay::to(backend.address()).await;
    let outsider = Outsider::connect(&backend.url());
    let alice = TestClient::new(&backend.url()).await;
    let mut bob = TestClient::new(&relay.url()).await;
    let mut bad = Vec::new();
    for n in 0..conversations {
        let group = alice.create_group([bob.inbox_id()]).await.unwrap();
        group.send_text(&format!("good {n}")).await.unwrap();
        let stored = outsider.stored(group.id()).await;
        let (_, mut turned) = stored.last().unwrap().clone();
        // One decrypts to nothing, one has a header that makes sense and nothing else.
        *turned.last_mut().unwrap() ^= 1;
        let data = if n % 2 == 0 { turned } else { garbage(group.id(), 1, &[9; 50]) };
        let ids = outsider.publish([data], n as u64).await;
        bad.push((group.id(), ids[0]));
    }
    let mut rejections = None;
    for sync in 1..=10 {
        relay.forget();
        bob.sync().await.unwrap();
        let inside = Inside::open(&bob.path(), &bob.key()).await;
        let mut found = Vec::new();
        for (group, id) in &bad {
            let rejected = inside.rejections(*group).await;
            assert_eq!(rejected.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [*id], "sync {sync}");
            found.push(rejected);
        }
        assert_eq!(rejections.get_or_insert_with(|| found.clone()), &found);
        for (topic, at) in inside.positions().await {
            assert!(at.pending.is_empty(), "{topic:?} has something left to try");
            let through = (topic.kind() == TopicKind::Welcome).then_some(at.received).or(at.processed);
            assert_eq!(through, Some(at.received), "{topic:?}");
        }
        inside.close().await;
        if sync > 1 {
            assert_eq!(relay.traffic().total(), 0, "sync {sync} fetched something");
        }
        if sync == 5 {
            bob.reopen().await;
        }
    }
    let page = bob.history().limit(u32::MAX).page().await.unwrap();
    assert_eq!(page.messages.iter().filter(|one| one.text().is_ok()).count(), conversations);
}

/// Case B4: the echo of an own commit comes in before its sender can know what became of it, while another process holds
/// the writer.
///
/// Shows: STR-110, STR-113, PROC-011.
#[tokio::test(flavor = "multi_thread")]
async fn an_own_commit_that_comes_back_before_its_reply_is_known_for_ones_own() {
    let backend = TestBackend::start().await;
    let relay = Relay::to(backend.address()).await;
    let alice = TestClient::new(&relay.url()).await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(TestClient::new(&backend.url()).await);
    }
    let inboxes: Vec<_> = others.iter().map(|one| one.inbox_id()).collect();
    let group = alice.create_group(inboxes.clone()).await.unwrap();
    let stays = &others[3];
    stays.sync().await.unwrap();
    let inside = Inside::open(&alice.path(), &alice.key()).await;
    let mut stream = alice.messages().open().await.unwrap();
    let mut connection = stream.connection_state().await.unwrap();
    connection.wait_for(|now| *now == ConnectionState::Connected).await.unwrap();
    eventually("the group to be registered", async || stream.catch_up().await.unwrap().is_caught_up()).await;

    relay.hold_replies();
    let group = group.within(PATIENCE);
    let remove = async |who: usize| group.remove_members([inboxes[who]]).await.unwrap();
    let echoes = async {
        let first = inside.agreement(group.id()).await.0;
        for (nth, epoch) in (1..).zip(first + 1..=first + 3) {
            eventually("a publish whose reply is held", async || relay.held_replies() == nth).await;
            inside.hold_writer(Duration::from_millis(200)).await;
            // The stream alone brings it: nobody can query for what no reply has named.
            eventually("the echo", async || inside.agreement(group.id()).await.0 == epoch).await;
            relay.let_replies_go();
        }
        relay.release_replies();
    };
    let (one, two, three, ()) = tokio::join!(remove(0), remove(1), remove(2), echoes);
    let at = |outcome| match outcome {
        highwater::Outcome::Confirmed { sequence_id: Some(id) } => id,
        other => panic!("{other:?}"),
    };
    let ids = std::collections::BTreeSet::from([at(one), at(two), at(three)]);
    assert_eq!(ids.len(), 3, "one after another: {ids:?}");
    assert_eq!(inside.rejections(group.id()).await, []);
    stays.sync().await.unwrap();
    let theirs = Inside::open(&stays.path(), &stays.key()).await;
    assert_eq!(inside.agreement(group.id()).await, theirs.agreement(group.id()).await);
    let mut members: Vec<_> = group.members().await.unwrap().into_iter().map(|one| one.inbox_id).collect();
    let mut expected = vec![alice.inbox_id(), inboxes[3]];
    members.sort();
    expected.sort();
    assert_eq!(members, expected);
    assert_eq!(stays.group(group.id()).await.unwrap().members().await.unwrap().len(), 2);
    inside.audit().await;
    assert!(stream.next().await.unwrap().is_ok());
    stream.close().await;
}

/// A sync of a group that removed this installation ends at the removal, with what came after it untouched.
///
/// Shows: STR-086, PROC-005, PROC-016.
#[tokio::test(flavor = "multi_thread")]
async fn a_sync_is_complete_at_the_removal() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    group.send_text("before").await.unwrap();
    group.remove_members([bob.inbox_id()]).await.unwrap();
    group.send_text("after").await.unwrap();
    // Complete, or an error that names what is left.
    bob.sync().await.unwrap();
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let texts: Vec<_> = inside.messages().await.into_iter().filter_map(|kept| kept.text).collect();
    assert_eq!(texts, ["before"]);
    let at = inside.position(Topic::group(group.id())).await;
    assert!(at.processed < Some(at.received) && !at.pending.is_empty(), "{at:?}");
    bob.sync().await.unwrap();
    assert_eq!(inside.position(Topic::group(group.id())).await.pending, at.pending);
    inside.audit().await;
    inside.close().await;
}
