//! Which static streams there are, what is to be opened and closed, and which topics they bring.
//!
//! The topics of a static stream never change. When they should, another stream is opened with those that should be
//! there, and the one it replaces is closed once the new one has started (STR-054).

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{Cursor, Topic};

use crate::interests::Registration;

/// Names a stream of one session. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(u64);

/// What the streams must be made to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Open a stream with these topics, each from its durable F.
    Open(StreamId, Vec<Topic>),
    /// Close a stream.
    Close(StreamId),
}

/// A place for one stream: what it carries, and what is on its way to replace that.
#[derive(Debug, Default)]
struct Place {
    live: Option<(StreamId, BTreeMap<Topic, Cursor>)>,
    opening: Option<(StreamId, BTreeSet<Topic>)>,
}

impl Place {
    /// The topics it will have.
    fn topics(&self) -> BTreeSet<Topic> {
        match (&self.opening, &self.live) {
            (Some((_, topics)), _) => topics.clone(),
            (None, Some((_, targets))) => targets.keys().copied().collect(),
            (None, None) => BTreeSet::new(),
        }
    }

    /// Whether what is on its way only takes topics off.
    fn brings_all(&self) -> bool {
        let brought = |topic| self.live.as_ref().is_some_and(|(_, targets)| targets.contains_key(topic));
        self.opening.iter().flat_map(|(_, topics)| topics).all(brought)
    }
}

/// The static streams of one session.
#[derive(Debug)]
pub(crate) struct StaticStreams {
    /// Topics of one stream at most.
    limit: usize,
    last: u64,
    places: Vec<Place>,
    /// Topics whose envelopes were dropped, through this one. No stream brings these again, so the topic counts as
    /// uncovered until a query has passed it (STR-063).
    dropped: BTreeMap<Topic, Cursor>,
}

impl StaticStreams {
    /// None yet, and never more than `limit` topics in one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, last: 0, places: Vec::new(), dropped: BTreeMap::new() }
    }

    /// Compares with what is desired. A place whose replacement is on its way is left alone until that has started, so
    /// that changes in the meantime share the next one.
    pub(crate) fn reconcile(&mut self, desired: &BTreeSet<Topic>) -> Vec<Action> {
        self.dropped.retain(|topic, _| desired.contains(topic));
        let mut placed = BTreeSet::new();
        let mut wanted = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let topics = place.topics();
            let stay: BTreeSet<Topic> = topics.intersection(desired).copied().collect();
            placed.extend(stay.iter().copied());
            wanted.push(if place.opening.is_some() { topics } else { stay });
        }
        for topic in desired.difference(&placed) {
            let room = |(index, topics): &(usize, &mut BTreeSet<Topic>)| {
                self.places.get(*index).is_none_or(|place| place.opening.is_none())
                    && topics.len() < self.limit
            };
            // The one with the fewest, so that as few registrations as possible are made anew.
            let place = wanted.iter_mut().enumerate().filter(room).min_by_key(|(_, topics)| topics.len());
            match place {
                Some((_, topics)) => {
                    topics.insert(*topic);
                }
                None => wanted.push(BTreeSet::from([*topic])),
            }
        }
        self.places.resize_with(wanted.len(), Place::default);
        self.change_to(wanted)
    }

    fn change_to(&mut self, wanted: Vec<BTreeSet<Topic>>) -> Vec<Action> {
        let mut actions = Vec::new();
        for (place, wanted) in self.places.iter_mut().zip(wanted) {
            if place.opening.is_some() || place.topics() == wanted {
                continue;
            }
            if wanted.is_empty() {
                actions.extend(place.live.take().map(|(id, _)| Action::Close(id)));
                continue;
            }
            self.last += 1;
            let id = StreamId(self.last);
            actions.push(Action::Open(id, wanted.iter().copied().collect()));
            place.opening = Some((id, wanted));
        }
        self.places.retain(|place| place.live.is_some() || place.opening.is_some());
        actions
    }

    /// A stream has started. Says which one it replaces.
    pub(crate) fn started(&mut self, id: StreamId, targets: Vec<(Topic, Cursor)>) -> Option<Action> {
        let is_it = |place: &&mut Place| place.opening.as_ref().is_some_and(|(opening, _)| *opening == id);
        let place = self.places.iter_mut().find(is_it)?;
        place.opening = None;
        let replaced = place.live.replace((id, targets.into_iter().collect()));
        replaced.map(|(replaced, _)| Action::Close(replaced))
    }

    /// Envelopes of a topic have come, up to `last`. Says whether they are to be admitted; otherwise they are dropped,
    /// like others of that topic before.
    pub(crate) fn admits(&mut self, topic: Topic, last: Cursor) -> bool {
        match self.dropped.get_mut(&topic) {
            Some(dropped) => {
                *dropped = last.max(*dropped);
                false
            }
            None => true,
        }
    }

    /// Envelopes of a topic, up to `last`, could not all be admitted.
    pub(crate) fn dropped(&mut self, topic: Topic, last: Cursor) {
        let dropped = self.dropped.entry(topic).or_insert(last);
        *dropped = last.max(*dropped);
    }

    /// The topics that must be queried, and up to where at least.
    pub(crate) fn uncovered(&self) -> &BTreeMap<Topic, Cursor> {
        &self.dropped
    }

    /// A topic's F is here now. The streams cover the topic again if that is past everything dropped.
    pub(crate) fn received(&mut self, topic: Topic, received: Cursor) {
        if self.dropped.get(&topic).is_some_and(|dropped| *dropped <= received) {
            self.dropped.remove(&topic);
        }
    }

    /// Where each topic stands. An uncovered one isn't there.
    pub(crate) fn registrations(&self) -> BTreeMap<Topic, Registration> {
        let mut found = BTreeMap::new();
        for place in &self.places {
            for topic in place.topics() {
                found.insert(topic, Registration::Pending);
            }
            for (topic, target) in place.live.iter().flat_map(|(_, targets)| targets) {
                found.insert(*topic, Registration::Active(*target));
            }
        }
        found.retain(|topic, _| !self.dropped.contains_key(topic));
        found
    }

    /// Whether streams bring every topic that they should.
    pub(crate) fn all_active(&self) -> bool {
        self.dropped.is_empty() && self.places.iter().all(Place::brings_all)
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::GroupId;

    use super::*;

    fn topic(n: u64) -> Topic {
        Topic::group(GroupId::from_bytes(u128::from(n).to_be_bytes()))
    }

    fn topics(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<Topic> {
        numbers.into_iter().map(topic).collect()
    }

    fn at(n: u64) -> Cursor {
        Cursor::try_from(n).unwrap()
    }

    /// Opens the one stream that is asked for.
    fn opened(actions: Vec<Action>) -> (StreamId, Vec<(Topic, Cursor)>) {
        match actions.as_slice() {
            [Action::Open(id, topics)] => (*id, topics.iter().map(|topic| (*topic, at(7))).collect()),
            other => panic!("not one stream: {other:?}"),
        }
    }

    /// Shows: STR-054.
    #[test]
    fn nothing_is_opened_without_a_topic() {
        let mut streams = StaticStreams::new(3);
        assert!(streams.reconcile(&BTreeSet::new()).is_empty());
        assert!(streams.all_active());
    }

    /// Shows: STR-054.
    #[test]
    fn the_replaced_stream_goes_when_its_replacement_has_started_and_not_before() {
        let mut streams = StaticStreams::new(10);
        let (first, targets) = opened(streams.reconcile(&topics([1])));
        assert_eq!(streams.registrations()[&topic(1)], Registration::Pending);
        assert_eq!(streams.started(first, targets), None);
        assert!(streams.all_active());

        let (second, targets) = opened(streams.reconcile(&topics([1, 2])));
        assert_eq!(streams.registrations()[&topic(1)], Registration::Active(at(7)), "it still brings 1");
        assert_eq!(streams.registrations()[&topic(2)], Registration::Pending);
        assert_eq!(streams.started(second, targets), Some(Action::Close(first)));
    }

    /// Shows: STR-054.
    #[test]
    fn a_stream_without_topics_is_closed() {
        let mut streams = StaticStreams::new(10);
        let (id, targets) = opened(streams.reconcile(&topics([1])));
        streams.started(id, targets);
        assert_eq!(streams.reconcile(&BTreeSet::new()), [Action::Close(id)]);
        assert!(streams.registrations().is_empty());
    }

    /// Shows: STR-063.
    #[test]
    fn a_topic_with_dropped_envelopes_is_uncovered_until_a_query_has_passed_them() {
        let mut streams = StaticStreams::new(10);
        let (id, targets) = opened(streams.reconcile(&topics([1, 2])));
        streams.started(id, targets);
        assert!(streams.admits(topic(1), at(10)));
        streams.dropped(topic(1), at(10));
        assert!(!streams.admits(topic(1), at(12)), "what follows would leave a hole");
        assert!(streams.admits(topic(2), at(30)));
        assert!(!streams.registrations().contains_key(&topic(1)));
        assert!(!streams.all_active());
        streams.received(topic(1), at(11));
        assert_eq!(streams.uncovered(), &BTreeMap::from([(topic(1), at(12))]));
        streams.received(topic(1), at(12));
        assert!(streams.admits(topic(1), at(13)) && streams.all_active());
    }

    /// Random interests, streams that start at any time: what is desired is brought in the end, by streams within the
    /// limit, and a topic that stays desired is never without a stream that brings it.
    ///
    /// Shows: STR-054.
    #[test]
    fn every_topic_that_stays_desired_is_brought_all_the_time() {
        const LIMIT: usize = 4;
        for seed in 0..2_000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut below = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            let mut streams = StaticStreams::new(LIMIT);
            let mut opening: BTreeMap<StreamId, Vec<Topic>> = BTreeMap::new();
            let mut live: BTreeMap<StreamId, Vec<Topic>> = BTreeMap::new();
            let mut desired = BTreeSet::new();
            // Topics that have been desired ever since a stream began to bring them.
            let mut steady: BTreeSet<Topic> = BTreeSet::new();
            for step in 0..60 {
                let actions = match below(3) {
                    0 if step < 40 => {
                        desired = topics((0..12).filter(|_| below(2) == 0));
                        steady.retain(|topic| desired.contains(topic));
                        streams.reconcile(&desired)
                    }
                    1 => streams.reconcile(&desired),
                    _ => match opening.pop_first() {
                        Some((id, topics)) => {
                            let targets = topics.iter().map(|topic| (*topic, at(1))).collect();
                            steady.extend(topics.iter().filter(|topic| desired.contains(topic)));
                            live.insert(id, topics);
                            streams.started(id, targets).into_iter().collect()
                        }
                        None => streams.reconcile(&desired),
                    },
                };
                for action in actions {
                    match action {
                        Action::Open(id, topics) => {
                            assert!((1..=LIMIT).contains(&topics.len()), "seed {seed}");
                            assert!(opening.insert(id, topics).is_none(), "seed {seed}");
                        }
                        Action::Close(id) => assert!(live.remove(&id).is_some(), "seed {seed}"),
                    }
                }
                let brought = |topic: &Topic| live.values().flatten().any(|found| found == topic);
                assert!(steady.iter().all(brought), "seed {seed}");
            }
            for _ in 0..40 {
                for action in streams.reconcile(&desired) {
                    match action {
                        Action::Open(id, topics) => drop(opening.insert(id, topics)),
                        Action::Close(id) => drop(live.remove(&id)),
                    }
                }
                while let Some((id, topics)) = opening.pop_first() {
                    let targets = topics.iter().map(|topic| (*topic, at(1))).collect();
                    live.insert(id, topics);
                    if let Some(Action::Close(replaced)) = streams.started(id, targets) {
                        live.remove(&replaced);
                    }
                }
            }
            let brought: Vec<Topic> = live.values().flatten().copied().collect();
            assert_eq!(brought.iter().copied().collect::<BTreeSet<_>>(), desired, "seed {seed}");
            assert_eq!(brought.len(), desired.len(), "seed {seed}: a topic on two streams");
            assert!(streams.all_active(), "seed {seed}");
        }
    }
}
