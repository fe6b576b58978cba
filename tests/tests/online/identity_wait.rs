//! A commit whose identity state the backend doesn't show (yet).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use highwater::{Group, GroupId, InboxId, Topic};
use highwater_sync::{Engine, EngineOptions, IDENTITY_REFERENCE_WAIT, Interest, Scope};
use highwater_testkit::{Link, Relay, TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Positions};
use highwater_transport::{ConnectOptions, Connection};

/// Alice adds carol and dave and goes on talking, in a group where bob's backend doesn't show carol's identity.
struct Withheld {
    _backend: TestBackend,
    relay: Relay,
    link: Link,
    /// Holds the folder of the client that the groups belong to.
    _alice: TestClient,
    bob: TestClient,
    carol: InboxId,
    dave: InboxId,
    group: Group,
    other: Group,
}

impl Withheld {
    async fn set() -> Self {
        let backend = TestBackend::start().await;
        let relay = Relay::to(backend.address()).await;
        let link = Link::to(relay.address()).await;
        let alice = TestClient::new(&backend.url()).await;
        let mut bob = TestClient::new(&link.url()).await;
        let carol = TestClient::new(&backend.url()).await.inbox_id();
        let dave = TestClient::new(&backend.url()).await.inbox_id();
        let group = alice.create_group([bob.inbox_id()]).await.unwrap();
        let other = alice.create_group([bob.inbox_id()]).await.unwrap();
        bob.sync().await.unwrap();
        bob.close().await;
        relay.hide(Topic::identity(carol));
        group.add_members([carol, dave]).await.unwrap();
        for n in 1..=5 {
            group.send_text(&format!("m{n}")).await.unwrap();
        }
        Self { _backend: backend, relay, link, _alice: alice, bob, carol, dave, group, other }
    }

    fn topic(&self) -> Topic {
        Topic::group(self.group.id())
    }

    /// An engine over bob's database whose time is the test's.
    async fn run(&self) -> Running {
        let inside = Inside::open(&self.bob.path(), &self.bob.key()).await;
        let time = Time::default();
        let options = EngineOptions::default().elapsed({
            let time = time.clone();
            move || time.now()
        });
        let connection = Connection::connect(&self.link.url(), ConnectOptions::default()).unwrap();
        let engine = Engine::start(inside.store.clone(), connection, options);
        let interest = engine.interest(Scope::AllGroups);
        Running { inside, engine, time, _interest: interest }
    }
}

/// Real time, and what the test adds to it.
#[derive(Clone)]
struct Time {
    started: Instant,
    added_ms: Arc<AtomicU64>,
}

impl Default for Time {
    fn default() -> Self {
        Self { started: Instant::now(), added_ms: Arc::default() }
    }
}

impl Time {
    fn now(&self) -> Duration {
        self.started.elapsed() + Duration::from_millis(self.added_ms.load(Ordering::SeqCst))
    }
}

struct Running {
    inside: Inside,
    engine: Engine,
    time: Time,
    _interest: Interest,
}

impl Running {
    /// Lets time pass in steps, with a retry of whatever is held in each.
    async fn pass(&self, relay: &Relay, time: Duration) {
        const STEP: Duration = Duration::from_secs(1);
        let until = self.time.now() + time;
        while self.time.now() < until {
            let step = STEP.min(until - self.time.now());
            let queries = relay.traffic().queries;
            self.time.added_ms.fetch_add(step.as_millis() as u64 + 1, Ordering::SeqCst);
            // A retry may be due or not; it shows as a query, and a wake makes the engine look.
            self.inside.hold_writer(Duration::ZERO).await;
            let asked = async || relay.traffic().queries > queries;
            let patience = Instant::now() + Duration::from_millis(100);
            while !asked().await && Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn at(&self, topic: Topic) -> Positions {
        self.inside.position(topic).await
    }

    async fn texts(&self, group: GroupId) -> Vec<String> {
        let kept = self.inside.messages().await.into_iter().filter(|kept| kept.group == group);
        kept.filter_map(|kept| kept.text).collect()
    }

    async fn stop(self) {
        self.engine.shutdown().await;
        self.inside.close().await;
    }
}

/// Case B6, first run: "not there yet" never becomes "never", however often the wait begins anew.
///
/// Shows: STR-020, STR-073, STR-075, STR-076, PROC-012, PROC-013.
#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_shows_late_lets_everything_behind_it_through() {
    let case = Withheld::set().await;
    let mut before = None;
    for life in 0..2 {
        let bob = case.run().await;
        eventually("the topic to be received and held", async || {
            let at = bob.at(case.topic()).await;
            at.pending.len() == 6 && bob.inside.held().await.contains_key(&case.topic())
        })
        .await;
        // What the commit needs besides is looked after and kept, whatever became of its sibling.
        let sibling = Topic::identity(case.dave);
        eventually("dave's identity", async || bob.at(sibling).await.processed.is_some()).await;
        let at = bob.at(case.topic()).await;
        assert_eq!(before.get_or_insert_with(|| at.clone()), &at);
        case.other.send_text(&format!("life {life}")).await.unwrap();
        bob.pass(&case.relay, Duration::from_secs(20)).await;
        assert_eq!(bob.at(case.topic()).await, at, "held without loss");
        eventually("other topics to move", async || bob.texts(case.other.id()).await.len() == life + 1).await;
        bob.stop().await;
    }
    let bob = case.run().await;
    case.relay.show(Topic::identity(case.carol));
    eventually("all five", async || bob.texts(case.group.id()).await.len() == 5).await;
    assert_eq!(bob.texts(case.group.id()).await, ["m1", "m2", "m3", "m4", "m5"]);
    let at = bob.at(case.topic()).await;
    assert_eq!((at.processed, at.pending.len()), (Some(at.received), 0));
    assert_eq!(bob.inside.rejections(case.group.id()).await, []);
    bob.inside.audit().await;
    bob.stop().await;
}

/// Case B6, second run: what was looked for in vain over the whole wait on a healthy connection does not exist, and what
/// depends on it follows the table. Time without a connection proves nothing.
///
/// Shows: STR-076, PROC-011.
#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_stays_away_for_the_whole_healthy_wait_rejects_the_commit() {
    let case = Withheld::set().await;
    let bob = case.run().await;
    eventually("the commit to be held", async || bob.inside.held().await.contains_key(&case.topic())).await;
    bob.pass(&case.relay, Duration::from_secs(18)).await;
    // The connection is away for much longer than the wait, with and without anything being asked meanwhile.
    case.link.go_down();
    bob.time.added_ms.fetch_add(60_000, Ordering::SeqCst);
    bob.inside.hold_writer(Duration::ZERO).await;
    let mut connection = bob.engine.connection_state();
    let up = highwater::ConnectionState::Connected;
    connection.wait_for(|state| *state != up).await.unwrap();
    bob.time.added_ms.fetch_add(60_000, Ordering::SeqCst);
    case.link.restore();
    connection.wait_for(|state| *state == up).await.unwrap();
    bob.pass(&case.relay, Duration::from_secs(5)).await;
    assert_eq!(bob.inside.rejections(case.group.id()).await, [], "rejected after too short a wait");
    let pending = bob.at(case.topic()).await.pending;
    bob.pass(&case.relay, IDENTITY_REFERENCE_WAIT).await;
    eventually("the commit to be rejected", async || bob.at(case.topic()).await.pending.is_empty()).await;
    let mut expected = vec![(pending[0], "identity_absent".to_owned())];
    expected.extend(pending[1..].iter().map(|id| (*id, "future_epoch".to_owned())));
    assert_eq!(bob.inside.rejections(case.group.id()).await, expected);
    bob.inside.audit().await;
    bob.stop().await;
}
