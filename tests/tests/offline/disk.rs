//! A disk that fails at each of its operations in turn, under receiving, processing and joining.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_mls::Resolutions;
use highwater_outbox::{ChangeRequest, IntentId};
use highwater_store::StoreError;
use highwater_testkit_base::{Disk, Fault};
use highwater_tests::{Peer, PeerImage, World};
use highwater_wire::{Cursor, GroupId, InboxId, InstallationKey, SequenceId, Topic};

/// How many operations of the run are struck, evenly spread. All of them with `HIGHWATER_SOAK`.
const POINTS: usize = 34;

/// One transaction of the run.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// What the backend has of a topic up to a point is admitted.
    Admit(Topic, Cursor),
    /// A topic is attempted.
    Attempt(Topic),
    /// A Welcome is attempted.
    Join(SequenceId),
}

/// A client whose database was closed just before the run, and what the run brings it.
struct Prepared {
    world: World,
    bo: PeerImage,
    installation: InstallationKey,
    alice: Peer,
    /// Bo is a member; the topic brings messages, commits, own echoes, rejects and holds.
    old: GroupId,
    /// Bo's Welcome is waiting.
    new: GroupId,
    own: IntentId,
    steps: Vec<Step>,
}

impl Prepared {
    async fn new() -> Self {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let bo = Peer::new(&mut world).await;
        let carol = Peer::new(&mut world).await;
        let old = alice.create_group(&mut world, &[&bo]).await;
        let topic = Topic::group(old);
        bo.join(&world).await;
        bo.receive(&world, topic).await;
        bo.process(topic).await;

        let (own, _) = bo.send(&mut world, old, "own").await;
        alice.send(&mut world, old, "first").await;
        let replay = world.newest(topic).unwrap().clone();
        world.publish_on(topic, replay);
        world.publish_data(old, [vec![0, 1, 0, 2], vec![7; 40]].concat());
        alice.catch_up(&world, old).await;
        alice.change(&mut world, old, ChangeRequest::SetName("renamed".into())).await;
        let stale = world.newest(topic).unwrap().clone();
        alice.catch_up(&world, old).await;
        alice.send(&mut world, old, "second").await;
        let early = Cursor::from(world.publish_on(topic, stale));
        // Bo hasn't seen carol's identity: held until it has.
        let carols = BTreeSet::from([carol.inbox]);
        alice.change(&mut world, old, ChangeRequest::AddMembers(carols.clone())).await;
        alice.catch_up(&world, old).await;
        alice.send(&mut world, old, "third").await;
        alice.catch_up(&world, old).await;
        alice.change(&mut world, old, ChangeRequest::RemoveMembers(carols)).await;
        alice.catch_up(&world, old).await;
        alice.send(&mut world, old, "fourth").await;
        alice.catch_up(&world, old).await;

        let new = alice.create_group(&mut world, &[&bo]).await;
        alice.send(&mut world, new, "welcome").await;
        alice.catch_up(&world, new).await;
        let (installation, bo) = (bo.installation, bo.into_image().await);
        let mut prepared = Self { world, bo, installation, alice, old, new, own, steps: Vec::new() };
        prepared.steps = prepared.steps(early, carol.inbox);
        prepared
    }

    fn steps(&self, early: Cursor, carol: InboxId) -> Vec<Step> {
        let (old, new) = (Topic::group(self.old), Topic::group(self.new));
        let (welcomes, identity) = (Topic::welcome(self.installation), Topic::identity(carol));
        let welcome = self.world.prefix(welcomes, Cursor::ZERO).last();
        vec![
            Step::Admit(old, early),
            Step::Attempt(old),
            Step::Admit(new, Cursor::MAX),
            Step::Admit(old, Cursor::MAX),
            Step::Attempt(old),
            Step::Admit(welcomes, Cursor::MAX),
            Step::Join(SequenceId::try_from(welcome.get()).unwrap()),
            Step::Admit(identity, Cursor::MAX),
            Step::Attempt(identity),
            Step::Attempt(old),
            Step::Attempt(new),
        ]
    }

    /// The steps from the first one on, whatever was done before. Gives what is durable after each.
    async fn run(&self, peer: &Peer) -> Result<Vec<String>, String> {
        let mut states = Vec::new();
        for step in &self.steps {
            self.step(peer, *step).await?;
            states.push(self.durable(peer).await);
        }
        Ok(states)
    }

    async fn step(&self, peer: &Peer, step: Step) -> Result<(), String> {
        match step {
            Step::Admit(topic, through) => {
                let from = peer.received(topic).await;
                let prefix = Arc::new(self.world.prefix_through(topic, from, through));
                let admitted = peer
                    .store
                    .write("admit", move |tx| {
                        Box::pin(async move { highwater_receipt::admit(tx, &prefix).await })
                    })
                    .await;
                admitted.map(drop).map_err(|error| error.to_string())
            }
            Step::Attempt(topic) => {
                let report = highwater_processing::attempt(&peer.store, topic, Resolutions::default());
                report.await.map(drop).map_err(|error| error.to_string())
            }
            Step::Join(at) => {
                let topic = Topic::welcome(peer.installation);
                if peer.pending(topic).await.is_empty() {
                    return Ok(());
                }
                let report = highwater_join::attempt(&peer.store, topic, at, Resolutions::default());
                report.await.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Everything that the run may change, but for times.
    async fn durable(&self, peer: &Peer) -> String {
        let mut all = String::new();
        for group in [self.old, self.new] {
            all += &peer.durable(group).await;
        }
        all += &peer.durable_topics().await;
        all + &format!("{:?}", peer.outcome(self.own).await)
    }
}

/// What the faulty run is checked against.
struct Undisturbed {
    /// What may be found after an interruption.
    states: BTreeSet<String>,
    end: String,
    operations: usize,
}

impl Undisturbed {
    async fn of(prepared: &Prepared) -> Self {
        let disk = Disk::new();
        let peer = prepared.bo.open_on(&disk).await;
        let before = prepared.durable(&peer).await;
        disk.reset();
        let states = prepared.run(&peer).await.unwrap();
        let operations = disk.operations().len();
        peer.audit().await;
        assert_eq!(peer.texts(prepared.old).await, ["own", "first", "second", "third", "fourth"]);
        assert_eq!(peer.texts(prepared.new).await, ["welcome"]);
        let end = states.last().unwrap().clone();
        for code in ["secret_reused", "malformed", "past_epoch"] {
            assert!(end.contains(code), "{code} is in the stream: {end}");
        }
        assert!(states.iter().any(|state| state.contains("dependency")), "a head is held for a while");
        peer.store.close().await;
        Self { states: states.into_iter().chain([before]).collect(), end, operations }
    }
}

/// The run with a fault at one point after the other.
async fn strike(fault: Fault) {
    let prepared = Prepared::new().await;
    let undisturbed = Undisturbed::of(&prepared).await;
    let disk = Disk::new();
    let all = std::env::var_os("HIGHWATER_SOAK").is_some();
    let every = if all { 1 } else { (undisturbed.operations / POINTS).max(1) };
    let mut points: Vec<_> = (0..undisturbed.operations).rev().step_by(every).collect();
    points.reverse();
    let mut struck = 0;
    for after in points {
        disk.reset();
        let mut peer = prepared.bo.open_on(&disk).await;
        disk.arm(after, fault);
        let ran = prepared.run(&peer).await;
        struck += usize::from(disk.struck().is_some());
        if let (Err(error), Fault::Full) = (&ran, fault) {
            assert_eq!(*error, StoreError::DiskFull.to_string(), "at {after}");
        }
        if fault == Fault::Stop {
            peer.restart().await;
        }
        disk.heal();
        let found = prepared.durable(&peer).await;
        assert!(undisturbed.states.contains(&found), "{fault:?} at {after} left something between: {found}");
        peer.audit().await;
        prepared.run(&peer).await.unwrap();
        peer.audit().await;
        assert_eq!(prepared.durable(&peer).await, undisturbed.end, "{fault:?} at {after}");
        peer.store.close().await;
    }
    assert!(
        struck >= POINTS.min(undisturbed.operations) / 2,
        "{struck} points of {}",
        undisturbed.operations
    );
}

/// Shows: PROC-002, PROC-005, PROC-008, PROC-010, STR-020, STR-061, STR-071, STR-077, STR-084.
#[tokio::test]
async fn a_client_that_is_stopped_at_any_write_ends_as_if_it_had_not_been() {
    strike(Fault::Stop).await;
}

/// Shows: PROC-002, PROC-008, STR-061, STR-063, STR-077.
#[tokio::test]
async fn a_write_that_fails_once_changes_nothing_in_the_end() {
    strike(Fault::FailOnce).await;
}

/// Shows: PROC-002, PROC-008, STR-061, STR-063, STR-077.
#[tokio::test]
async fn a_disk_that_is_full_for_a_while_changes_nothing_in_the_end() {
    strike(Fault::Full).await;
}

/// A commit was merged in memory and the database didn't take it: what is sent next is of the stored epoch, and the
/// commit applies once.
///
/// Shows: STR-070, STR-071.
#[tokio::test]
async fn a_commit_that_was_not_stored_is_not_sent_from() {
    let prepared = Prepared::new().await;
    let disk = Disk::new();
    let bo = prepared.bo.open_on(&disk).await;
    let (topic, group) = (Topic::group(prepared.old), prepared.old);
    let mut world = prepared.world.clone();
    prepared.step(&bo, Step::Admit(topic, Cursor::MAX)).await.unwrap();
    let (epoch, _) = bo.agreement(group).await;
    disk.arm(0, Fault::Full);
    let refused = prepared.step(&bo, Step::Attempt(topic)).await;
    assert_eq!(refused, Err(StoreError::DiskFull.to_string()));
    disk.heal();
    assert_eq!(bo.agreement(group).await.0, epoch, "the stored epoch is what counts");
    bo.send(&mut world, group, "in between").await;
    bo.catch_up(&world, group).await;
    // Its echo came three epochs later, so it is prepared again.
    bo.drain(&mut world, group).await;
    bo.catch_up(&world, group).await;
    bo.audit().await;
    let texts = bo.texts(group).await;
    assert_eq!(texts, ["own", "first", "second", "third", "fourth", "in between"]);
    let alice = &prepared.alice;
    alice.catch_up(&world, group).await;
    assert_eq!(alice.agreement(group).await, bo.agreement(group).await);
    assert_eq!(alice.texts(group).await, texts);
}
