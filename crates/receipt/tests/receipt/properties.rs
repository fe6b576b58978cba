//! Random histories of receipt against the model.

use std::cell::RefCell;

use highwater_receipt::MIGRATIONS;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{GroupId, InboxId, InstallationKey, Topic};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tokio::runtime::{Builder, Runtime};

use crate::model::Model;
use crate::model::history::{Fault, History, Step};

/// How many histories share a database: opening one takes as long as several of them.
const HISTORIES: u32 = 50;

/// What a history is made of.
struct Shape {
    topics: fn(u32) -> Vec<Topic>,
    /// Bytes of a payload at most.
    largest: usize,
    /// Rows of a frame at most.
    rows: u16,
    steps: std::ops::Range<usize>,
}

/// The same histories in every run of CI; many more, and others each time, when there is time.
fn config(cases: u32) -> Config {
    let soak = std::env::var_os("HIGHWATER_SOAK").is_some();
    let rng_seed = if soak { RngSeed::Random } else { RngSeed::Fixed(0x6869_6768) };
    Config { cases: if soak { 20 * cases } else { cases }, rng_seed, ..Config::default() }
}

fn group(history: u32, n: u8) -> Topic {
    Topic::group(GroupId::from_bytes(identifier(history, n)))
}

fn welcome(history: u32, n: u8) -> Topic {
    Topic::welcome(InstallationKey::from_bytes(identifier(history, n)))
}

fn identity(history: u32, n: u8) -> Topic {
    Topic::identity(InboxId::from_bytes(identifier(history, n)))
}

fn identifier<const N: usize>(history: u32, n: u8) -> [u8; N] {
    let mut bytes = [n; N];
    bytes[1..5].copy_from_slice(&history.to_be_bytes());
    bytes
}

fn fault() -> impl Strategy<Value = Fault> {
    prop::sample::select(vec![
        Fault::OtherTopic,
        Fault::OtherKind,
        Fault::MalformedTopic,
        Fault::NotRising,
        Fault::IdZero,
        Fault::IdTooLarge,
        Fault::TimeTooLarge,
        Fault::HashTooShort,
        Fault::HashTooLong,
        Fault::NoHash,
        Fault::NoMetadata,
        Fault::NoPayload,
    ])
}

fn step(rows: u16) -> impl Strategy<Value = Step> {
    let fails = || prop::bool::weighted(0.15);
    let nth = move || 0..=rows;
    prop_oneof![
        3 => (any::<u8>(), -3..12_i16).prop_map(|(topic, back)| Step::Open { topic, back }),
        8 => (any::<u8>(), nth(), fails())
            .prop_map(|(read, rows, fails)| Step::Frame { read, rows, fails }),
        2 => (any::<u8>(), 0..6_u16, any::<u8>(), fault())
            .prop_map(|(read, rows, at, fault)| Step::Bad { read, rows, at, fault }),
        2 => any::<u8>().prop_map(|read| Step::Again { read }),
        2 => (any::<u8>(), nth()).prop_map(|(topic, nth)| Step::SettleThrough { topic, nth }),
        2 => (any::<u8>(), nth()).prop_map(|(topic, nth)| Step::SettleOne { topic, nth }),
        1 => (any::<u8>(), -9..20_i16, fails())
            .prop_map(|(topic, ahead, fails)| Step::Anchor { topic, ahead, fails }),
        1 => Just(Step::Restart),
    ]
}

/// Databases, each for a number of histories on topics of their own.
struct Databases {
    runtime: Runtime,
    current: Option<StoreFixture>,
    histories: u32,
}

impl Databases {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, current: None, histories: 0 }
    }

    fn run(&mut self, shape: &Shape, steps: Vec<Step>) {
        // Taken out, so that a database on which a history failed serves no other.
        let kept = self.current.take().filter(|_| !self.histories.is_multiple_of(HISTORIES));
        self.histories += 1;
        let topics = (shape.topics)(self.histories);
        self.current = Some(self.runtime.block_on(async {
            let mut fixture = match kept {
                Some(fixture) => fixture,
                None => StoreFixture::fleeting(vec![MIGRATIONS]).await,
            };
            let mut history = History::new(Model::new(topics, shape.largest));
            for step in steps {
                history.take(&mut fixture, step).await;
            }
            history.end(fixture.store()).await;
            fixture
        }));
    }
}

fn holds(cases: u32, shape: &Shape) {
    let databases = RefCell::new(Databases::new());
    let steps = prop::collection::vec(step(shape.rows), shape.steps.clone());
    let outcome = TestRunner::new(config(cases)).run(&steps, |steps| {
        databases.borrow_mut().run(shape, steps);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Reads of one topic overlap, repeat, come late and carry faults; transactions fail and processes restart.
///
/// Shows: STR-060, STR-061, STR-062, PROC-001, PROC-002, PROC-010.
#[test]
fn positions_and_pending_envelopes_follow_the_model() {
    let topics = |n| vec![group(n, 1), group(n, 2), welcome(n, 1), identity(n, 1)];
    holds(2_000, &Shape { topics, largest: 300, rows: 8, steps: 1..14 });
}

/// The Welcome budget is the smallest in rows: full batches use up its open three quarters, and then what is left
/// goes by fair shares.
///
/// Shows: STR-061, STR-063, STR-066, PROC-002, PROC-020.
#[test]
fn budgets_in_rows_follow_the_model() {
    let topics = |n| (1..=3).map(|at| welcome(n, at)).collect();
    holds(60, &Shape { topics, largest: 8, rows: 300, steps: 30..50 });
}

/// The identity budget is the smallest in bytes.
///
/// Shows: STR-061, STR-063, STR-066, PROC-002, PROC-020.
#[test]
fn budgets_in_bytes_follow_the_model() {
    let topics = |n| (1..=3).map(|at| identity(n, at)).chain([group(n, 1)]).collect();
    holds(12, &Shape { topics, largest: 1 << 20, rows: 40, steps: 5..12 });
}
