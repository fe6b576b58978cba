//! The receiver session: its order, its pongs, and the ways it ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use highwater_transport::{
    ConnectOptions, MAX_FETCHED_ROWS, Receiver, ReceiverEnd, ReceiverEvent, TransportError,
};
use highwater_wire::proto::backend::{
    Ping, ServerEnvelope, subscribe_request::Request as Asked, subscribe_response::Response as Frame,
};
use highwater_wire::{OrderedPrefix, Topic};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::scripted::{
    Call, DEADLINE, Link, Script, Scripted, at, client_envelope, connect, envelope, meta, session, topic,
};

async fn next(receiver: &mut Receiver) -> ReceiverEvent {
    timeout(DEADLINE, receiver.next()).await.expect("nothing happened")
}

async fn started(receiver: &mut Receiver) -> Duration {
    match next(receiver).await {
        ReceiverEvent::Started { keepalive } => keepalive,
        other => panic!("not a start: {other:?}"),
    }
}

/// Starts, and adds topic 1 from 0.
async fn registered(receiver: &mut Receiver) {
    started(receiver).await;
    let added = receiver.update(vec![(topic(1), at(0))], vec![]).unwrap();
    match next(receiver).await {
        ReceiverEvent::Applied { update, targets } => {
            assert_eq!(update, added);
            assert_eq!(targets, [(topic(1), at(0))]);
        }
        other => panic!("not applied: {other:?}"),
    }
}

async fn received(receiver: &mut Receiver) -> Vec<OrderedPrefix> {
    match next(receiver).await {
        ReceiverEvent::Received(prefixes) => prefixes,
        other => panic!("nothing received: {other:?}"),
    }
}

async fn ended(receiver: &mut Receiver) -> ReceiverEnd {
    match next(receiver).await {
        ReceiverEvent::Ended(end) => end,
        other => panic!("not the end: {other:?}"),
    }
}

async fn open(script: Script) -> (Scripted, Receiver) {
    let backend = Scripted::start(script).await;
    let receiver = backend.connect().open_receiver().await.unwrap();
    (backend, receiver)
}

/// A session script that runs once, with what only one test needs moved into it.
fn once<F: Future<Output = ()> + Send + 'static>(script: impl FnOnce(Call) -> F + Send + 'static) -> Script {
    let script = Arc::new(Mutex::new(Some(script)));
    session(move |call| {
        let script = script.lock().unwrap().take().expect("a second session");
        script(call)
    })
}

fn run(ids: std::ops::Range<u64>) -> Vec<ServerEnvelope> {
    ids.map(|id| envelope(topic(1), id)).collect()
}

/// Shows: STR-001, STR-006.
#[tokio::test]
async fn a_session_starts_without_topics_and_delivers_what_is_added() {
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start(0).await;
        let update = call.asked_update().await;
        assert_eq!(update.id, 1);
        assert_eq!(Topic::try_from(update.adds[0].topic.as_ref().unwrap()), Ok(topic(1)));
        assert_eq!(update.adds[0].cursor.unwrap().sequence_id, 41);
        call.apply(&update).await;
        call.messages(run(50..53)).await;
        call.idle().await;
    }))
    .await;
    assert_eq!(started(&mut receiver).await, Duration::from_secs(30));
    let id = receiver.update(vec![(topic(1), at(41))], vec![]).unwrap();
    let expected = ReceiverEvent::Applied { update: id, targets: vec![(topic(1), at(0))] };
    assert_eq!(next(&mut receiver).await, expected);
    let prefixes = received(&mut receiver).await;
    assert_eq!(prefixes.len(), 1);
    assert_eq!((prefixes[0].after(), prefixes[0].last()), (at(41), at(52)));
}

/// Shows: STR-007, STR-008.
#[tokio::test]
async fn a_message_after_the_acknowledged_removal_ends_the_session() {
    let (gone, is_gone) = oneshot::channel();
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start_and_apply(0).await;
        let removal = call.asked_update().await;
        call.messages(run(1..2)).await;
        call.apply(&removal).await;
        call.messages(run(2..3)).await;
        call.idle().await;
        gone.send(()).unwrap();
    }))
    .await;
    registered(&mut receiver).await;
    let removal = receiver.update(vec![], vec![topic(1)]).unwrap();
    received(&mut receiver).await;
    let expected = ReceiverEvent::Applied { update: removal, targets: vec![] };
    assert_eq!(next(&mut receiver).await, expected);
    let end = ended(&mut receiver).await;
    assert!(matches!(end, ReceiverEnd::Failed(TransportError::Protocol(_))), "{end:?}");
    assert_eq!(ended(&mut receiver).await, end, "the end is the last word");
    let error = receiver.update(vec![(topic(2), at(0))], vec![]).unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
    timeout(DEADLINE, is_gone).await.unwrap().unwrap();
}

/// Shows: STR-033.
#[tokio::test]
async fn a_ping_is_answered_with_its_nonce_though_nobody_takes_events() {
    let (done, is_done) = oneshot::channel();
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start_and_apply(0).await;
        // More rows than the client may hold unread.
        call.messages(run(1..2 * MAX_FETCHED_ROWS as u64)).await;
        for nonce in [7, u64::MAX, 0] {
            call.send(Frame::Ping(Ping { nonce })).await;
            match call.asked().await {
                Some(Asked::Pong(pong)) => assert_eq!(pong.nonce, nonce),
                other => panic!("not a pong: {other:?}"),
            }
        }
        done.send(()).unwrap();
        call.idle().await;
    }))
    .await;
    registered(&mut receiver).await;
    timeout(DEADLINE, is_done).await.unwrap().unwrap();
    let prefixes = received(&mut receiver).await;
    assert_eq!(prefixes[0].len(), 2 * MAX_FETCHED_ROWS - 1);
}

/// Shows: PROC-021.
#[tokio::test]
async fn three_intervals_without_a_frame_are_silence() {
    let (_backend, mut receiver) = open(session(|call| async move {
        call.start(100).await;
        call.idle().await;
    }))
    .await;
    assert_eq!(started(&mut receiver).await, Duration::from_millis(100));
    let since = Instant::now();
    assert_eq!(ended(&mut receiver).await, ReceiverEnd::Silent);
    let waited = since.elapsed();
    assert!(waited >= Duration::from_millis(280), "gave up after {waited:?}");
    let error = receiver.update(vec![(topic(1), at(0))], vec![]).unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
}

/// Shows: PROC-021.
#[tokio::test]
async fn any_frame_is_a_sign_of_life() {
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start_and_apply(400).await;
        for id in 1..=10_u64 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            match id % 2 {
                0 => call.messages(run(id..id + 1)).await,
                _ => call.send(Frame::Ping(Ping { nonce: id })).await,
            }
        }
        call.fail(Code::Unavailable).await;
    }))
    .await;
    registered(&mut receiver).await;
    for _ in 0..5 {
        received(&mut receiver).await;
    }
    let end = ended(&mut receiver).await;
    assert_eq!(end, ReceiverEnd::Failed(TransportError::unavailable("scripted")));
}

/// Shows: PROC-021.
#[tokio::test]
async fn the_time_in_which_nothing_can_be_read_is_no_silence() {
    // With two frames, nothing more is on the way when the second one finds room: the clock has to
    // begin anew by itself. With twenty, the backend stands still in between.
    for frames in [2, 20] {
        let (_backend, mut receiver) = open(once(move |mut call| async move {
            call.start_and_apply(100).await;
            for n in 0..frames {
                call.messages(run(1 + n * 200..1 + (n + 1) * 200)).await;
            }
            call.idle().await;
        }))
        .await;
        registered(&mut receiver).await;
        // The client holds as much as it may, for far longer than three intervals.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let since = Instant::now();
        for n in 0..frames {
            let prefixes = received(&mut receiver).await;
            assert_eq!(prefixes[0].after(), at(n * 200));
            assert_eq!(prefixes[0].len(), 200);
        }
        assert_eq!(ended(&mut receiver).await, ReceiverEnd::Silent);
        let waited = since.elapsed();
        assert!(waited >= Duration::from_millis(280), "gave up after {waited:?}");
    }
}

/// Shows: STR-063.
#[tokio::test]
async fn a_slow_owner_holds_back_the_backend_and_not_memory() {
    let sent = Arc::new(Mutex::new(0_u64));
    let counted = Arc::clone(&sent);
    let (_backend, mut receiver) = open(once(move |mut call| async move {
        call.start_and_apply(0).await;
        for id in 1..=200 {
            let large = client_envelope(vec![0; 1024 * 1024]);
            let large = ServerEnvelope { meta: Some(meta(topic(1), id)), envelope: Some(large) };
            call.messages(vec![large]).await;
            *counted.lock().unwrap() = id;
        }
        call.idle().await;
    }))
    .await;
    registered(&mut receiver).await;
    // Wait until the backend stands still.
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = *sent.lock().unwrap();
        if now == last && now > 0 {
            break;
        }
        last = now;
    }
    // 64 MiB, the frame that has no room, and what lies in windows, socket buffers and queues.
    assert!((60..100).contains(&last), "{last} MiB were sent unread");
    for id in 1..=200 {
        assert_eq!(received(&mut receiver).await[0].last(), at(id));
    }
}

/// Shows: PROC-021.
#[tokio::test]
async fn a_dropped_connection_ends_the_session_retryably() {
    let backend = Scripted::start(once(|mut call| async move {
        call.start_and_apply(0).await;
        call.messages(run(1..4)).await;
        call.idle().await;
    }))
    .await;
    let link = Link::to(backend.address).await;
    let connection = connect(link.address, ConnectOptions::default());
    let mut receiver = connection.open_receiver().await.unwrap();
    registered(&mut receiver).await;
    assert_eq!(received(&mut receiver).await[0].last(), at(3));
    link.cut();
    match ended(&mut receiver).await {
        ReceiverEnd::Failed(error @ TransportError::Unavailable { .. }) => {
            assert!(error.is_retryable());
        }
        other => panic!("not unavailable: {other:?}"),
    }
}

/// Shows: PROC-021.
#[tokio::test]
async fn the_backends_reason_is_told_from_the_wires() {
    let table = [
        (Code::Cancelled, TransportError::Cancelled { message: "scripted".into() }, false),
        (Code::InvalidArgument, invalid(), false),
        (Code::DeadlineExceeded, TransportError::DeadlineExceeded { message: "scripted".into() }, true),
        (Code::Internal, TransportError::Internal { message: "scripted".into() }, false),
    ];
    for (code, expected, retryable) in table {
        let (_backend, mut receiver) = open(session(move |call| async move {
            call.start(0).await;
            call.fail(code).await;
        }))
        .await;
        started(&mut receiver).await;
        assert_eq!(ended(&mut receiver).await, ReceiverEnd::Failed(expected.clone()));
        assert_eq!(expected.is_retryable(), retryable);
    }
}

fn invalid() -> TransportError {
    TransportError::InvalidArgument { message: "scripted".into(), publish: None }
}

#[tokio::test]
async fn a_session_that_is_told_to_come_back_later_says_when() {
    let (_backend, mut receiver) = open(session(|call| async move {
        call.start(0).await;
        let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(7)));
        call.fail_with(Status::with_error_details(Code::Unavailable, "later", details)).await;
    }))
    .await;
    started(&mut receiver).await;
    let ReceiverEnd::Failed(error) = ended(&mut receiver).await else { panic!("no failure") };
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

/// Shows: PROC-021.
#[tokio::test]
async fn an_end_without_a_reason_is_retryable() {
    let (_backend, mut receiver) = open(session(|call| async move {
        call.start(0).await;
    }))
    .await;
    started(&mut receiver).await;
    match ended(&mut receiver).await {
        ReceiverEnd::Failed(error) => assert!(error.is_retryable(), "{error:?}"),
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_that_nobody_accepts_fails_to_open() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = ConnectOptions { request_timeout: Duration::from_millis(200), ..Default::default() };
    let error = connect(address, options.clone()).open_receiver().await.unwrap_err();
    assert!(matches!(error, TransportError::DeadlineExceeded { .. }), "{error:?}");
    drop(listener);
    let error = connect(address, options).open_receiver().await.unwrap_err();
    assert!(matches!(error, TransportError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn closing_or_dropping_cancels_the_session_at_once() {
    for close in [true, false] {
        let (gone, is_gone) = oneshot::channel();
        let (_backend, mut receiver) = open(once(|mut call| async move {
            call.start_and_apply(0).await;
            call.messages(run(1..4)).await;
            call.idle().await;
            gone.send(()).unwrap();
        }))
        .await;
        registered(&mut receiver).await;
        if close {
            receiver.close();
            assert_eq!(ended(&mut receiver).await, ReceiverEnd::Closed);
            assert_eq!(ended(&mut receiver).await, ReceiverEnd::Closed);
            let error = receiver.update(vec![(topic(2), at(0))], vec![]).unwrap_err();
            assert_eq!(error, TransportError::Closed);
        } else {
            drop(receiver);
        }
        timeout(DEADLINE, is_gone).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn dropping_the_future_of_next_loses_nothing() {
    let (step, mut steps) = mpsc::channel(1);
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start_and_apply(0).await;
        for id in 1..=200 {
            steps.recv().await.unwrap();
            call.messages(run(id..id + 1)).await;
        }
        call.idle().await;
    }))
    .await;
    registered(&mut receiver).await;
    let (mut seen, mut dropped) = (0, 0);
    let mut allowed = 0;
    while seen < 200 {
        tokio::select! {
            biased;
            event = receiver.next() => match event {
                ReceiverEvent::Received(prefixes) => {
                    assert_eq!(prefixes[0].after(), at(seen));
                    seen = prefixes[0].last().get();
                }
                other => panic!("nothing received: {other:?}"),
            },
            sent = step.send(()), if allowed < 200 => {
                sent.unwrap();
                allowed += 1;
                dropped += 1;
            }
            () = tokio::time::sleep(DEADLINE) => panic!("message {} is lost", seen + 1),
        }
    }
    assert!(dropped > 0);
}

#[tokio::test]
async fn a_burst_of_updates_arrives_whole_and_in_order() {
    let (_backend, mut receiver) = open(once(|mut call| async move {
        call.start(0).await;
        for id in 1..=60 {
            let update = call.asked_update().await;
            assert_eq!(update.id, id);
            call.apply(&update).await;
        }
        call.idle().await;
    }))
    .await;
    started(&mut receiver).await;
    let since = Instant::now();
    let made: Vec<_> = (1..=60).map(|n| receiver.update(vec![(topic(n), at(0))], vec![]).unwrap()).collect();
    for (n, made) in (1..=60).zip(made) {
        let expected = ReceiverEvent::Applied { update: made, targets: vec![(topic(n), at(0))] };
        assert_eq!(next(&mut receiver).await, expected);
    }
    assert!(since.elapsed() >= Duration::from_millis(900), "half the burst, then the rate");
}
