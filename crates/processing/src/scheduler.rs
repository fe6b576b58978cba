//! Which topic is attempted next: a FIFO of ready topics, and parked heads with their next retry.
//!
//! No I/O and no clock: the caller says what happened and when, and is told what to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use highwater_mls::Need;
use highwater_wire::{SequenceId, Topic};

use crate::{Hold, MAX_ATTEMPT_TOPICS, Stop};

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// These active topics have pending envelopes, this one at the head of each.
    Pending(Vec<(Topic, SequenceId)>),
    /// The attempt ended, so at each of these topics. The others of the attempt weren't reached.
    Attempted(Vec<(Topic, Stop)>),
    /// The attempt failed without a verdict about any head.
    Failed,
    /// The needs of a parked topic were looked after.
    Resolved(Topic),
    /// The time of the earliest retry may have come.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Attempt these topics together. Nothing else is attempted until [`Event::Attempted`] or [`Event::Failed`] says it
    /// ended.
    Attempt(Vec<Topic>),
    /// Look after what this topic's head needs, then report [`Event::Resolved`].
    Resolve(Topic, Vec<Need>),
}

#[derive(Debug)]
struct Parked {
    /// The held head; another one in its place (put there by another process) is worth an attempt at once.
    head: Option<SequenceId>,
    retry_at: Option<Duration>,
    failures: u32,
}

/// The scheduler. Times are durations since any fixed start.
///
/// A ready topic is attempted after at most as many turns as there were ready topics before it; a parked one costs
/// nothing until its retry is due, its needs were resolved, or it has news (PROC-013, STR-072).
#[derive(Debug, Default)]
pub struct Scheduler {
    ready: VecDeque<Topic>,
    queued: BTreeSet<Topic>,
    parked: BTreeMap<Topic, Parked>,
    attempting: Vec<Topic>,
    /// Topics being attempted that there is news about.
    again: BTreeSet<Topic>,
    /// Topics of an attempt that failed: attempted one by one, so that only the one whose fault it is waits.
    alone: BTreeSet<Topic>,
}

impl Scheduler {
    /// Takes one event at time `now`.
    pub fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Pending(topics) => {
                topics.into_iter().for_each(|(topic, head)| self.news(topic, head));
            }
            Event::Attempted(stops) => self.attempted(now, stops, &mut actions),
            Event::Failed => self.failed(now),
            Event::Resolved(topic) => {
                if let Some(parked) = self.parked.get_mut(&topic) {
                    parked.retry_at = Some(now);
                }
            }
            Event::Tick => {}
        }
        self.release_due(now);
        actions.extend(self.start());
        actions
    }

    /// When [`Event::Tick`] is due, if a retry is waiting.
    pub fn next_retry(&self) -> Option<Duration> {
        self.parked.values().filter_map(|parked| parked.retry_at).min()
    }

    /// Whether nothing is ready or being attempted.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.attempting.is_empty()
    }

    fn news(&mut self, topic: Topic, head: SequenceId) {
        if self.attempting.contains(&topic) {
            self.again.insert(topic);
            return;
        }
        // News behind a held head doesn't free it.
        let held = |parked: &Parked| parked.head.is_none_or(|held| held == head);
        if !self.parked.get(&topic).is_some_and(held) {
            self.enqueue(topic);
        }
    }

    fn enqueue(&mut self, topic: Topic) {
        if self.queued.insert(topic) {
            self.ready.push_back(topic);
        }
    }

    fn attempted(&mut self, now: Duration, stops: Vec<(Topic, Stop)>, actions: &mut Vec<Action>) {
        let mut unreached = std::mem::take(&mut self.attempting);
        unreached.retain(|topic| !stops.iter().any(|(reached, _)| reached == topic));
        for topic in unreached.into_iter().rev() {
            self.again.remove(&topic);
            if self.queued.insert(topic) {
                self.ready.push_front(topic);
            }
        }
        for (topic, stop) in stops {
            self.stopped(now, topic, stop, actions);
        }
    }

    fn stopped(&mut self, now: Duration, topic: Topic, stop: Stop, actions: &mut Vec<Action>) {
        self.alone.remove(&topic);
        let again = self.again.remove(&topic);
        match stop {
            Stop::More => {
                self.parked.remove(&topic);
                self.enqueue(topic);
            }
            Stop::Drained | Stop::Inactive => {
                self.parked.remove(&topic);
                if again {
                    self.enqueue(topic);
                }
            }
            Stop::Held(Hold { sequence_id, needs, cause }) => {
                self.park(now, topic, Some(sequence_id), cause.is_transient());
                if !needs.is_empty() {
                    actions.push(Action::Resolve(topic, needs));
                }
            }
        }
    }

    fn failed(&mut self, now: Duration) {
        let attempted = std::mem::take(&mut self.attempting);
        self.again.clear();
        match attempted.as_slice() {
            [topic] => self.park(now, *topic, None, true),
            several => several.iter().for_each(|topic| {
                self.alone.insert(*topic);
                self.enqueue(*topic);
            }),
        }
    }

    fn park(&mut self, now: Duration, topic: Topic, head: Option<SequenceId>, retry: bool) {
        let parked = self.parked.entry(topic).or_insert(Parked { head, retry_at: None, failures: 0 });
        if parked.head != head {
            *parked = Parked { head, retry_at: None, failures: 0 };
        }
        let wait = FIRST_RETRY.saturating_mul(1 << parked.failures.min(10)).min(LAST_RETRY);
        parked.failures = parked.failures.saturating_add(1);
        parked.retry_at = retry.then_some(now + wait);
    }

    fn release_due(&mut self, now: Duration) {
        let due: Vec<_> = self
            .parked
            .iter_mut()
            .filter(|(_, parked)| parked.retry_at.is_some_and(|at| at <= now))
            .map(|(topic, parked)| {
                parked.retry_at = None;
                *topic
            })
            .collect();
        due.into_iter().for_each(|topic| self.enqueue(topic));
    }

    fn start(&mut self) -> Option<Action> {
        if !self.attempting.is_empty() {
            return None;
        }
        let together = match self.ready.front()? {
            first if self.alone.contains(first) => 1,
            _ => self
                .ready
                .iter()
                .take(MAX_ATTEMPT_TOPICS)
                .take_while(|topic| !self.alone.contains(topic))
                .count(),
        };
        self.attempting = self.ready.drain(..together).collect();
        for topic in &self.attempting {
            self.queued.remove(topic);
        }
        Some(Action::Attempt(self.attempting.clone()))
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::GroupId;

    use super::*;
    use crate::HoldCause;

    fn topic(n: u8) -> Topic {
        Topic::group(GroupId::from_bytes([n; 16]))
    }

    fn pending(topics: impl IntoIterator<Item = u8>) -> Event {
        let head = SequenceId::try_from(7_u64).unwrap();
        Event::Pending(topics.into_iter().map(|n| (topic(n), head)).collect())
    }

    fn attempt(topics: impl IntoIterator<Item = u8>) -> Vec<Action> {
        vec![Action::Attempt(topics.into_iter().map(topic).collect())]
    }

    fn stopped(topics: impl IntoIterator<Item = u8>, stop: &Stop) -> Event {
        Event::Attempted(topics.into_iter().map(|n| (topic(n), stop.clone())).collect())
    }

    fn hold(needs: Vec<Need>) -> Stop {
        let sequence_id = SequenceId::try_from(7_u64).unwrap();
        Stop::Held(Hold { sequence_id, cause: HoldCause::Unresolved("x".into()), needs })
    }

    /// Shows: STR-072, PROC-013.
    #[test]
    fn a_held_topic_costs_the_ready_ones_nothing() {
        let mut scheduler = Scheduler::default();
        let at = Duration::from_secs;
        assert_eq!(scheduler.on(at(0), pending(0..200)), attempt(0..64));
        for (attempted, next) in [(0..64, 64..128), (64..128, 128..192), (128..192, 192..200)] {
            assert_eq!(scheduler.on(at(0), stopped(attempted, &hold(Vec::new()))), attempt(next));
        }
        assert!(scheduler.on(at(0), stopped(192..200, &Stop::Drained)).is_empty());
        assert_eq!(scheduler.on(at(0), pending([250])), attempt([250]));
    }

    /// Shows: STR-072.
    #[test]
    fn a_busy_topic_goes_to_the_back_of_the_queue() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1, 2]));
        assert_eq!(scheduler.on(Duration::ZERO, stopped([1], &Stop::More)), attempt([2, 1]));
    }

    /// Shows: STR-072.
    #[test]
    fn a_topic_that_an_attempt_did_not_reach_is_the_first_of_the_next() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1, 2, 3]));
        scheduler.on(Duration::ZERO, pending([4]));
        assert_eq!(scheduler.on(Duration::ZERO, stopped([1], &Stop::More)), attempt([2, 3, 4, 1]));
    }

    /// Shows: PROC-013.
    #[test]
    fn after_a_failure_topics_are_attempted_alone_and_only_the_one_at_fault_waits() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1, 2, 3]));
        assert_eq!(scheduler.on(Duration::ZERO, Event::Failed), attempt([1]));
        assert_eq!(scheduler.on(Duration::ZERO, Event::Failed), attempt([2]));
        assert_eq!(scheduler.on(Duration::ZERO, stopped([2], &Stop::Drained)), attempt([3]));
        assert!(scheduler.on(Duration::ZERO, stopped([3], &Stop::Drained)).is_empty());
        assert_eq!(scheduler.next_retry(), Some(FIRST_RETRY));
        assert_eq!(scheduler.on(FIRST_RETRY, Event::Tick), attempt([1]));
        assert!(scheduler.on(FIRST_RETRY, stopped([1], &Stop::Drained)).is_empty());
        assert_eq!(scheduler.on(FIRST_RETRY, pending([1, 2])), attempt([1, 2]), "the fault is forgotten");
    }

    #[test]
    fn retries_back_off_and_are_never_slept_past() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1]));
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..10 {
            scheduler.on(now, stopped([1], &hold(Vec::new())));
            let due = scheduler.next_retry().unwrap();
            waits.push(due - now);
            assert!(scheduler.on(due - Duration::from_nanos(1), Event::Tick).is_empty());
            now = due;
            assert_eq!(scheduler.on(now, Event::Tick), attempt([1]));
        }
        assert_eq!(waits[0], FIRST_RETRY);
        assert!(waits.is_sorted());
        assert_eq!(*waits.last().unwrap(), LAST_RETRY);
    }

    #[test]
    fn resolved_needs_bring_a_parked_topic_back_at_once() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1]));
        let inbox = highwater_wire::InboxId::from_bytes([1; 32]);
        let needs = vec![Need::InboxHead { inbox }];
        let next = scheduler.on(Duration::ZERO, stopped([1], &hold(needs.clone())));
        assert_eq!(next, [Action::Resolve(topic(1), needs)]);
        assert_eq!(scheduler.on(Duration::from_millis(1), Event::Resolved(topic(1))), attempt([1]));
    }

    #[test]
    fn news_during_an_attempt_leads_to_another() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1]));
        assert!(scheduler.on(Duration::ZERO, pending([1])).is_empty());
        assert_eq!(scheduler.on(Duration::ZERO, stopped([1], &Stop::Drained)), attempt([1]));
    }
}
