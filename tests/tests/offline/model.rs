//! Ordered processing against a model of it that fits on a page, over random streams of real envelopes.
//!
//! A run is one client with several groups, each with a stream of its own; they arrive interleaved. A run that failed is
//! repeated by itself with its seed in `HIGHWATER_MODEL_SEED`, though over envelopes with other keys.

mod pool;
mod rules;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use highwater_mls::Resolutions;
use highwater_processing::Stop;
use highwater_tests::{Peer, World};
use highwater_wire::{Cursor, GroupId, SequenceId, Topic};
use tokio::task::JoinSet;

use pool::{Item, Kind, Pool, RIVALS};
use rules::Model;

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A random stream: mostly in the order things were made, with replays, swaps, losses, and now and then what ends it.
fn stream(random: &mut Random, items: &[Item]) -> Vec<Item> {
    let ends = |item: &Item| matches!(item.kind, Kind::OtherVersion | Kind::Removal);
    let mut chosen: Vec<Item> = Vec::new();
    for item in items {
        let rival = item.kind == Kind::Commit && item.number >= RIVALS;
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

/// One group of a run.
struct Lane {
    group: GroupId,
    anchor: u64,
    stream: Vec<Item>,
    published: Vec<SequenceId>,
    /// How much of the stream has arrived.
    arrived: usize,
    model: Model,
}

impl Lane {
    fn topic(&self) -> Topic {
        Topic::group(self.group)
    }

    /// More of the stream is there, and so the model goes on.
    fn arrive(&mut self, more: usize) -> Cursor {
        let through = (self.arrived + more).min(self.stream.len());
        for index in self.arrived..through {
            self.model.take(self.published[index], &self.stream[index]);
        }
        self.arrived = through;
        Cursor::from(self.published[through - 1])
    }
}

/// Puts every stream on its topic, interleaved, with ids left out.
async fn lanes(pool: &Pool, world: &mut World, carol: &Peer, random: &mut Random) -> Vec<Lane> {
    let groups: Vec<_> = pool.groups.iter().map(|(group, _)| *group).collect();
    let mut before = carol.settled(groups).await;
    let mut lanes: Vec<_> = pool
        .groups
        .iter()
        .map(|(group, items)| Lane {
            group: *group,
            anchor: before.remove(group).map_or(0, |settled| settled.processed),
            stream: stream(random, items),
            published: Vec::new(),
            arrived: 0,
            model: Model::new(),
        })
        .collect();
    loop {
        let open: Vec<_> =
            (0..lanes.len()).filter(|at| lanes[*at].published.len() < lanes[*at].stream.len()).collect();
        if open.is_empty() {
            return lanes;
        }
        let lane = &mut lanes[open[random.below(open.len())]];
        if random.below(3) == 0 {
            world.skip_ids(1);
        }
        let data = lane.stream[lane.published.len()].data.clone();
        lane.published.push(world.publish_data(lane.group, data));
    }
}

async fn run(pool: &Pool, seed: u64) -> Vec<Model> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut world = pool.world.clone();
    let mut carol = pool.carol.open().await;
    let mut lanes = lanes(pool, &mut world, &carol, &mut random).await;
    loop {
        let open: Vec<_> =
            (0..lanes.len()).filter(|at| lanes[*at].arrived < lanes[*at].stream.len()).collect();
        if open.is_empty() {
            break;
        }
        // Any cut of the streams into admissions, of some of the groups at a time; a restart between some.
        let first = open[random.below(open.len())];
        let turn: Vec<_> = open.into_iter().filter(|at| *at == first || random.below(2) == 0).collect();
        for at in &turn {
            let through = lanes[*at].arrive(1 + random.below(12));
            carol.receive_through(&world, lanes[*at].topic(), through).await;
        }
        if random.below(8) == 0 {
            carol.restart().await;
        }
        let topics: Vec<_> = turn.iter().map(|at| lanes[*at].topic()).collect();
        let stops = process(&carol, topics, random.below(2) == 0).await;
        for at in &turn {
            let lane = &lanes[*at];
            let inactive = stops[&lane.topic()] == Stop::Inactive;
            assert_eq!(inactive, lane.model.inactive, "seed {seed}, {} arrived", lane.arrived);
        }
        check(&carol, turn.iter().map(|at| &lanes[*at]), seed).await;
    }
    check(&carol, lanes.iter(), seed).await;
    carol.audit().await;
    carol.store.close().await;
    lanes.into_iter().map(|lane| lane.model).collect()
}

/// Attempts the topics until each has stopped, in shared attempts or each by itself.
async fn process(carol: &Peer, mut topics: Vec<Topic>, together: bool) -> BTreeMap<Topic, Stop> {
    let mut stops = BTreeMap::new();
    while !topics.is_empty() {
        let some = if together { topics.clone() } else { vec![topics[0]] };
        let reports =
            highwater_processing::attempt_together(&carol.store, some, Resolutions::default()).await.unwrap();
        for (topic, report) in reports {
            if report.stop != Stop::More {
                topics.retain(|other| *other != topic);
                stops.insert(topic, report.stop);
            }
        }
    }
    stops
}

/// Compares what is stored, from one snapshot, with what the model says.
async fn check(carol: &Peer, lanes: impl Iterator<Item = &Lane>, seed: u64) {
    let lanes: Vec<_> = lanes.collect();
    let stored = carol.settled(lanes.iter().map(|lane| lane.group).collect()).await;
    for lane in lanes {
        let (found, model) = (&stored[&lane.group], &lane.model);
        let context = format!("seed {seed}, {} of {:?} arrived", lane.arrived, lane.group);
        let expected: Vec<_> = model.rejected.iter().map(|(at, code)| (*at, (*code).to_owned())).collect();
        assert_eq!(found.rejections, expected, "{context}");
        assert_eq!(found.texts, model.texts, "{context}");
        let processed = model.processed.map_or(lane.anchor, SequenceId::get);
        assert_eq!(found.processed, processed, "{context}");
        assert_eq!(found.held, model.held, "{context}");
        // What was not handled is still there, all of it.
        let arrived = lane.published[..lane.arrived].iter().copied();
        let left: Vec<_> = arrived.filter(|id| id.get() > processed).collect();
        assert_eq!(found.pending, left, "{context}");
    }
}

/// Shows: PROC-005, PROC-011, PROC-012, STR-072, STR-074, STR-086.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_random_stream_leads_to_what_the_model_says() {
    const AT_ONCE: usize = 4;
    let pool = Arc::new(Pool::new().await);
    if let Ok(seed) = std::env::var("HIGHWATER_MODEL_SEED") {
        run(&pool, seed.parse().unwrap()).await;
        return;
    }
    let runs = if std::env::var_os("HIGHWATER_SOAK").is_some() { 2_500 } else { 250 };
    let (mut codes, mut inactive, mut held, mut referenced, mut streams) = (BTreeSet::new(), 0, 0, 0, 0);
    let (mut running, mut seeds_by_task) = (JoinSet::new(), HashMap::new());
    let mut seeds = 0..runs;
    loop {
        while running.len() < AT_ONCE
            && let Some(seed) = seeds.next()
        {
            let pool = Arc::clone(&pool);
            let task = running.spawn(async move { run(&pool, seed).await });
            seeds_by_task.insert(task.id(), seed);
        }
        let Some(ended) = running.join_next_with_id().await else { break };
        let (_, models) = ended
            .unwrap_or_else(|error| panic!("HIGHWATER_MODEL_SEED={}: {error}", seeds_by_task[&error.id()]));
        for model in models {
            codes.extend(model.rejected.iter().map(|(_, code)| *code));
            inactive += u32::from(model.inactive);
            held += u32::from(model.held.is_some());
            referenced += model.referenced;
            streams += 1;
        }
    }
    // The streams are worth something: they lead everywhere.
    let everything = [
        "authentication",
        "future_epoch",
        "malformed",
        "missing_proposal",
        "past_epoch",
        "secret_reused",
        "secrets_discarded",
    ];
    assert_eq!(codes, BTreeSet::from(everything));
    assert!(streams >= 2_000, "{streams}");
    assert!(inactive > 100 && held > 300 && referenced > 1_000, "{inactive} {held} {referenced}");
}
