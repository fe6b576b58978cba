//! What receipt promises, in a page: the log of every topic at the backend, F, what is pending, and the budgets.
//!
//! [`Model`] says what must become of a step, [`history`] does the step on a database and compares. The fuzz target
//! `admission` uses both.

// Said in full for the fuzz target, which takes this file in from elsewhere.
#[path = "model/history.rs"]
pub(crate) mod history;

use std::collections::BTreeMap;

use highwater_receipt::{Budget, budgets, budgets::Quantity};
use highwater_wire::{ReceivedEnvelope, Topic, TopicKind, limits, proto::backend::ServerEnvelope};
use prost::Message as _;

use crate::support::envelope;

/// One envelope of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: u64,
    /// What its payload is made with.
    size: usize,
    /// What it counts for: payload, topic, id, two times, hash, flag.
    bytes: u64,
}

impl Stored {
    fn new(topic: Topic, id: u64, size: usize) -> Self {
        let payload = envelope(topic, id, size).envelope.map_or(0, |payload| payload.encoded_len());
        Self { id, size, bytes: payload as u64 + 33 + 8 + 8 + 8 + 32 + 1 }
    }

    pub(crate) fn envelope(self, topic: Topic) -> ServerEnvelope {
        envelope(topic, self.id, self.size)
    }
}

/// What the backend stored on one topic, without an end. Its ids have gaps, as other topics' traffic makes them.
#[derive(Clone, Debug)]
struct Log {
    topic: Topic,
    largest: usize,
    stored: Vec<Stored>,
}

impl Log {
    /// What a read after `after` returns next.
    fn page(&mut self, after: u64, rows: usize) -> Vec<Stored> {
        let mut first = self.first_above(after);
        while self.stored.len() < first + rows {
            let nth = self.stored.len() as u64;
            let noise = (nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let last = self.stored.last().map_or(0, |stored| stored.id);
            let size = self.largest / 2 + noise as usize % (self.largest / 2 + 1);
            self.stored.push(Stored::new(self.topic, last + 1 + noise % 4, size));
            first = self.first_above(after);
        }
        self.stored[first..first + rows].to_vec()
    }

    fn first_above(&self, id: u64) -> usize {
        self.stored.partition_point(|stored| stored.id <= id)
    }
}

/// F and the pending envelopes of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) received: u64,
    pub(crate) pending: BTreeMap<u64, Stored>,
}

/// What must become of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It starts above F (STR-062).
    Gap,
    /// Nothing in it is new.
    Duplicate,
    /// Not one new envelope fits (PROC-020).
    Capacity(Budget),
    /// So many are stored; `paused` says what keeps the next one of the prefix out.
    Admitted { rows: usize, paused: Option<Budget> },
}

/// All topics of one history.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    logs: Vec<Log>,
    positions: Vec<Position>,
}

impl Model {
    /// Nothing received on any topic; `largest` bounds the payloads of their logs.
    pub(crate) fn new(topics: Vec<Topic>, largest: usize) -> Self {
        let positions = vec![Position::default(); topics.len()];
        let logs = topics.into_iter().map(|topic| Log { topic, largest, stored: Vec::new() }).collect();
        Self { logs, positions }
    }

    pub(crate) fn topics(&self) -> Vec<Topic> {
        self.logs.iter().map(|log| log.topic).collect()
    }

    /// How many topics there are.
    pub(crate) fn len(&self) -> usize {
        self.logs.len()
    }

    pub(crate) fn topic(&self, at: usize) -> Topic {
        self.logs[at].topic
    }

    pub(crate) fn position(&self, at: usize) -> &Position {
        &self.positions[at]
    }

    pub(crate) fn page(&mut self, at: usize, after: u64, rows: usize) -> Vec<Stored> {
        self.logs[at].page(after, rows)
    }

    /// What one topic holds.
    pub(crate) fn load(&self, at: usize) -> Quantity {
        let pending = &self.positions[at].pending;
        Quantity { rows: pending.len() as u64, bytes: pending.values().map(|stored| stored.bytes).sum() }
    }

    /// What all topics of a kind hold, and how many of them hold anything.
    pub(crate) fn kind(&self, kind: TopicKind) -> (Quantity, u64) {
        let of_kind = (0..self.len()).filter(|at| self.topic(*at).kind() == kind);
        of_kind.map(|at| self.load(at)).fold((Quantity::default(), 0), |(sum, holding), load| {
            (plus(sum, load), holding + u64::from(load.rows > 0))
        })
    }

    /// What must become of this prefix, by the budgets as they are documented.
    pub(crate) fn expect(&self, at: usize, after: u64, prefix: &[Stored]) -> Expected {
        let received = self.positions[at].received;
        if after > received {
            return Expected::Gap;
        }
        let new: Vec<_> = prefix.iter().filter(|stored| stored.id > received).collect();
        if new.is_empty() {
            return Expected::Duplicate;
        }
        let mut room = self.room(at);
        let mut batch = Quantity::default();
        for (rows, stored) in new.iter().enumerate() {
            let one = Quantity { rows: 1, bytes: stored.bytes };
            batch = plus(batch, one);
            let whole_batch = batch.fits(budgets::ADMISSION_BATCH);
            let refused = if whole_batch { room.take(one) } else { Some(Budget::Batch) };
            match refused {
                None => {}
                Some(by) if rows == 0 => return Expected::Capacity(by),
                Some(Budget::Batch) => return Expected::Admitted { rows, paused: None },
                Some(by) => return Expected::Admitted { rows, paused: Some(by) },
            }
        }
        Expected::Admitted { rows: new.len(), paused: None }
    }

    /// Whether an envelope of the largest legal size would be admitted.
    pub(crate) fn may_receive(&self, at: usize) -> bool {
        let bytes = limits::MAX_ENVELOPE_BYTES as u64 + ReceivedEnvelope::METADATA_BYTES;
        self.room(at).take(Quantity { rows: 1, bytes }).is_none()
    }

    fn room(&self, at: usize) -> Room {
        let kind = self.topic(at).kind();
        let topic = self.load(at);
        let (used, holding) = self.kind(kind);
        let budget = budgets::of_kind(kind).expect("only kinds that are received");
        Room { budget, topic, kind: used, holding: holding + u64::from(topic.rows == 0) }
    }

    /// F moves over `rows` envelopes of the log above it, and these are pending: whatever the prefix held, the log is
    /// what may not be lost (STR-061).
    pub(crate) fn admitted(&mut self, at: usize, rows: usize) {
        let received = self.positions[at].received;
        for stored in self.logs[at].page(received, rows) {
            self.positions[at].received = stored.id;
            self.positions[at].pending.insert(stored.id, stored);
        }
    }

    /// Takes what is pending at or below an id, and says how much that was.
    pub(crate) fn settled_through(&mut self, at: usize, id: u64) -> u64 {
        let kept = self.positions[at].pending.split_off(&(id + 1));
        std::mem::replace(&mut self.positions[at].pending, kept).len() as u64
    }

    pub(crate) fn settled_one(&mut self, at: usize, id: u64) -> bool {
        self.positions[at].pending.remove(&id).is_some()
    }

    /// A join's anchor (PROC-010).
    pub(crate) fn anchored(&mut self, at: usize, id: u64) {
        self.settled_through(at, id);
        let received = &mut self.positions[at].received;
        *received = id.max(*received);
    }
}

/// What one topic may still hold.
struct Room {
    budget: Quantity,
    topic: Quantity,
    kind: Quantity,
    /// Topics of the kind that hold anything, this one counted.
    holding: u64,
}

impl Room {
    /// Counts one more envelope, or says which bound keeps it out.
    fn take(&mut self, one: Quantity) -> Option<Budget> {
        let (topic, kind) = (plus(self.topic, one), plus(self.kind, one));
        if !topic.fits(budgets::PER_TOPIC) {
            return Some(Budget::Topic);
        }
        // Up to three quarters everybody takes what there is; an empty topic gets one envelope in any case.
        let (open, reserve) = (part(self.budget, 3), part(self.budget, 1));
        let free = kind.fits(open) || topic.rows == 1;
        let within = |used: u64, reserve: u64, all: u64, in_all: u64| {
            used <= reserve / self.holding && 4 * used <= all.saturating_sub(in_all)
        };
        let fair = within(topic.rows, reserve.rows, self.budget.rows, kind.rows)
            && within(topic.bytes, reserve.bytes, self.budget.bytes, kind.bytes);
        if !kind.fits(self.budget) || !(free || fair) {
            return Some(Budget::Kind);
        }
        (self.topic, self.kind) = (topic, kind);
        None
    }
}

/// So many quarters.
fn part(whole: Quantity, quarters: u64) -> Quantity {
    Quantity { rows: whole.rows * quarters / 4, bytes: whole.bytes * quarters / 4 }
}

fn plus(a: Quantity, b: Quantity) -> Quantity {
    Quantity { rows: a.rows + b.rows, bytes: a.bytes + b.bytes }
}
