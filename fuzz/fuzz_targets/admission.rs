//! Histories of receipt that bytes spell, on a real database, held against the model of receipt's own tests (STR-061,
//! STR-062, STR-066, PROC-002, PROC-020).

#![no_main]

#[allow(dead_code, reason = "the tests of receipt use the rest")]
#[path = "../../crates/receipt/tests/receipt/model.rs"]
mod model;
#[allow(dead_code, reason = "the tests of receipt use the rest")]
#[path = "../../crates/receipt/tests/receipt/support.rs"]
mod support;

use std::sync::{LazyLock, Mutex, PoisonError};

use arbitrary::{Result, Unstructured};
use highwater_receipt::MIGRATIONS;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{GroupId, InboxId, InstallationKey, Topic};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

use crate::model::Model;
use crate::model::history::{Fault, History, Step};

/// What is read of an input at most: a longer one finds nothing more, and takes longer.
const STEPS: usize = 24;
/// How many histories share a database, each on topics of its own.
const HISTORIES: u32 = 200;

static DATABASES: LazyLock<Mutex<Databases>> = LazyLock::new(|| Mutex::new(Databases::new()));

fuzz_target!(|data: &[u8]| {
    let mut bytes = Unstructured::new(data);
    let Ok(many) = bytes.ratio(1_u8, 8_u8) else { return };
    let mut steps = Vec::new();
    while steps.len() < STEPS && !bytes.is_empty() {
        steps.extend(step(&mut bytes, if many { 300 } else { 8 }));
    }
    DATABASES.lock().unwrap_or_else(PoisonError::into_inner).run(many, steps);
});

struct Databases {
    runtime: Runtime,
    current: Option<StoreFixture>,
    histories: u32,
}

impl Databases {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { runtime, current: None, histories: 0 }
    }

    fn run(&mut self, many: bool, steps: Vec<Step>) {
        let kept = self.current.take().filter(|_| !self.histories.is_multiple_of(HISTORIES));
        self.histories += 1;
        let topics = topics(self.histories, many);
        self.current = Some(self.runtime.block_on(async {
            let mut fixture = match kept {
                Some(fixture) => fixture,
                None => StoreFixture::new(vec![MIGRATIONS]).await,
            };
            let mut history = History::new(Model::new(topics, if many { 8 } else { 300 }));
            for step in steps {
                history.take(&mut fixture, step).await;
            }
            history.end(fixture.store()).await;
            fixture
        }));
    }
}

/// One topic of each kind and a second group; or Welcome topics, whose budget many small envelopes use up.
fn topics(history: u32, many: bool) -> Vec<Topic> {
    let group = |n| Topic::group(GroupId::from_bytes(identifier(history, n)));
    let welcome = |n| Topic::welcome(InstallationKey::from_bytes(identifier(history, n)));
    if many {
        return (0..4).map(welcome).collect();
    }
    vec![group(0), group(1), welcome(0), Topic::identity(InboxId::from_bytes(identifier(history, 0)))]
}

fn identifier<const N: usize>(history: u32, n: u8) -> [u8; N] {
    let mut bytes = [n; N];
    bytes[1..5].copy_from_slice(&history.to_be_bytes());
    bytes
}

fn step(bytes: &mut Unstructured<'_>, rows: u16) -> Result<Step> {
    let (kind, of) = (bytes.arbitrary::<u8>()? % 16, bytes.arbitrary::<u8>()?);
    Ok(match kind {
        0..=2 => Step::Open { topic: of, back: bytes.int_in_range(-3..=12)? },
        3..=7 => {
            Step::Frame { read: of, rows: bytes.int_in_range(0..=rows)?, fails: bytes.ratio(1_u8, 8_u8)? }
        }
        8 | 9 => Step::Bad {
            read: of,
            rows: bytes.int_in_range(0..=5)?,
            at: bytes.arbitrary()?,
            fault: *bytes.choose(&FAULTS)?,
        },
        10 | 11 => Step::Again { read: of },
        12 => Step::SettleThrough { topic: of, nth: bytes.int_in_range(0..=rows)? },
        13 => Step::SettleOne { topic: of, nth: bytes.int_in_range(0..=rows)? },
        14 => {
            let (ahead, fails) = (bytes.int_in_range(-9..=20)?, bytes.ratio(1_u8, 8_u8)?);
            Step::Anchor { topic: of, ahead, fails }
        }
        // A restart takes as long as all the rest.
        _ if of < 32 => Step::Restart,
        _ => Step::Again { read: of },
    })
}

const FAULTS: [Fault; 12] = [
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
];
