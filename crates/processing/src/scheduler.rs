//! Which topic is attempted next: a FIFO of ready topics, and parked heads with their next retry.
//!
//! No I/O and no clock: the caller says what happened and when, and is told what to do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use highwater_mls::Need;
use highwater_wire::{SequenceId, Topic};

use crate::{Hold, Stop};

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// These active topics have pending envelopes, this one at the head of each.
    Pending(Vec<(Topic, SequenceId)>),
    /// The attempt at a topic ended.
    Attempted(Topic, Stop),
    /// The attempt at a topic failed without a verdict about its head.
    Failed(Topic),
    /// The needs of a parked topic were looked after.
    Resolved(Topic),
    /// The time of the earliest retry may have come.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Attempt this topic. Nothing else is attempted until [`Event::Attempted`] or [`Event::Failed`] says it ended.
    Attempt(Topic),
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
    attempting: Option<Topic>,
    /// News about the topic that is being attempted.
    again: bool,
}

impl Scheduler {
    /// Takes one event at time `now`.
    pub fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Pending(topics) => {
                topics.into_iter().for_each(|(topic, head)| self.news(topic, head));
            }
            Event::Attempted(topic, stop) => self.attempted(now, topic, stop, &mut actions),
            Event::Failed(topic) => {
                self.attempting = None;
                self.again = false;
                self.park(now, topic, None, true);
            }
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
        self.ready.is_empty() && self.attempting.is_none()
    }

    fn news(&mut self, topic: Topic, head: SequenceId) {
        if self.attempting == Some(topic) {
            self.again = true;
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

    fn attempted(&mut self, now: Duration, topic: Topic, stop: Stop, actions: &mut Vec<Action>) {
        self.attempting = None;
        let again = std::mem::take(&mut self.again);
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
        if self.attempting.is_some() {
            return None;
        }
        let topic = self.ready.pop_front()?;
        self.queued.remove(&topic);
        self.attempting = Some(topic);
        Some(Action::Attempt(topic))
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

    fn hold(needs: Vec<Need>) -> Stop {
        let sequence_id = SequenceId::try_from(7_u64).unwrap();
        Stop::Held(Hold { sequence_id, cause: HoldCause::Unresolved("x".into()), needs })
    }

    /// Shows: STR-072, PROC-013.
    #[test]
    fn a_held_topic_costs_the_ready_ones_nothing() {
        let mut scheduler = Scheduler::default();
        let at = Duration::from_secs;
        let first = scheduler.on(at(0), pending(0..200));
        assert_eq!(first, [Action::Attempt(topic(0))]);
        for n in 0..199 {
            let next = scheduler.on(at(0), Event::Attempted(topic(n), hold(Vec::new())));
            assert_eq!(next, [Action::Attempt(topic(n + 1))]);
        }
        assert!(scheduler.on(at(0), Event::Attempted(topic(199), Stop::Drained)).is_empty());
        assert_eq!(scheduler.on(at(0), pending([250])), [Action::Attempt(topic(250))]);
    }

    /// Shows: STR-072.
    #[test]
    fn a_busy_topic_goes_to_the_back_of_the_queue() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1, 2]));
        let next = scheduler.on(Duration::ZERO, Event::Attempted(topic(1), Stop::More));
        assert_eq!(next, [Action::Attempt(topic(2))]);
        let next = scheduler.on(Duration::ZERO, Event::Attempted(topic(2), Stop::Drained));
        assert_eq!(next, [Action::Attempt(topic(1))]);
    }

    #[test]
    fn retries_back_off_and_are_never_slept_past() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1]));
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..10 {
            scheduler.on(now, Event::Attempted(topic(1), hold(Vec::new())));
            let due = scheduler.next_retry().unwrap();
            waits.push(due - now);
            assert!(scheduler.on(due - Duration::from_nanos(1), Event::Tick).is_empty());
            now = due;
            assert_eq!(scheduler.on(now, Event::Tick), [Action::Attempt(topic(1))]);
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
        let next = scheduler.on(Duration::ZERO, Event::Attempted(topic(1), hold(needs.clone())));
        assert_eq!(next, [Action::Resolve(topic(1), needs)]);
        let next = scheduler.on(Duration::from_millis(1), Event::Resolved(topic(1)));
        assert_eq!(next, [Action::Attempt(topic(1))]);
    }

    #[test]
    fn news_during_an_attempt_leads_to_another() {
        let mut scheduler = Scheduler::default();
        scheduler.on(Duration::ZERO, pending([1]));
        assert!(scheduler.on(Duration::ZERO, pending([1])).is_empty());
        let next = scheduler.on(Duration::ZERO, Event::Attempted(topic(1), Stop::Drained));
        assert_eq!(next, [Action::Attempt(topic(1))]);
    }
}
