//! Two processes on one database, stopped, resumed and killed at random.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater::{GroupId, InboxId};
use highwater_testkit::{TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Kept};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::process::Process;
use crate::{seed, size};

/// Both processes receive, process and send, at the same time and on the same group. Neither may use what it remembers
/// of the group's secrets: the other may have used it while this one stood still.
///
/// Shows: STR-070, STR-071, STR-110, STR-112, PROC-008.
#[tokio::test(flavor = "multi_thread")]
async fn two_frozen_and_killed_processes_on_one_database_have_one_history() {
    let mut random = StdRng::seed_from_u64(seed());
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let mut bob = TestClient::new(&backend.url()).await;
    let carol = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id(), carol.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    carol.sync().await.unwrap();
    let sender = bob.inbox_id();
    bob.close().await;

    let mut said = Said::default();
    let mut pair = Pair::start(&bob, backend.url(), group.id());
    for turn in 1..=size(50, 1000) {
        let which = random.random_range(0..2_usize);
        match random.random_range(0..10) {
            0 => said.hear(&pair.kill(which).await),
            // Killed while it stands still, wherever that is.
            1 => {
                pair.of(which).signal("STOP").await;
                pause(&mut random, 50).await;
                said.hear(&pair.kill(which).await);
            }
            2 => {
                group.set_name(format!("turn {turn}")).await.unwrap();
            }
            3 => said.alice(&group, turn).await,
            _ => {
                pair.of(which).signal("STOP").await;
                pause(&mut random, 250).await;
                pair.of(which).signal("CONT").await;
            }
        }
        pause(&mut random, 120).await;
    }
    for process in pair.running.into_iter().flatten() {
        said.hear(&process.end().await);
    }

    bob.open().await;
    eventually("what was queued to be sent", async || {
        bob.sync().await.is_ok() && bob.unsettled().await.unwrap() == 0
    })
    .await;
    alice.sync().await.unwrap();
    carol.sync().await.unwrap();
    let shared = Inside::open(&bob.path(), &bob.key()).await;
    let third = Inside::open(&carol.path(), &carol.key()).await;
    judge(&said, &shared, &third, group.id(), sender).await;
}

async fn judge(said: &Said, shared: &Inside, third: &Inside, group: GroupId, bob: InboxId) {
    shared.audit().await;
    third.audit().await;
    let (ours, theirs) = (shared.messages().await, third.messages().await);
    // The first is the transcript of one's own joining.
    let history =
        |kept: &[Kept]| -> Vec<_> { kept.iter().skip(1).map(|one| (one.id, one.text.clone())).collect() };
    assert_eq!(history(&ours), history(&theirs), "one history");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for text in theirs.into_iter().filter_map(|kept| kept.text) {
        *times.entry(text).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    assert!(said.sent.len() > size(50, 1000), "hardly anything was sent: {}", said.sent.len());
    for (id, text) in &said.sent {
        assert!(times.contains_key(text), "{text} was reported as sent");
        let found = ours.iter().find(|kept| kept.id.to_hex() == *id);
        assert_eq!(found.and_then(|kept| kept.text.as_ref()), Some(text));
    }
    for process in ["0", "1"] {
        let by = |text: &&String| text.starts_with(process);
        assert!(said.sent.values().any(|text| by(&text)), "process {process} sent nothing");
    }
    // A generation used twice would be one that the third member has seen before.
    assert_eq!(third.rejections(group).await, [], "of {bob:?}");
    assert_eq!(shared.agreement(group).await, third.agreement(group).await);
}

/// What was reported.
#[derive(Default)]
struct Said {
    /// Sends that were confirmed, by message id.
    sent: BTreeMap<String, String>,
}

impl Said {
    fn hear(&mut self, lines: &[Value]) {
        let mut numbers = BTreeSet::new();
        for line in lines {
            if let (Some(id), Some(text)) = (line["sent"].as_str(), line["text"].as_str()) {
                assert!(self.sent.insert(id.to_owned(), text.to_owned()).is_none());
            }
            if let Some(number) = line["number"].as_u64() {
                assert!(numbers.last().is_none_or(|last| *last < number), "{line}");
                numbers.insert(number);
            }
        }
    }

    async fn alice(&mut self, group: &highwater::Group, turn: usize) {
        let text = format!("alice {turn}");
        let sent = group.send_text(&text).await.unwrap();
        self.sent.insert(sent.message_id.to_hex(), text);
    }
}

/// Bob's two processes. The first is the default consumer, of which there is one; the second reads along.
struct Pair<'a> {
    bob: &'a TestClient,
    backend: String,
    group: String,
    running: [Option<Process>; 2],
    started: u32,
}

impl<'a> Pair<'a> {
    fn start(bob: &'a TestClient, backend: String, group: GroupId) -> Self {
        let mut pair = Self { bob, backend, group: group.to_string(), running: [None, None], started: 0 };
        pair.start_one(0);
        pair.start_one(1);
        pair
    }

    fn start_one(&mut self, which: usize) {
        self.started += 1;
        let say = format!("{which}.{}", self.started);
        let mut more = vec!["--group", &self.group, "--say", &say, "--pace", "5"];
        if which == 1 {
            more.push("--replay");
        }
        self.running[which] = Some(Process::start(self.bob, &self.backend, &more));
    }

    fn of(&self, which: usize) -> &Process {
        self.running[which].as_ref().unwrap()
    }

    /// Kills one and starts it again. Returns what it had said.
    async fn kill(&mut self, which: usize) -> Vec<Value> {
        let lines = self.running[which].take().unwrap().kill().await;
        self.start_one(which);
        lines
    }
}

async fn pause(random: &mut StdRng, most: u64) {
    tokio::time::sleep(Duration::from_millis(random.random_range(0..most))).await;
}
