//! A client that is killed again and again while it receives and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater::{GroupId, Topic, TopicKind};
use highwater_testkit::{Relay, TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Kept, Outsider, garbage};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::Instant;

use crate::process::{PATIENCE, Process};
use crate::{seed, size};

const GROUPS: usize = 10;
/// Texts on the open groups; the case's 500 envelopes.
const TEXTS: usize = 500;

/// Cases A4 and the kill -9 of the whole: whatever the moment of death, what was received is there, what was handed out
/// is handed out again only if it was the last, and the survivor ends where a member ends that nobody disturbed.
///
/// Shows: STR-061, STR-077, STR-095, PROC-002, PROC-008, PROC-011, PROC-012, PROC-013, PROC-024.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_killed_at_any_moment_ends_as_one_that_never_was() {
    let kills = size(50, 500);
    let mut course = Course::set().await;
    course.repeat_a_commit().await;
    for kill in 1..=kills {
        course.live_and_die(TEXTS * kill / kills).await;
        course.look_inside().await;
    }
    course.finish().await;
}

/// Alice talks, an outsider disturbs, carol listens undisturbed, and bob is the one that is killed.
struct Course {
    random: StdRng,
    backend: TestBackend,
    relay: Relay,
    outsider: Outsider,
    alice: TestClient,
    bob: TestClient,
    carol: TestClient,
    dave: TestClient,
    groups: Vec<GroupId>,
    /// Where dave is a member now.
    with_dave: BTreeSet<GroupId>,
    /// A group whose head bob can't settle: it needs the identity of somebody whom bob's backend doesn't show.
    held: GroupId,
    stranger: Topic,
    texts: usize,
    held_texts: usize,
    /// What the outsider published.
    bad: BTreeMap<GroupId, BTreeSet<u64>>,
    marks: u64,
    /// What bob's app was handed, in order: number and id.
    handed: Vec<(u64, String)>,
    /// What bob had stored when it was last looked at.
    stored: Vec<Kept>,
}

impl Course {
    async fn set() -> Self {
        let random = StdRng::seed_from_u64(seed());
        let backend = TestBackend::start().await;
        let relay = Relay::to(backend.address()).await;
        let alice = TestClient::new(&backend.url()).await;
        let mut bob = TestClient::new(&relay.url()).await;
        let carol = TestClient::new(&backend.url()).await;
        let dave = TestClient::new(&backend.url()).await;
        let stranger = TestClient::new(&backend.url()).await;
        let mut groups = Vec::new();
        for _ in 0..=GROUPS {
            groups.push(alice.create_group([bob.inbox_id(), carol.inbox_id()]).await.unwrap().id());
        }
        bob.sync().await.unwrap();
        carol.sync().await.unwrap();
        bob.close().await;
        let held = groups.pop().unwrap();
        let topic = Topic::identity(stranger.inbox_id());
        relay.hide(topic);
        alice.group(held).await.unwrap().add_members([stranger.inbox_id()]).await.unwrap();
        let outsider = Outsider::connect(&backend.url());
        Self {
            random,
            backend,
            relay,
            outsider,
            alice,
            bob,
            carol,
            dave,
            groups,
            with_dave: BTreeSet::new(),
            held,
            stranger: topic,
            texts: 0,
            held_texts: 0,
            bad: BTreeMap::new(),
            marks: 0,
            handed: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// One life of bob's process, with traffic before and during it.
    async fn live_and_die(&mut self, texts: usize) {
        self.act(texts).await;
        let process = Process::start(&self.bob, &self.relay.url(), &[]);
        let lifetime = Duration::from_millis(self.random.random_range(10..400));
        let death = tokio::spawn(async move {
            tokio::time::sleep(lifetime).await;
            process.kill().await
        });
        while !death.is_finished() {
            self.act(texts).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        self.hear(&death.await.unwrap());
    }

    /// Bob's app sees each item once, in order, or the last one of the life before again.
    fn hear(&mut self, lines: &[Value]) {
        let mut first = true;
        for line in lines {
            let Some(number) = line["number"].as_u64() else { continue };
            let item = (number, line["got"].as_str().unwrap().to_owned());
            let repeats = std::mem::take(&mut first) && self.handed.last() == Some(&item);
            if !repeats {
                let follows = self.handed.last().is_none_or(|(last, _)| *last < number);
                assert!(follows, "{item:?} after {:?}", self.handed.last());
                self.handed.push(item);
            }
        }
    }

    async fn act(&mut self, texts: usize) {
        let group = self.groups[self.random.random_range(0..GROUPS)];
        match self.random.random_range(0..10) {
            0..6 => self.say(group, texts).await,
            6 => self.change(group).await,
            7 => self.publish(group, self.garbage(group).await).await,
            8 => self.repeat(group).await,
            _ => {
                self.held_texts += 1;
                let held = self.alice.group(self.held).await.unwrap();
                held.queue_text(&format!("held {}", self.held_texts)).await.unwrap();
            }
        }
    }

    async fn say(&mut self, group: GroupId, texts: usize) {
        let some = self.random.random_range(1..=12).min(texts - self.texts);
        let group = self.alice.group(group).await.unwrap();
        for _ in 0..some {
            self.texts += 1;
            group.queue_text(&format!("text {}", self.texts)).await.unwrap();
        }
    }

    async fn change(&mut self, id: GroupId) {
        let group = self.alice.group(id).await.unwrap();
        if self.random.random_bool(0.3) {
            group.set_name(format!("name {}", self.random.random::<u16>())).await.unwrap();
        } else if self.with_dave.remove(&id) {
            group.remove_members([self.dave.inbox_id()]).await.unwrap();
        } else {
            group.add_members([self.dave.inbox_id()]).await.unwrap();
            self.with_dave.insert(id);
        }
    }

    /// Nobody's messages of this epoch and of others.
    async fn garbage(&self, id: GroupId) -> Vec<Vec<u8>> {
        let status = self.alice.status().await.unwrap();
        let group = status.groups.iter().find(|group| group.group_id == id).unwrap();
        let epoch = group.epoch.unwrap();
        vec![garbage(id, epoch, &[1; 40]), garbage(id, epoch + 9, &[2; 40]), garbage(id, epoch, &[3])]
    }

    /// A commit twice: the second time it is one of a past epoch. Chance alone picks one too rarely.
    async fn repeat_a_commit(&mut self) {
        let group = self.groups[0];
        let before = self.outsider.stored(group).await.len();
        self.change(group).await;
        let commits = self.outsider.stored(group).await.split_off(before);
        self.publish(group, commits.into_iter().map(|(_, data)| data).collect()).await;
    }

    /// Something that is on the topic already, word for word and with a bit turned.
    async fn repeat(&mut self, group: GroupId) {
        let stored = self.outsider.stored(group).await;
        let (_, data) = &stored[self.random.random_range(0..stored.len())];
        let mut turned = data.clone();
        *turned.last_mut().unwrap() ^= 1;
        self.publish(group, vec![data.clone(), turned]).await;
    }

    async fn publish(&mut self, group: GroupId, data: Vec<Vec<u8>>) {
        self.marks += 1;
        let ids = self.outsider.publish(data, self.marks).await;
        self.bad.entry(group).or_default().extend(ids);
    }

    /// The database while nothing runs.
    async fn look_inside(&mut self) {
        let inside = Inside::open(&self.bob.path(), &self.bob.key()).await;
        inside.audit().await;
        for (topic, at) in inside.positions().await {
            let Some(group) = topic.group_id() else { continue };
            let stored = self.outsider.stored(group).await;
            let processed = at.processed.unwrap();
            let ids = stored.iter().map(|(id, _)| *id);
            let owed: Vec<_> = ids.filter(|id| *id > processed && *id <= at.received).collect();
            assert_eq!(at.pending, owed, "what F covers is not all there: {at:?}");
        }
        let messages = inside.messages().await;
        assert!(messages.is_sorted_by(|one, next| one.number < next.number));
        let ids: BTreeSet<_> = messages.iter().map(|message| message.id).collect();
        assert_eq!(ids.len(), messages.len(), "a message is there twice");
        assert_eq!(messages[..self.stored.len()], self.stored, "what was stored changed");
        self.stored = messages;
        inside.close().await;
    }

    /// Bob lives on, is shown what was withheld, and is compared with carol.
    async fn finish(mut self) {
        let alice = &self.alice;
        eventually("everything to be sent", async || alice.unsettled().await.unwrap() == 0).await;
        self.look_inside().await;
        let before = Inside::open(&self.bob.path(), &self.bob.key()).await;
        assert_eq!(before.held().await[&Topic::group(self.held)], "dependency");
        before.close().await;
        self.relay.show(self.stranger);
        self.carol.sync().await.unwrap();
        let carol = Inside::open(&self.carol.path(), &self.carol.key()).await;
        let owed = carol.messages().await.len();
        let process = Process::start(&self.bob, &self.relay.url(), &[]);
        let deadline = Instant::now() + PATIENCE;
        let at_last = |lines: &[Value]| lines.iter().filter_map(|line| line["number"].as_u64()).next_back();
        // Handed out in order, so the last number tells how many there were.
        while at_last(&process.lines()) < Some(owed as u64) {
            assert!(Instant::now() < deadline, "{owed} items were owed: {:?}", process.lines().last());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.hear(&process.end().await);
        self.look_inside().await;
        self.compare(&carol).await;
    }

    async fn compare(&self, carol: &Inside) {
        let bob = Inside::open(&self.bob.path(), &self.bob.key()).await;
        let stored: Vec<_> = self.stored.iter().map(|kept| (kept.number, kept.id.to_hex())).collect();
        assert_eq!(self.handed, stored, "handed out is what is stored, each once");
        let texts: BTreeSet<_> = self.stored.iter().filter_map(|kept| kept.text.clone()).collect();
        let said = (1..=self.texts).map(|n| format!("text {n}"));
        let held = (1..=self.held_texts).map(|n| format!("held {n}"));
        assert_eq!(texts, said.chain(held).collect());
        assert_eq!(self.stored.iter().filter(|kept| kept.text.is_some()).count(), texts.len());
        let of_carol = carol.messages().await;
        let alice = Inside::open(&self.alice.path(), &self.alice.key()).await;
        let mut codes = BTreeMap::new();
        for group in self.groups.iter().copied().chain([self.held]) {
            // The first is the transcript of one's own joining.
            let of = |kept: &[Kept]| -> Vec<_> {
                kept.iter().filter(|kept| kept.group == group).skip(1).map(|kept| kept.id).collect()
            };
            assert_eq!(of(&self.stored), of(&of_carol), "the order in a group");
            assert_eq!(bob.agreement(group).await, carol.agreement(group).await);
            assert_eq!(bob.agreement(group).await, alice.agreement(group).await);
            let rejected = bob.rejections(group).await;
            assert_eq!(rejected, carol.rejections(group).await);
            let ids: BTreeSet<_> = rejected.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, self.bad.get(&group).cloned().unwrap_or_default(), "{rejected:?}");
            for (_, code) in rejected {
                *codes.entry(code).or_insert(0) += 1;
            }
        }
        let seen: Vec<_> = codes.keys().map(String::as_str).collect();
        for code in ["authentication", "future_epoch", "past_epoch", "secret_reused"] {
            assert!(seen.contains(&code), "the course had no {code}: {codes:?}");
        }
        for (topic, at) in bob.positions().await {
            if topic.kind() == TopicKind::GroupMessage {
                assert_eq!((at.processed, at.pending.len()), (Some(at.received), 0), "{topic:?}");
            }
        }
        carol.audit().await;
        let _ = &self.backend;
    }
}
