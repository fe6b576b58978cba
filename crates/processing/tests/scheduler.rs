//! The scheduler under random events, against what the outside knows of each topic.
#![allow(clippy::unwrap_used, reason = "a test that can't set up its world has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_mls::Need;
use highwater_processing::{Action, Event, Hold, HoldCause, Scheduler, Stop};
use highwater_wire::{GroupId, InboxId, SequenceId, Topic};

const TOPICS: u64 = 6;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn topic(n: u64) -> Topic {
    Topic::group(GroupId::from_bytes([n as u8; 16]))
}

/// What the outside knows of one topic.
#[derive(Default)]
struct Known {
    /// There is a reason to attempt it. An attempt uses it up.
    due: bool,
    /// Turns of others since then, and how many were due before it.
    waited: usize,
    ahead: usize,
    /// The held head, and when its retry is due; both `None` while it isn't parked. A failed attempt knows no head.
    parked: Option<(Option<u64>, Option<Duration>)>,
    failures: u32,
    /// A held head's needs are being looked after.
    resolving: bool,
    /// It was in an attempt that failed, and is to be attempted by itself.
    alone: bool,
}

#[derive(Default)]
struct Outside {
    scheduler: Scheduler,
    now: Duration,
    known: BTreeMap<Topic, Known>,
    attempting: Vec<Topic>,
    news_meanwhile: BTreeSet<Topic>,
    attempts: usize,
}

impl Outside {
    fn make_due(&mut self, topic: Topic) {
        let ahead = self.known.values().filter(|known| known.due).count();
        let known = self.known.entry(topic).or_default();
        if !known.due {
            (known.due, known.waited, known.ahead) = (true, 0, ahead);
        }
    }

    fn tell(&mut self, event: Event) {
        let actions = self.scheduler.on(self.now, event);
        for topic in self.known.keys().copied().collect::<Vec<_>>() {
            if let Some((_, retry)) = &mut self.known.entry(topic).or_default().parked
                && retry.is_some_and(|at| at <= self.now)
            {
                *retry = None;
                self.make_due(topic);
            }
        }
        for action in actions {
            let Action::Attempt(topics) = action else { continue };
            assert!(self.attempting.is_empty(), "one attempt at a time");
            for topic in &topics {
                let known = self.known.entry(*topic).or_default();
                assert!(known.due, "an attempt without a reason");
                assert!(topics.len() == 1 || !known.alone, "what failed together is not attempted together");
                // Those that became due at the same moment may go first.
                assert!(known.waited <= known.ahead + TOPICS as usize, "{} turns", known.waited);
                known.due = false;
            }
            self.known.values_mut().for_each(|other| other.waited += 1);
            (self.attempting, self.news_meanwhile) = (topics, BTreeSet::new());
            self.attempts += 1;
        }
        let waiting = self.known.values().any(|known| known.due);
        assert!(!waiting || !self.attempting.is_empty(), "somebody waits and nobody is attempted");
        let earliest = self.known.values().filter_map(|known| known.parked?.1).min();
        assert_eq!(self.scheduler.next_retry(), earliest, "no retry is slept past");
    }

    fn news(&mut self, topic: Topic, head: u64) {
        match self.known.entry(topic).or_default().parked {
            _ if self.attempting.contains(&topic) => drop(self.news_meanwhile.insert(topic)),
            Some((held, _)) if held.is_none_or(|held| held == head) => {}
            _ => self.make_due(topic),
        }
        self.tell(Event::Pending(vec![(topic, SequenceId::try_from(head).unwrap())]));
    }

    fn end_attempt(&mut self, random: &mut Random) {
        let attempted = std::mem::take(&mut self.attempting);
        if attempted.is_empty() {
            return;
        }
        let event = match random.below(8) {
            0 => self.fail(&attempted),
            _ => {
                let reached = 1 + random.below(attempted.len() as u64) as usize;
                for topic in &attempted[reached..] {
                    self.known.entry(*topic).or_default().due = true;
                }
                let stops = attempted[..reached].iter().map(|topic| (*topic, self.stop(*topic, random)));
                Event::Attempted(stops.collect())
            }
        };
        self.tell(event);
    }

    fn fail(&mut self, attempted: &[Topic]) -> Event {
        match attempted {
            [topic] => self.park(*topic, None, true),
            several => several.iter().for_each(|topic| {
                self.make_due(*topic);
                self.known.entry(*topic).or_default().alone = true;
            }),
        }
        Event::Failed
    }

    fn stop(&mut self, topic: Topic, random: &mut Random) -> Stop {
        self.known.entry(topic).or_default().alone = false;
        match random.below(7) {
            0..=2 => {
                let head = 1 + random.below(3);
                let needs = match random.below(2) {
                    0 => Vec::new(),
                    _ => vec![Need::InboxHead { inbox: InboxId::from_bytes([1; 32]) }],
                };
                let cause = match random.below(2) {
                    0 => HoldCause::Unsupported("x".into()),
                    _ => HoldCause::Dependency("x".into()),
                };
                self.park(topic, Some(head), cause.is_transient());
                self.known.entry(topic).or_default().resolving = !needs.is_empty();
                let sequence_id = SequenceId::try_from(head).unwrap();
                Stop::Held(Hold { sequence_id, cause, needs })
            }
            3 => {
                self.known.entry(topic).or_default().parked = None;
                self.make_due(topic);
                Stop::More
            }
            ended => {
                self.known.entry(topic).or_default().parked = None;
                if self.news_meanwhile.remove(&topic) {
                    self.make_due(topic);
                }
                if ended == 4 { Stop::Inactive } else { Stop::Drained }
            }
        }
    }

    /// The first retry comes after 250 ms, and each further one of the same head after twice as long, up to 30 s.
    fn park(&mut self, topic: Topic, head: Option<u64>, retry: bool) {
        let known = self.known.entry(topic).or_default();
        let same = known.parked.is_some_and(|(held, _)| held == head);
        known.failures = if same { known.failures + 1 } else { 0 };
        let wait = Duration::from_millis(250 << known.failures.min(10)).min(Duration::from_secs(30));
        known.parked = Some((head, retry.then_some(self.now + wait)));
    }
}

/// Nothing is attempted without a reason, nobody who has one is forgotten or passed over, and no retry is slept past.
///
/// Shows: PROC-013, STR-072.
#[test]
fn every_topic_with_a_reason_gets_its_turn_and_no_other() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let mut outside = Outside::default();
        for _ in 0..200 {
            let n = topic(random.below(TOPICS));
            match random.below(6) {
                0 | 1 => outside.news(n, 1 + random.below(3)),
                2 => {
                    outside.now += Duration::from_millis(random.below(400));
                    outside.tell(Event::Tick);
                }
                3 if outside.known.get(&n).is_some_and(|known| known.resolving) => {
                    let now = outside.now;
                    let known = outside.known.entry(n).or_default();
                    known.resolving = false;
                    if let Some((_, retry)) = &mut known.parked {
                        *retry = Some(now);
                    }
                    outside.tell(Event::Resolved(n));
                }
                _ => outside.end_attempt(&mut random),
            }
        }
        // Left alone, the scheduler works off what is due and then asks for nothing until a retry.
        let attempts = outside.attempts;
        while !outside.attempting.is_empty() {
            let attempted = std::mem::take(&mut outside.attempting);
            for topic in &attempted {
                let known = outside.known.entry(*topic).or_default();
                (known.parked, known.alone) = (None, false);
                if outside.news_meanwhile.remove(topic) {
                    outside.make_due(*topic);
                }
            }
            let stops = attempted.into_iter().map(|topic| (topic, Stop::Drained));
            outside.tell(Event::Attempted(stops.collect()));
        }
        assert!(outside.attempts - attempts <= TOPICS as usize + 1, "seed {seed}");
        assert!(outside.scheduler.is_idle());
    }
}
