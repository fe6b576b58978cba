//! Publishing.

use crate::scripted::{Script, Scripted, answer, client_envelope, meta, publishes, topic};
use bytes::Bytes;
use highwater_transport::{RefusalReason, TransportError};
use highwater_wire::MessageHash;
use highwater_wire::limits::MAX_REQUEST_BYTES;
use highwater_wire::proto::backend::{PublishError, PublishResponse, publish_error::Reason};
use prost::Message as _;
use std::sync::{Arc, Mutex};
use tonic::{Code, Status};

#[tokio::test]
async fn the_bytes_that_were_prepared_are_the_bytes_that_arrive() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrived);
    let backend = Scripted::start(Script {
        publish: answer(move |envelopes: Vec<Bytes>| {
            let metas = (0..envelopes.len()).map(|n| meta(topic(1), 10 + n as u64)).collect();
            *seen.lock().unwrap() = envelopes;
            Ok(PublishResponse { envelope_metas: metas })
        }),
        ..Script::default()
    })
    .await;

    let canonical = client_envelope(vec![1, 2, 3]).encode_to_vec();
    // A field that this version doesn't know, and a length that isn't coded in the shortest way:
    // neither would survive decoding and encoding again.
    let unknown = [canonical.as_slice(), &[0xfa, 0x01, 0x01, 0x55]].concat();
    let odd = vec![0x0a, 0x84, 0x00, 0x0a, 0x02, 0x07, 0x07];
    let sent: Vec<Bytes> = [canonical, unknown, odd].map(Bytes::from).to_vec();

    let receipts = backend.connect().publish(sent.clone()).await.unwrap();

    assert_eq!(*arrived.lock().unwrap(), sent);
    let ids: Vec<_> = receipts.iter().map(|receipt| receipt.sequence_id.get()).collect();
    assert_eq!(ids, [10, 11, 12]);
    assert!(receipts.iter().all(|receipt| receipt.topic == topic(1) && receipt.server_ns == 1_000));
    assert_eq!(receipts[0].hash, MessageHash::from_bytes([9; 32]));
}

#[tokio::test]
async fn nothing_to_publish_asks_nobody() {
    let backend = Scripted::start(Script::default()).await;
    assert_eq!(backend.connect().publish(vec![]).await, Ok(vec![]));
}

#[tokio::test]
async fn receipts_that_do_not_fit_their_envelopes_are_refused() {
    let mut hashless = meta(topic(1), 2);
    hashless.message_hash = None;
    let mut timeless = meta(topic(1), 2);
    timeless.server_ns = u64::MAX;
    for wrong in [vec![meta(topic(1), 0)], vec![], vec![meta(topic(1), 1); 2], vec![hashless], vec![timeless]]
    {
        let response = PublishResponse { envelope_metas: wrong };
        let backend = Scripted::start(publishes(Ok(response))).await;
        let error = backend.connect().publish(vec![Bytes::new()]).await.unwrap_err();
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
        assert!(!error.proves_nothing_stored());
    }
}

#[tokio::test]
async fn a_refused_publish_names_the_envelope_and_the_reason() {
    for (claimed, index) in [(Some(1), Some(1)), (Some(2), None), (None, None)] {
        let detail = PublishError {
            index: claimed,
            reason: Reason::InvalidKeyPackage as i32,
            message: "expired".into(),
        };
        let status = tonic_types::Status {
            code: Code::InvalidArgument as i32,
            message: "refused".into(),
            details: vec![
                any("type.googleapis.com/google.rpc.DebugInfo", vec![]),
                any("type.googleapis.com/xmtp.backend.v1.PublishError", detail.encode_to_vec()),
            ],
        };
        let status = Status::with_details(Code::InvalidArgument, "refused", status.encode_to_vec().into());
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend.connect().publish(vec![Bytes::new(); 2]).await.unwrap_err();
        assert!(error.proves_nothing_stored() && !error.is_retryable());
        let TransportError::InvalidArgument { message, publish: Some(refusal) } = error else {
            panic!("no refusal: {error:?}")
        };
        assert_eq!(message, "refused");
        assert_eq!(refusal.index, index);
        assert_eq!(refusal.reason, RefusalReason::InvalidKeyPackage);
        assert_eq!(refusal.reason.code(), "invalid_key_package");
        assert_eq!(refusal.message, "expired");
    }
}

fn any(type_url: &str, value: Vec<u8>) -> prost_types::Any {
    prost_types::Any { type_url: type_url.into(), value }
}

#[tokio::test]
async fn a_publish_over_the_ceiling_is_not_sent_and_one_just_under_it_arrives() {
    let backend =
        Scripted::start(publishes(Ok(PublishResponse { envelope_metas: vec![meta(topic(1), 1)] }))).await;
    let connection = backend.connect();
    let fits = Bytes::from(vec![0; MAX_REQUEST_BYTES - 16]);
    connection.publish(vec![fits]).await.unwrap();

    let error = connection.publish(vec![Bytes::from(vec![0; MAX_REQUEST_BYTES])]).await.unwrap_err();
    assert!(error.proves_nothing_stored());
    let TransportError::InvalidArgument { publish: Some(refusal), .. } = error else {
        panic!("no refusal: {error:?}")
    };
    assert_eq!(refusal.reason, RefusalReason::TooLarge);
}
