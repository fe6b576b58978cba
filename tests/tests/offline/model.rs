//! Ordered processing against a model of it that fits on a page, over random streams of real envelopes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_mls::{Change, MlsError, Trial};
use highwater_processing::Stop;
use highwater_tests::{Foreign, Peer, PeerImage, RawCommit, World};
use highwater_wire::{Cursor, GroupId, SequenceId, Topic};
use tokio::task::JoinSet;

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// What an envelope of the pool is. A branch is the number of the commit that an epoch began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Garbage,
    OtherVersion,
    Text,
    Commit,
    Removal,
}

#[derive(Clone, Debug)]
struct Item {
    kind: Kind,
    /// The epoch it is of, and the commit that began that epoch: another one leads to other keys.
    epoch: usize,
    began: usize,
    /// For a commit, its own number.
    number: usize,
    text: String,
    data: Vec<u8>,
}

/// Carol's client at her join, and envelopes that might arrive after it.
struct Pool {
    world: World,
    carol: PeerImage,
    group: GroupId,
    items: Vec<Item>,
}

const EPOCHS: usize = 6;

impl Pool {
    async fn new() -> Self {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let carol = Peer::new(&mut world).await;
        let mut mallory = Foreign::new(&mut world);
        let group = alice.create_group_of(&mut world, BTreeSet::from([carol.inbox, mallory.inbox])).await;
        mallory.join(&world);
        carol.join(&world).await;
        carol.catch_up(&world, group).await;
        let base = world.clone();
        let mut items = Vec::new();
        let item =
            |kind, epoch, number, data| Item { kind, epoch, began: epoch, number, text: String::new(), data };
        for epoch in 0..EPOCHS {
            for n in 0..3 {
                let text = format!("{epoch}.{n}");
                let data = mallory.say(&text);
                items.push(Item { text, ..item(Kind::Text, epoch, 0, data) });
            }
            // One that nobody goes on from, and for one epoch the removal of Carol.
            let rival = mallory.commit(RawCommit::default());
            items.push(item(Kind::Commit, epoch, 100 + epoch, rival));
            if epoch == 3 {
                let (inbox, installation) = (carol.inbox, carol.installation);
                let data = commit(&alice, group, removal(inbox, installation)).await;
                items.push(item(Kind::Removal, epoch, 200, data));
            }
            let data = mallory.advance(RawCommit::default());
            world.publish_data(group, data.clone());
            alice.catch_up(&world, group).await;
            items.push(item(Kind::Commit, epoch, epoch + 1, data));
        }
        items.push(item(Kind::Garbage, 0, 0, vec![0, 1, 0, 2, 9, 9]));
        items.push(item(Kind::OtherVersion, 0, 0, vec![0, 2, 0, 2, 9, 9]));
        Self { world: base, carol: carol.into_image().await, group, items }
    }
}

fn removal(inbox: highwater_wire::InboxId, installation: highwater_wire::InstallationKey) -> Change {
    Change::Membership {
        upsert: BTreeMap::new(),
        remove: BTreeSet::from([inbox]),
        add_leaves: Vec::new(),
        remove_leaves: BTreeSet::from([installation]),
    }
}

/// A commit that its maker forgets.
async fn commit(alice: &Peer, group: GroupId, change: Change) -> Vec<u8> {
    alice
        .write(move |tx| {
            Box::pin(async move {
                let mut trial = Trial::load(tx, group).await?.expect("a group");
                Ok::<_, MlsError>(trial.commit(change)?.data)
            })
        })
        .await
}

/// What processing should have come to.
#[derive(Default)]
struct Model {
    epoch: usize,
    /// The commit that began each epoch so far.
    began: Vec<usize>,
    read: BTreeSet<String>,
    texts: Vec<String>,
    rejected: Vec<(SequenceId, &'static str)>,
    processed: Option<SequenceId>,
    held: Option<SequenceId>,
    inactive: bool,
}

impl Model {
    fn take(&mut self, at: SequenceId, item: &Item) {
        if self.inactive || self.held.is_some() {
            return;
        }
        match self.verdict(item) {
            Verdict::Apply => match item.kind {
                Kind::Text => {
                    self.read.insert(item.text.clone());
                    self.texts.push(item.text.clone());
                }
                _ => {
                    self.epoch += 1;
                    self.began.push(item.number);
                    self.inactive = item.kind == Kind::Removal;
                }
            },
            Verdict::Reject(code) => self.rejected.push((at, code)),
            Verdict::Hold => {
                self.held = Some(at);
                return;
            }
        }
        self.processed = Some(at);
    }

    fn verdict(&self, item: &Item) -> Verdict {
        let same_keys = self.began.get(item.epoch) == Some(&item.began);
        match item.kind {
            Kind::Garbage => Verdict::Reject("malformed"),
            Kind::OtherVersion => Verdict::Hold,
            _ if item.epoch > self.epoch => Verdict::Reject("future_epoch"),
            Kind::Commit | Kind::Removal if item.epoch < self.epoch => Verdict::Reject("past_epoch"),
            Kind::Text if self.epoch - item.epoch > 3 => Verdict::Reject("secrets_discarded"),
            _ if !same_keys => Verdict::Reject("authentication"),
            Kind::Text if self.read.contains(&item.text) => Verdict::Reject("secret_reused"),
            Kind::Text | Kind::Commit | Kind::Removal => Verdict::Apply,
        }
    }
}

enum Verdict {
    Apply,
    Reject(&'static str),
    Hold,
}

/// A random stream: mostly in the order things were made, with replays, swaps, losses, and now and then what ends it.
fn stream(random: &mut Random, items: &[Item]) -> Vec<Item> {
    let ends = |item: &Item| matches!(item.kind, Kind::OtherVersion | Kind::Removal);
    let mut chosen: Vec<Item> = Vec::new();
    for item in items {
        let rival = item.kind == Kind::Commit && item.number >= 100;
        let keep =
            if ends(item) { random.below(4) == 0 } else { random.below(if rival { 8 } else { 10 }) > 0 };
        if keep && !(rival && random.below(8) > 0) {
            chosen.push(item.clone());
        }
    }
    for _ in 0..random.below(8) {
        let from = random.below(chosen.len());
        let copy = chosen[from].clone();
        chosen.insert(random.below(chosen.len() + 1), copy);
    }
    for _ in 0..random.below(4) {
        let (a, b) = (random.below(chosen.len()), random.below(chosen.len()));
        chosen.swap(a, b);
    }
    chosen
}

async fn run(pool: &Pool, seed: u64) -> Model {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let topic = Topic::group(pool.group);
    let mut world = pool.world.clone();
    let mut carol = pool.carol.open().await;
    let mut model = Model { began: vec![0], ..Model::default() };
    let anchor = carol.processed(topic).await;
    let stream = stream(&mut random, &pool.items);
    let mut published = Vec::new();
    for item in &stream {
        if random.below(3) == 0 {
            world.skip_ids(1);
        }
        published.push(world.publish_data(pool.group, item.data.clone()));
    }
    let mut next = 0;
    while next < stream.len() {
        // Any cut of the stream into admissions; a restart between some.
        let through = (next + 1 + random.below(12)).min(stream.len());
        carol.receive_through(&world, topic, Cursor::from(published[through - 1])).await;
        if random.below(8) == 0 {
            carol.restart().await;
        }
        let report = carol.process(topic).await;
        for index in next..through {
            model.take(published[index], &stream[index]);
        }
        next = through;
        let context = format!("seed {seed}, through {through}");
        let rejected: Vec<_> =
            carol.rejections(topic).await.into_iter().map(|found| (found.sequence_id, found.code)).collect();
        let expected: Vec<_> = model.rejected.iter().map(|(at, code)| (*at, (*code).to_owned())).collect();
        assert_eq!(rejected, expected, "{context}");
        assert_eq!(carol.texts(pool.group).await, model.texts, "{context}");
        assert_eq!(
            carol.processed(topic).await,
            model.processed.map_or(anchor, SequenceId::get),
            "{context}"
        );
        let held = carol.held(topic).await.map(|held| held.sequence_id);
        assert_eq!(held, model.held, "{context}");
        assert_eq!(report.stop == Some(Stop::Inactive), model.inactive, "{context}");
    }
    // What was not handled is still there, all of it.
    let processed = carol.processed(topic).await;
    let pending = carol.pending(topic).await;
    let left: Vec<_> = published.into_iter().filter(|id| id.get() > processed).collect();
    assert_eq!(pending, left, "seed {seed}");
    carol.audit().await;
    carol.store.close().await;
    model
}

/// Shows: PROC-005, PROC-011, PROC-012, STR-072, STR-074, STR-086.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_random_stream_leads_to_what_the_model_says() {
    const AT_ONCE: usize = 4;
    let runs = if std::env::var_os("HIGHWATER_SOAK").is_some() { 20_000 } else { 120 };
    let pool = Arc::new(Pool::new().await);
    let (mut codes, mut inactive, mut held) = (BTreeSet::new(), 0, 0);
    let mut running = JoinSet::new();
    let mut seeds = 0..runs;
    loop {
        while running.len() < AT_ONCE
            && let Some(seed) = seeds.next()
        {
            let pool = Arc::clone(&pool);
            running.spawn(async move { run(&pool, seed).await });
        }
        let Some(model) = running.join_next().await else { break };
        let model = model.unwrap();
        codes.extend(model.rejected.iter().map(|(_, code)| *code));
        inactive += u32::from(model.inactive);
        held += u32::from(model.held.is_some());
    }
    // The streams are worth something: they lead everywhere.
    let everything =
        ["authentication", "future_epoch", "malformed", "past_epoch", "secret_reused", "secrets_discarded"];
    assert_eq!(codes, BTreeSet::from(everything));
    assert!(inactive > 5 && held > 20, "{inactive} {held}");
}
