use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

use highwater_wire::proto::backend::{
    self, CatchupTarget, ClientEnvelope, EnvelopeMeta, GroupMessage, Ping, ServerEnvelope,
    client_envelope::Payload,
    subscribe_request::Request,
    subscribe_response::Response,
    subscribe_response::{Applied, Messages, Started},
};
use highwater_wire::{GroupId, InstallationKey, MessageHash, OrderedPrefix, SequenceId};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::*;

fn topic(n: u8) -> Topic {
    Topic::group(GroupId::from_bytes([n; 16]))
}

fn at(position: u64) -> Cursor {
    Cursor::try_from(position).unwrap()
}

fn envelope(topic: Topic, sequence_id: u64) -> ServerEnvelope {
    ServerEnvelope {
        meta: Some(EnvelopeMeta {
            cursor: Some(backend::Cursor { sequence_id }),
            server_ns: 1,
            message_hash: Some(MessageHash::from_bytes([7; 32]).into()),
            topic: Some(topic.to_proto()),
            expiry_ns: 0,
            is_commit_or_proposal: false,
        }),
        envelope: Some(ClientEnvelope {
            payload: Some(Payload::GroupMessage(GroupMessage {
                data: vec![1],
                ..Default::default()
            })),
        }),
    }
}

fn frame(response: Response) -> SubscribeResponse {
    SubscribeResponse {
        response: Some(response),
    }
}

fn started(keepalive_interval_ms: u32) -> SubscribeResponse {
    frame(Response::Started(Started {
        keepalive_interval_ms,
    }))
}

fn applied(id: u64, targets: &[(Topic, u64)]) -> SubscribeResponse {
    let target = |(topic, through): &(Topic, u64)| CatchupTarget {
        topic: Some(topic.to_proto()),
        through_sequence_id: *through,
    };
    let added_targets = targets.iter().map(target).collect();
    frame(Response::Applied(Applied { id, added_targets }))
}

fn messages(envelopes: Vec<ServerEnvelope>) -> SubscribeResponse {
    frame(Response::Messages(Messages { envelopes }))
}

fn one(topic: Topic, sequence_id: u64) -> SubscribeResponse {
    messages(vec![envelope(topic, sequence_id)])
}

/// A session that has started and has `topics` active, each from 10.
fn session(topics: &[Topic]) -> Session {
    let mut session = Session::default();
    session.on(started(0)).unwrap();
    if !topics.is_empty() {
        let adds = topics.iter().map(|topic| (*topic, at(10))).collect();
        let (id, _) = session.update(adds, vec![]).unwrap();
        let targets: Vec<_> = topics.iter().map(|topic| (*topic, 10)).collect();
        session.on(applied(id.get(), &targets)).unwrap();
    }
    session
}

#[track_caller]
fn breaks(session: &mut Session, frame: SubscribeResponse) {
    match session.on(frame) {
        Err(TransportError::Protocol(_)) => {}
        other => panic!("not a broken protocol: {other:?}"),
    }
}

#[track_caller]
fn ids(session: &mut Session, frame: SubscribeResponse) -> Vec<u64> {
    match session.on(frame).unwrap() {
        Heard::Event(ReceiverEvent::Received(prefixes)) => prefixes
            .iter()
            .flat_map(OrderedPrefix::envelopes)
            .map(|envelope| envelope.sequence_id().get())
            .collect(),
        other => panic!("not messages: {other:?}"),
    }
}

/// Shows: STR-001.
#[test]
fn started_comes_first_and_once() {
    for early in [
        applied(1, &[]),
        one(topic(1), 11),
        frame(Response::Ping(Ping { nonce: 1 })),
    ] {
        breaks(&mut Session::default(), early);
    }
    breaks(&mut session(&[]), started(0));
    breaks(&mut session(&[]), SubscribeResponse { response: None });
}

/// Shows: STR-001.
#[test]
fn an_announced_interval_of_zero_is_the_default_one() {
    let keepalive = |ms| match Session::default().on(started(ms)).unwrap() {
        Heard::Event(ReceiverEvent::Started { keepalive }) => keepalive,
        other => panic!("not a start: {other:?}"),
    };
    assert_eq!(keepalive(0), Duration::from_secs(30));
    assert_eq!(keepalive(250), Duration::from_millis(250));
}

/// Shows: STR-003.
#[test]
fn update_ids_start_above_zero_and_rise() {
    let mut session = session(&[]);
    let mut last = 0;
    for n in 0..20 {
        let (id, request) = session
            .update(vec![(topic(n), Cursor::ZERO)], vec![])
            .unwrap();
        let Request::Update(update) = request else {
            panic!("not an update")
        };
        assert_eq!(update.id, id.get());
        assert!(update.id > last);
        last = update.id;
    }
}

#[test]
fn an_update_that_the_backend_would_refuse_changes_nothing() {
    let mut session = session(&[topic(1)]);
    let key_package = Topic::key_package(InstallationKey::from_bytes([1; 32]));
    let from_start = |topic| (topic, Cursor::ZERO);
    let refused = [
        (vec![], vec![]),
        (vec![from_start(topic(2))], vec![topic(2)]),
        (vec![from_start(topic(2)), from_start(topic(2))], vec![]),
        (vec![], vec![topic(1), topic(1)]),
        (vec![from_start(key_package)], vec![]),
    ];
    for (adds, removes) in refused {
        let error = session.update(adds, removes).unwrap_err();
        assert!(
            matches!(error, TransportError::InvalidArgument { .. }),
            "{error:?}"
        );
    }
    let (id, _) = session.update(vec![from_start(topic(2))], vec![]).unwrap();
    assert_eq!(id.get(), 2, "a refused update uses up no id");
    session.on(applied(2, &[(topic(2), 0)])).unwrap();
}

#[test]
fn a_session_holds_no_more_topics_than_its_limit() {
    let many: Vec<_> = (0..MAX_STREAM_TOPICS as u128)
        .map(|n| {
            (
                Topic::group(GroupId::from_bytes(n.to_be_bytes())),
                Cursor::ZERO,
            )
        })
        .collect();
    let first = many[0].0;
    let mut session = session(&[]);
    session.update(many, vec![]).unwrap();
    let extra = topic(0xff);
    assert!(session.update(vec![(extra, Cursor::ZERO)], vec![]).is_err());
    session
        .update(vec![(extra, Cursor::ZERO)], vec![first])
        .unwrap();
}

/// Shows: STR-006.
#[test]
fn applied_names_the_oldest_outstanding_update() {
    let mut session = session(&[]);
    breaks(&mut session, applied(1, &[]));

    let mut session = self::session(&[]);
    session.update(vec![(topic(1), at(0))], vec![]).unwrap();
    session.update(vec![(topic(2), at(0))], vec![]).unwrap();
    breaks(&mut session, applied(2, &[(topic(2), 0)]));
}

/// Shows: STR-006.
#[test]
fn targets_are_those_of_newly_added_topics_in_add_order() {
    let adds = || vec![(topic(2), at(0)), (topic(1), at(99)), (topic(3), at(0))];
    let wrong: [&[(Topic, u64)]; 5] = [
        &[(topic(2), 5)],
        &[(topic(3), 5), (topic(2), 5)],
        &[(topic(2), 5), (topic(1), 5), (topic(3), 5)],
        &[(topic(2), 5), (topic(4), 5)],
        &[(topic(2), 5), (topic(3), u64::MAX)],
    ];
    for targets in wrong {
        let mut session = session(&[topic(1)]);
        session.update(adds(), vec![]).unwrap();
        breaks(&mut session, applied(2, targets));
    }
    let mut session = session(&[topic(1)]);
    let (update, _) = session.update(adds(), vec![]).unwrap();
    match session
        .on(applied(2, &[(topic(2), 5), (topic(3), 0)]))
        .unwrap()
    {
        Heard::Event(ReceiverEvent::Applied {
            update: found,
            targets,
        }) => {
            assert_eq!(found, update);
            assert_eq!(targets, [(topic(2), at(5)), (topic(3), at(0))]);
        }
        other => panic!("not applied: {other:?}"),
    }
    assert_eq!(
        ids(&mut session, one(topic(1), 11)),
        [11],
        "the no-op add moved nothing"
    );
}

/// Shows: STR-006.
#[test]
fn no_message_comes_before_its_registration_is_acknowledged() {
    let mut session = session(&[]);
    session.update(vec![(topic(1), at(0))], vec![]).unwrap();
    breaks(&mut session, one(topic(1), 1));
}

/// Shows: STR-007.
#[test]
fn messages_may_precede_the_acknowledgement_of_their_removal_but_not_follow_it() {
    let mut session = session(&[topic(1), topic(2)]);
    session.update(vec![], vec![topic(1), topic(9)]).unwrap();
    assert_eq!(ids(&mut session, one(topic(1), 11)), [11]);
    session.on(applied(2, &[])).unwrap();
    assert_eq!(ids(&mut session, one(topic(2), 12)), [12]);
    breaks(&mut session, one(topic(1), 13));
}

/// Shows: STR-008.
#[test]
fn a_topic_added_again_starts_at_its_new_cursor() {
    let mut session = session(&[topic(1)]);
    ids(
        &mut session,
        messages(vec![envelope(topic(1), 11), envelope(topic(1), 20)]),
    );
    session.update(vec![], vec![topic(1)]).unwrap();
    session.update(vec![(topic(1), at(15))], vec![]).unwrap();
    assert_eq!(
        ids(&mut session, one(topic(1), 21)),
        [21],
        "still the old registration"
    );
    session.on(applied(2, &[])).unwrap();
    session.on(applied(3, &[(topic(1), 21)])).unwrap();
    assert_eq!(
        ids(&mut session, one(topic(1), 20)),
        [20],
        "again, from the new start"
    );
    breaks(&mut session, one(topic(1), 20));
}

/// Shows: STR-060, PROC-001.
#[test]
fn ids_rise_over_all_frames_of_one_registration() {
    for wrong in [10, 9, 12, 0, u64::MAX] {
        let mut session = session(&[topic(1)]);
        ids(
            &mut session,
            messages(vec![envelope(topic(1), 11), envelope(topic(1), 12)]),
        );
        breaks(&mut session, one(topic(1), wrong));
    }
    let mut malformed = envelope(topic(1), 11);
    malformed.meta.as_mut().unwrap().message_hash = None;
    breaks(&mut session(&[topic(1)]), messages(vec![malformed]));
    let mut nameless = envelope(topic(1), 11);
    nameless.meta = None;
    breaks(&mut session(&[topic(1)]), messages(vec![nameless]));
}

/// Shows: STR-033.
#[test]
fn a_ping_is_to_be_answered_with_its_nonce() {
    let mut session = session(&[]);
    let heard = session
        .on(frame(Response::Ping(Ping { nonce: 77 })))
        .unwrap();
    assert!(matches!(heard, Heard::Ping(77)), "{heard:?}");
}

#[test]
fn updates_of_a_session_that_is_over_say_why() {
    let mut session = session(&[]);
    session.end(TransportError::unavailable("cut"));
    session.end(TransportError::Closed);
    let error = session.update(vec![(topic(1), at(0))], vec![]).unwrap_err();
    assert_eq!(error, TransportError::unavailable("cut"));
}

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
            for id in log
                .iter()
                .filter(|id| **id > *floor)
                .take(rng.random_range(0..4))
            {
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
        let cursor = |(topic, cursor): (&Topic, &PrefixCursor)| {
            (*topic, PrefixCursor::new(*topic, cursor.last()))
        };
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
            1 => applied.added_targets.push(CatchupTarget {
                topic: Some(topic(0xee).to_proto()),
                through_sequence_id: 0,
            }),
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
    Some(SubscribeResponse {
        response: Some(response),
    })
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
    assert!(
        noticed > 1_000,
        "the schedules have to reach something: {noticed}"
    );
}

/// Shows: STR-060, PROC-001.
#[test]
fn each_registration_continues_exactly_where_it_stood() {
    let mut session = session(&[topic(1), topic(2)]);
    let both = messages(vec![
        envelope(topic(1), 11),
        envelope(topic(2), 12),
        envelope(topic(1), 13),
        envelope(topic(2), 14),
    ]);
    let Heard::Event(ReceiverEvent::Received(first)) = session.on(both).unwrap() else {
        panic!("not messages")
    };
    let summary = |prefix: &OrderedPrefix| (prefix.topic(), prefix.after(), prefix.last());
    let summaries: Vec<_> = first.iter().map(summary).collect();
    assert_eq!(
        summaries,
        [(topic(1), at(10), at(13)), (topic(2), at(10), at(14))]
    );
    let Heard::Event(ReceiverEvent::Received(second)) = session.on(one(topic(1), 30)).unwrap()
    else {
        panic!("not messages")
    };
    assert_eq!(summary(&second[0]), (topic(1), at(13), at(30)));
    assert_eq!(
        second[0].envelopes()[0].sequence_id(),
        SequenceId::try_from(30_u64).unwrap()
    );
    assert_eq!(
        second[0].envelopes()[0].hash(),
        MessageHash::from_bytes([7; 32])
    );
}
