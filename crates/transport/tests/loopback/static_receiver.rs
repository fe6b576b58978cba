use std::time::{Duration, Instant};

use highwater_transport::{ReceiverEnd, StaticEvent, StaticReceiver, TransportError};
use highwater_wire::Cursor;
use highwater_wire::proto::backend::ServerEnvelope;
use highwater_wire::proto::backend::subscribe_static_response::{Keepalive, Messages, Response};
use tonic::Status;

use crate::scripted::*;
use crate::scripted_static::static_session;

async fn next(receiver: &mut StaticReceiver) -> StaticEvent {
    tokio::time::timeout(DEADLINE, receiver.next()).await.expect("an event in time")
}

async fn open(script: Script) -> (Scripted, StaticReceiver) {
    let backend = Scripted::start(script).await;
    let topics = [(topic(2), at(5)), (topic(1), Cursor::ZERO)];
    let receiver = backend.connect().open_static_receiver(&topics).await.unwrap();
    (backend, receiver)
}

fn envelopes(ids: std::ops::Range<u64>) -> Response {
    let envelope =
        |id| ServerEnvelope { meta: Some(meta(topic(1), id)), envelope: Some(client_envelope(vec![1])) };
    Response::Messages(Messages { envelopes: ids.map(envelope).collect() })
}

/// Shows: STR-051, STR-052, STR-060, PROC-001.
#[tokio::test]
async fn each_topic_goes_on_where_it_stood_and_ids_that_do_not_rise_end_the_session() {
    let (_backend, mut receiver) = open(static_session(|call| async move {
        call.start(0).await;
        call.send(envelopes(1..4)).await;
        call.send(envelopes(4..6)).await;
        call.send(envelopes(5..7)).await;
        call.idle().await;
    }))
    .await;
    let targets = vec![(topic(2), Cursor::ZERO), (topic(1), Cursor::ZERO)];
    assert_eq!(
        next(&mut receiver).await,
        StaticEvent::Started { keepalive: Duration::from_secs(30), targets }
    );
    for (after, last) in [(0, 3), (3, 5)] {
        let StaticEvent::Received(prefixes) = next(&mut receiver).await else { panic!("nothing received") };
        let found: Vec<_> = prefixes.iter().map(|prefix| (prefix.after(), prefix.last())).collect();
        assert_eq!(found, [(at(after), at(last))]);
    }
    for _ in 0..2 {
        let StaticEvent::Ended(ReceiverEnd::Failed(error)) = next(&mut receiver).await else {
            panic!("it went on")
        };
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
    }
}

/// Shows: STR-053, PROC-021.
#[tokio::test]
async fn three_silent_intervals_end_a_session_and_every_frame_is_a_sign_of_life() {
    let (_backend, mut receiver) = open(static_session(|call| async move {
        call.start(100).await;
        for id in 1..=8_u64 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match id % 2 {
                0 => call.send(envelopes(id..id + 1)).await,
                _ => call.send(Response::Keepalive(Keepalive {})).await,
            }
        }
        call.idle().await;
    }))
    .await;
    assert!(matches!(next(&mut receiver).await, StaticEvent::Started { .. }));
    for _ in 0..4 {
        assert!(matches!(next(&mut receiver).await, StaticEvent::Received(_)));
    }
    let since = Instant::now();
    assert_eq!(next(&mut receiver).await, StaticEvent::Ended(ReceiverEnd::Silent));
    assert!(since.elapsed() >= Duration::from_millis(280));
}

/// Shows: STR-050.
#[tokio::test]
async fn a_refused_request_and_an_ended_stream_say_why() {
    let backend = Scripted::start(Script::default()).await;
    let refused = backend.connect().open_static_receiver(&[]).await.unwrap_err();
    assert!(matches!(refused, TransportError::InvalidArgument { .. }), "{refused:?}");

    let (_backend, mut receiver) = open(static_session(|call| async move {
        call.start(0).await;
        call.fail_with(Status::unavailable("scripted")).await;
    }))
    .await;
    assert!(matches!(next(&mut receiver).await, StaticEvent::Started { .. }));
    let end = ReceiverEnd::Failed(TransportError::unavailable("scripted"));
    assert_eq!(next(&mut receiver).await, StaticEvent::Ended(end));
}
