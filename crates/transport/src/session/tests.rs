use std::time::Duration;

use highwater_wire::proto::backend::{
    self, CatchupTarget, ClientEnvelope, EnvelopeMeta, GroupMessage, Ping, ServerEnvelope,
    client_envelope::Payload,
    subscribe_request::Request,
    subscribe_response::Response,
    subscribe_response::{Applied, Messages, Started},
};
use highwater_wire::{GroupId, InstallationKey, MessageHash, OrderedPrefix, SequenceId};

use super::*;

mod schedule;

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
            payload: Some(Payload::GroupMessage(GroupMessage { data: vec![1], ..Default::default() })),
        }),
    }
}

fn frame(response: Response) -> SubscribeResponse {
    SubscribeResponse { response: Some(response) }
}

fn started(keepalive_interval_ms: u32) -> SubscribeResponse {
    frame(Response::Started(Started { keepalive_interval_ms }))
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
    for early in [applied(1, &[]), one(topic(1), 11), frame(Response::Ping(Ping { nonce: 1 }))] {
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
        let (id, request) = session.update(vec![(topic(n), Cursor::ZERO)], vec![]).unwrap();
        let Request::Update(update) = request else { panic!("not an update") };
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
        assert!(matches!(error, TransportError::InvalidArgument { .. }), "{error:?}");
    }
    let (id, _) = session.update(vec![from_start(topic(2))], vec![]).unwrap();
    assert_eq!(id.get(), 2, "a refused update uses up no id");
    session.on(applied(2, &[(topic(2), 0)])).unwrap();
}

#[test]
fn a_session_holds_no_more_topics_than_its_limit() {
    let many: Vec<_> = (0..MAX_STREAM_TOPICS as u128)
        .map(|n| (Topic::group(GroupId::from_bytes(n.to_be_bytes())), Cursor::ZERO))
        .collect();
    let first = many[0].0;
    let mut session = session(&[]);
    session.update(many, vec![]).unwrap();
    let extra = topic(0xff);
    assert!(session.update(vec![(extra, Cursor::ZERO)], vec![]).is_err());
    session.update(vec![(extra, Cursor::ZERO)], vec![first]).unwrap();
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
    match session.on(applied(2, &[(topic(2), 5), (topic(3), 0)])).unwrap() {
        Heard::Event(ReceiverEvent::Applied { update: found, targets }) => {
            assert_eq!(found, update);
            assert_eq!(targets, [(topic(2), at(5)), (topic(3), at(0))]);
        }
        other => panic!("not applied: {other:?}"),
    }
    assert_eq!(ids(&mut session, one(topic(1), 11)), [11], "the no-op add moved nothing");
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
    ids(&mut session, messages(vec![envelope(topic(1), 11), envelope(topic(1), 20)]));
    session.update(vec![], vec![topic(1)]).unwrap();
    session.update(vec![(topic(1), at(15))], vec![]).unwrap();
    assert_eq!(ids(&mut session, one(topic(1), 21)), [21], "still the old registration");
    session.on(applied(2, &[])).unwrap();
    session.on(applied(3, &[(topic(1), 21)])).unwrap();
    assert_eq!(ids(&mut session, one(topic(1), 20)), [20], "again, from the new start");
    breaks(&mut session, one(topic(1), 20));
}

/// Shows: STR-060, PROC-001.
#[test]
fn ids_rise_over_all_frames_of_one_registration() {
    for wrong in [10, 9, 12, 0, u64::MAX] {
        let mut session = session(&[topic(1)]);
        ids(&mut session, messages(vec![envelope(topic(1), 11), envelope(topic(1), 12)]));
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
    let heard = session.on(frame(Response::Ping(Ping { nonce: 77 }))).unwrap();
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
    assert_eq!(summaries, [(topic(1), at(10), at(13)), (topic(2), at(10), at(14))]);
    let Heard::Event(ReceiverEvent::Received(second)) = session.on(one(topic(1), 30)).unwrap() else {
        panic!("not messages")
    };
    assert_eq!(summary(&second[0]), (topic(1), at(13), at(30)));
    assert_eq!(second[0].envelopes()[0].sequence_id(), SequenceId::try_from(30_u64).unwrap());
    assert_eq!(second[0].envelopes()[0].hash(), MessageHash::from_bytes([7; 32]));
}
