//! Topics that hold all they may.

use std::collections::BTreeMap;
use std::time::Duration;

use highwater::{Content, Group, MessageStream, ReceiverKind, RegistrationState, Topic};
use highwater_testkit::{Relay, TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Outsider, garbage};
use tokio::time::Instant;

use crate::process::PATIENCE;

/// What one topic may hold (STR-063).
const PER_TOPIC: usize = 1_024;
/// How many an envelope too many is.
const TOO_MANY: usize = PER_TOPIC + 150;

/// Groups whose head bob can't settle, because his backend doesn't show the inbox it brings in, and one that is free.
struct Blocked {
    _backend: TestBackend,
    relay: Relay,
    outsider: Outsider,
    _alice: TestClient,
    bob: TestClient,
    carol: Topic,
    held: Vec<Group>,
    free: Group,
}

impl Blocked {
    async fn set(groups: usize, receiver: ReceiverKind) -> Self {
        let backend = TestBackend::start().await;
        let relay = Relay::to(backend.address()).await;
        let alice = TestClient::new(&backend.url()).await;
        let mut bob = TestClient::new(&relay.url()).await;
        bob.set_receiver(receiver);
        bob.reopen().await;
        let carol = TestClient::new(&backend.url()).await.inbox_id();
        let mut held = Vec::new();
        for _ in 0..groups {
            held.push(alice.create_group([bob.inbox_id()]).await.unwrap());
        }
        let free = alice.create_group([bob.inbox_id()]).await.unwrap();
        bob.sync().await.unwrap();
        relay.hide(Topic::identity(carol));
        for group in &held {
            group.add_members([carol]).await.unwrap();
        }
        let outsider = Outsider::connect(&backend.url());
        let carol = Topic::identity(carol);
        Self { _backend: backend, relay, outsider, _alice: alice, bob, carol, held, free }
    }

    /// More than the topic may hold, with texts before, among and behind it.
    async fn fill(&self, group: &Group) {
        group.send_text("before").await.unwrap();
        self.garbage(group, TOO_MANY / 2).await;
        group.send_text("among").await.unwrap();
        self.garbage(group, TOO_MANY / 2).await;
        group.send_text("behind").await.unwrap();
    }

    async fn garbage(&self, group: &Group, count: usize) {
        let nobodys = |n: usize| garbage(group.id(), 1_000_000, &(n as u64).to_be_bytes());
        self.outsider.publish((0..count).map(nobodys), rand::random()).await;
    }

    /// Everything is on its topic, settled, and nothing is rejected but the garbage.
    async fn assert_settled(&self, inside: &Inside) {
        for group in &self.held {
            let at = inside.position(Topic::group(group.id())).await;
            let last = self.outsider.stored(group.id()).await.last().unwrap().0;
            assert_eq!((at.received, at.processed, at.pending.len()), (last, Some(last), 0));
            let rejected = inside.rejections(group.id()).await;
            assert_eq!(rejected.len(), TOO_MANY / 2 * 2);
            assert!(rejected.iter().all(|(_, code)| code == "future_epoch"));
        }
        inside.audit().await;
    }
}

/// The texts a stream hands out, by group, until each of these groups has had this many.
async fn texts(stream: &mut MessageStream, groups: &[Group], each: usize) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<_, Vec<_>> =
        groups.iter().map(|group| (group.id().to_string(), Vec::new())).collect();
    let deadline = Instant::now() + PATIENCE;
    while found.values().any(|texts| texts.len() < each) {
        let item = tokio::time::timeout_at(deadline, stream.next()).await;
        let item = item.unwrap_or_else(|_| panic!("waited in vain: {found:?}")).unwrap().unwrap();
        if let Content::Text(text) = item.message.content {
            found.entry(item.message.group_id.to_string()).or_default().push(text);
        }
    }
    found
}

/// Shows: STR-063, PROC-013, PROC-020.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_topic_pauses_alone_and_goes_on_where_it_stopped_without_being_asked() {
    a_full_topic_pauses_alone_and_goes_on(ReceiverKind::Bidirectional).await;
}

/// On a static stream a topic can't be taken off: what comes for it is dropped, and queried when there is room.
///
/// Shows: STR-052, STR-063, PROC-013, PROC-020.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_topic_of_a_static_stream_goes_on_where_it_stopped_without_being_asked() {
    a_full_topic_pauses_alone_and_goes_on(ReceiverKind::Static).await;
}

async fn a_full_topic_pauses_alone_and_goes_on(receiver: ReceiverKind) {
    let case = Blocked::set(1, receiver).await;
    let held = &case.held[0];
    let topic = Topic::group(held.id());
    let inside = Inside::open(&case.bob.path(), &case.bob.key()).await;
    let mut stream = case.bob.messages().open().await.unwrap();
    case.fill(held).await;
    eventually("the topic to be full", async || inside.position(topic).await.pending.len() == PER_TOPIC)
        .await;
    let full = inside.position(topic).await;
    // Everybody else goes on, and the full topic says that it waits.
    case.free.send_text("free").await.unwrap();
    let free = std::slice::from_ref(&case.free);
    assert_eq!(texts(&mut stream, free, 1).await[&case.free.id().to_string()], ["free"]);
    let catch_up = stream.catch_up().await.unwrap();
    for status in catch_up.topics {
        let paused = status.registration != RegistrationState::Active;
        assert_eq!(paused, status.topic == topic, "{status:?}");
    }
    held.send_text("later").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(inside.position(topic).await, full, "a full topic neither takes nor loses anything");

    case.relay.show(case.carol);
    let found = texts(&mut stream, &case.held, 4).await;
    assert_eq!(found[&held.id().to_string()], ["before", "among", "behind", "later"]);
    eventually("the rest to be settled", async || {
        let at = inside.position(topic).await;
        at.processed == Some(case.outsider.stored(held.id()).await.last().unwrap().0)
    })
    .await;
    case.assert_settled(&inside).await;
    stream.close().await;
}

/// Eight topics fill what their kind may hold, as far as each may. A ninth still gets through, and when the eight are
/// freed nothing is missing.
///
/// Shows: STR-063, PROC-013, PROC-020.
#[tokio::test(flavor = "multi_thread")]
async fn eight_full_topics_do_not_stop_a_ninth() {
    let case = Blocked::set(8, ReceiverKind::Bidirectional).await;
    let inside = Inside::open(&case.bob.path(), &case.bob.key()).await;
    let mut stream = case.bob.messages().open().await.unwrap();
    for group in &case.held {
        case.fill(group).await;
    }
    let pending = async || -> usize {
        let mut pending = 0;
        for group in &case.held {
            pending += inside.position(Topic::group(group.id())).await.pending.len();
        }
        pending
    };
    eventually("six topics to be full", async || pending().await >= 6 * PER_TOPIC).await;
    for n in 0..30 {
        case.free.queue_text(&n.to_string()).await.unwrap();
    }
    let free = std::slice::from_ref(&case.free);
    let expected: Vec<_> = (0..30).map(|n| n.to_string()).collect();
    assert_eq!(texts(&mut stream, free, 30).await[&case.free.id().to_string()], expected);
    assert!(pending().await <= 8 * PER_TOPIC);

    case.relay.show(case.carol);
    let found = texts(&mut stream, &case.held, 3).await;
    for group in &case.held {
        assert_eq!(found[&group.id().to_string()], ["before", "among", "behind"]);
    }
    case.assert_settled(&inside).await;
    stream.close().await;
}
