//! Random schedules of a session against a backend that keeps to the rules, and one broken rule at
//! every place in them. A failure names its seed.

use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::*;

/// A backend that keeps to the rules, reduced to what a session can see.
#[derive(Default)]
struct Peer {
    logs: BTreeMap<Topic, Vec<u64>>,
    registered: BTreeMap<Topic, u64>,
    head: u64,
    requests: VecDeque<backend::subscribe_request::Update>,
}

impl Peer {
    fn publish(&mut self, rng: &mut StdRng, topic: Topic) {
        self.head += rng.random_range(1..4);
        self.logs.entry(topic).or_default().push(self.head);
    }

    fn apply_next(&mut self) -> Option<SubscribeResponse> {
        let update = self.requests.pop_front()?;
        let mut targets = Vec::new();
        for add in &update.adds {
            let topic = Topic::try_from(add.topic.as_ref().unwrap()).unwrap();
            if let Entry::Vacant(absent) = self.registered.entry(topic) {
                absent.insert(add.cursor.unwrap().sequence_id);
                let head = self.logs.get(&topic).and_then(|log| log.last()).copied();
                targets.push((topic, head.unwrap_or(0)));
            }
        }
        for remove in &update.removes {
            self.registered.remove(&Topic::try_from(remove).unwrap());
        }
        Some(applied(update.id, &targets))
    }

    fn deliver(&mut self, rng: &mut StdRng) -> Option<SubscribeResponse> {
        let mut envelopes = Vec::new();
        for (topic, floor) in &mut self.registered {
            let log = self.logs.get(topic).map_or(&[][..], Vec::as_slice);
            for id in log.iter().filter(|id| **id > *floor).take(rng.random_range(0..4)) {
                envelopes.push(envelope(*topic, *id));
            }
            if let Some(last) = envelopes.last().filter(|last| of(last).0 == *topic) {
                *floor = of(last).1;
            }
        }
        (!envelopes.is_empty()).then(|| messages(envelopes))
    }
}

fn of(envelope: &ServerEnvelope) -> (Topic, u64) {
    let meta = envelope.meta.as_ref().unwrap();
    let topic = Topic::try_from(meta.topic.as_ref().unwrap()).unwrap();
    (topic, meta.cursor.unwrap().sequence_id)
}

/// Makes a random update and hands it to the peer.
fn random_update(rng: &mut StdRng, session: &mut Session, peer: &mut Peer) {
    let (mut adds, mut removes) = (Vec::new(), Vec::new());
    for n in 0..6 {
        match rng.random_range(0..4) {
            0 => adds.push((topic(n), at(rng.random_range(0..=peer.head)))),
            1 => removes.push(topic(n)),
            _ => {}
        }
    }
    match session.update(adds, removes) {
        Ok((_, Request::Update(update))) => peer.requests.push_back(update),
        Ok(other) => panic!("not an update: {other:?}"),
        Err(error) => assert!(matches!(error, TransportError::InvalidArgument { .. })),
    }
}

/// Every frame of a peer that keeps to the rules, over a random schedule; `see` gets each before
/// the session does.
fn schedule(seed: u64, mut see: impl FnMut(&mut StdRng, &Session, &SubscribeResponse)) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut session, mut peer) = (Session::default(), Peer::default());
    let mut frames = VecDeque::from([started(0)]);
    for _ in 0..200 {
        match rng.random_range(0..6) {
            0 => random_update(&mut rng, &mut session, &mut peer),
            1 => {
                let n = rng.random_range(0..6);
                peer.publish(&mut rng, topic(n));
            }
            2 => frames.extend(peer.apply_next()),
            3 => frames.extend(peer.deliver(&mut rng)),
            _ => {
                let Some(frame) = frames.pop_front() else {
                    continue;
                };
                see(&mut rng, &session, &frame);
                session
                    .on(frame.clone())
                    .unwrap_or_else(|error| panic!("seed {seed}: {error} for {frame:?}"));
            }
        }
    }
}

/// Shows: STR-006, STR-007, STR-008, STR-060.
#[test]
fn a_peer_that_keeps_to_the_rules_is_never_refused() {
    for seed in 0..500 {
        schedule(seed, |_, _, _| {});
    }
}

impl Session {
    /// The same session, to try a frame on.
    fn twin(&self) -> Self {
        let outstanding = |update: &Outstanding| Outstanding {
            id: update.id,
            added: update.added.clone(),
            removed: update.removed.clone(),
        };
        let cursor =
            |(topic, cursor): (&Topic, &PrefixCursor)| (*topic, PrefixCursor::new(*topic, cursor.last()));
        Self {
            started: self.started,
            last_update: self.last_update,
            outstanding: self.outstanding.iter().map(outstanding).collect(),
            projected: self.projected.clone(),
            active: self.active.iter().map(cursor).collect(),
            ended: self.ended.clone(),
        }
    }
}

/// Breaks one rule that a frame obeys; none if it obeys none that can be broken on its own.
fn spoiled(rng: &mut StdRng, frame: &SubscribeResponse) -> Option<SubscribeResponse> {
    let mut response = frame.response.clone()?;
    match &mut response {
        Response::Applied(applied) => match rng.random_range(0..3) {
            0 => applied.id += 1,
            1 => applied
                .added_targets
                .push(CatchupTarget { topic: Some(topic(0xee).to_proto()), through_sequence_id: 0 }),
            _ => {
                applied.added_targets.pop()?;
            }
        },
        Response::Messages(messages) => {
            let place = rng.random_range(0..messages.envelopes.len());
            let copy = messages.envelopes[place].clone();
            match rng.random_range(0..3) {
                0 => messages.envelopes.insert(place, copy),
                1 => messages.envelopes.push(envelope(topic(0xee), 1)),
                _ => messages.envelopes[place].meta.as_mut()?.cursor = None,
            }
        }
        _ => return None,
    }
    Some(SubscribeResponse { response: Some(response) })
}

/// Shows: STR-006, STR-060, PROC-001.
#[test]
fn one_broken_rule_anywhere_in_a_schedule_is_noticed() {
    let mut noticed = 0;
    for seed in 0..500 {
        schedule(seed, |rng, session, frame| {
            if let Some(spoiled) = spoiled(rng, frame) {
                breaks(&mut session.twin(), spoiled);
                noticed += 1;
            }
        });
    }
    assert!(noticed > 1_000, "the schedules have to reach something: {noticed}");
}
