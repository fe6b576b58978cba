//! Single situations, where the simulation's random ones would show less clearly what is promised.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use highwater_wire::proto::backend::{self, TopicQuery, subscribe_request};
use tonic::Status;

use super::{
    Action, Event, Frame, Page, Session,
    simulation::{delivery, sequence, topic},
};
use crate::config::{Limits, Timing};

fn ends(actions: &[Action]) -> Option<&Status> {
    actions.iter().find_map(|action| match action {
        Action::End(end) => end.status.as_ref(),
        _ => None,
    })
}

fn pong(nonce: u64) -> Event {
    let pong = subscribe_request::Request::Pong(backend::Pong { nonce });
    Event::Inbound(backend::SubscribeRequest { request: Some(pong) })
}

/// Shows: STR-033, STR-034.
#[test]
fn the_pong_deadline_counts_from_the_handoff_and_only_the_right_nonce_meets_it() {
    let timing = Arc::new(Timing::default());
    let start = Instant::now();
    let (mut session, actions) = Session::native(Arc::new(Limits::default()), Arc::clone(&timing), 7, start);
    assert!(matches!(actions[..], [Action::Send(Frame::Started { .. })]));
    session.on(start, Event::Taken);

    let silent = start + timing.keepalive;
    assert_eq!(session.deadline(), Some(silent));
    let actions = session.on(silent, Event::Tick);
    assert!(matches!(actions[..], [Action::Send(Frame::Ping(7))]));
    // Not handed over yet: only the stall deadline runs, and no second challenge.
    assert_eq!(session.deadline(), Some(silent + timing.stall_wait));
    assert!(session.on(silent + timing.keepalive, Event::Tick).is_empty());

    let handed = silent + timing.keepalive;
    session.on(handed, Event::Taken);
    assert_eq!(session.deadline(), Some(handed + timing.pong_wait));
    session.on(handed, pong(8));
    assert_eq!(session.deadline(), Some(handed + timing.pong_wait), "another nonce");
    session.on(handed, pong(7));
    let actions = session.on(handed + timing.pong_wait, Event::Tick);
    assert!(ends(&actions).is_none(), "the challenge was met");

    // The next one isn't.
    assert!(matches!(actions[..], [Action::Send(Frame::Ping(8))]));
    let handed = handed + timing.pong_wait;
    session.on(handed, Event::Taken);
    let actions = session.on(handed + timing.pong_wait, Event::Tick);
    assert_eq!(ends(&actions).map(Status::code), Some(tonic::Code::DeadlineExceeded));
}

/// Shows: STR-030.
#[test]
fn a_transport_that_takes_nothing_ends_the_stream() {
    let timing = Arc::new(Timing::default());
    let start = Instant::now();
    let (mut session, _) = Session::native(Arc::new(Limits::default()), Arc::clone(&timing), 0, start);
    let almost = start + timing.stall_wait - Duration::from_millis(1);
    assert!(ends(&session.on(almost, Event::Tick)).is_none());
    let actions = session.on(start + timing.stall_wait, Event::Tick);
    assert_eq!(ends(&actions).map(Status::code), Some(tonic::Code::ResourceExhausted));
}

/// A topic of which the store showed more before must not be asked for again and again, and nothing of it
/// may be skipped.
///
/// Shows: STR-010, STR-035.
#[test]
fn a_store_that_goes_back_ends_the_stream() {
    let start = Instant::now();
    let limits = Arc::new(Limits::default());
    let (mut session, _) = Session::native(limits, Arc::new(Timing::default()), 0, start);
    let adds = vec![TopicQuery { topic: Some(topic(0).to_proto()), cursor: None }];
    let update = subscribe_request::Update { id: 1, adds, removes: Vec::new() };
    let request = Some(subscribe_request::Request::Update(update));
    session.on(start, Event::Inbound(backend::SubscribeRequest { request }));
    session.on(start, Event::Heads(HashMap::from([(topic(0), sequence(5))])));
    // What becomes known while a fetch is under way needn't be in it.
    session.on(start, Event::Notice(topic(0), sequence(6)));
    let page = |ids: &[u64]| {
        let envelopes = ids.iter().map(|id| delivery(topic(0), *id)).collect();
        Event::Fetched(vec![Page { envelopes, has_more: false }])
    };
    let actions = session.on(start, page(&[3, 5]));
    assert!(ends(&actions).is_none());
    assert!(actions.iter().any(|action| matches!(action, Action::Fetch { .. })), "{actions:?}");
    let actions = session.on(start, page(&[]));
    assert_eq!(ends(&actions).map(Status::code), Some(tonic::Code::Unavailable));
}

/// Shows: STR-016.
#[test]
fn topics_that_a_byte_cutoff_left_out_come_first_in_the_next_turn() {
    let start = Instant::now();
    let limits = Arc::new(Limits { fetch_turn_topics: 3, ..Limits::default() });
    let (mut session, _) = Session::native(limits, Arc::new(Timing::default()), 0, start);
    let adds = (0..5).map(|number| TopicQuery { topic: Some(topic(number).to_proto()), cursor: None });
    let update = subscribe_request::Update { id: 1, adds: adds.collect(), removes: Vec::new() };
    let request = Some(subscribe_request::Request::Update(update));
    session.on(start, Event::Inbound(backend::SubscribeRequest { request }));
    let heads = (0..5).map(|number| (topic(number), sequence(10))).collect();
    let asked = |actions: Vec<Action>| {
        let reads = actions.into_iter().find_map(|action| match action {
            Action::Fetch { reads, .. } => Some(reads),
            _ => None,
        });
        reads.expect("a fetch").iter().map(|read| read.topic).collect::<Vec<_>>()
    };
    let first = asked(session.on(start, Event::Heads(heads)));
    assert_eq!(first, [topic(0), topic(1), topic(2)]);
    // Only the first was reached before the bytes ran out, and has more.
    let page = Page { envelopes: vec![delivery(topic(0), 1)], has_more: true };
    let second = asked(session.on(start, Event::Fetched(vec![page])));
    assert_eq!(second, [topic(1), topic(2), topic(3)]);
}
