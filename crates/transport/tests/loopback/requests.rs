//! Reads, publishes and look-ups.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use highwater_transport::{
    ConnectOptions, Connection, RefusalReason, TransportError, WalletSignature,
};
use highwater_wire::limits::{
    MAX_LOOKUP_IDENTIFIERS, MAX_NEWEST_FULL_TOPICS, MAX_NEWEST_METADATA_TOPICS, MAX_QUERY_TOPICS,
    MAX_REQUEST_BYTES, MAX_SCW_SIGNATURES,
};
use highwater_wire::proto::associations::IdentifierKind;
use highwater_wire::proto::backend::{GetInboxIdsResponse, ServerEnvelope};
use highwater_wire::proto::backend::{
    PublishError, PublishResponse, QueryNewestResponse, QueryResponse,
    VerifySmartContractWalletSignaturesResponse, get_inbox_ids_response, publish_error::Reason,
    query_newest_response, query_response::Continuation,
    verify_smart_contract_wallet_signatures_response as verified,
};
use highwater_wire::{Cursor, GroupId, InboxId, InstallationKey, MessageHash, Topic};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::scripted::{
    Link, Script, Scripted, answer, client_envelope, connect, envelope, meta, topic,
};

fn at(position: u64) -> Cursor {
    Cursor::try_from(position).unwrap()
}

fn numbered(n: u32) -> Topic {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    Topic::group(GroupId::from_bytes(id))
}

fn queries(envelopes: Vec<ServerEnvelope>, has_more: bool) -> Script {
    let page = QueryResponse {
        envelopes,
        continuation: Some(Continuation { has_more }),
    };
    Script {
        query: answer(move |_| Ok(page.clone())),
        ..Script::default()
    }
}

fn publishes(response: Result<PublishResponse, Status>) -> Script {
    Script {
        publish: answer(move |_| response.clone()),
        ..Script::default()
    }
}

#[tokio::test]
async fn the_bytes_that_were_prepared_are_the_bytes_that_arrive() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrived);
    let backend = Scripted::start(Script {
        publish: answer(move |envelopes: Vec<Bytes>| {
            let metas = (0..envelopes.len())
                .map(|n| meta(topic(1), 10 + n as u64))
                .collect();
            *seen.lock().unwrap() = envelopes;
            Ok(PublishResponse {
                envelope_metas: metas,
            })
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
    let ids: Vec<_> = receipts
        .iter()
        .map(|receipt| receipt.sequence_id.get())
        .collect();
    assert_eq!(ids, [10, 11, 12]);
    assert!(
        receipts
            .iter()
            .all(|receipt| receipt.topic == topic(1) && receipt.server_ns == 1_000)
    );
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
    for wrong in [
        vec![meta(topic(1), 0)],
        vec![],
        vec![meta(topic(1), 1); 2],
        vec![hashless],
        vec![timeless],
    ] {
        let response = PublishResponse {
            envelope_metas: wrong,
        };
        let backend = Scripted::start(publishes(Ok(response))).await;
        let error = backend
            .connect()
            .publish(vec![Bytes::new()])
            .await
            .unwrap_err();
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
                any(
                    "type.googleapis.com/xmtp.backend.v1.PublishError",
                    detail.encode_to_vec(),
                ),
            ],
        };
        let status = Status::with_details(
            Code::InvalidArgument,
            "refused",
            status.encode_to_vec().into(),
        );
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend
            .connect()
            .publish(vec![Bytes::new(); 2])
            .await
            .unwrap_err();
        assert!(error.proves_nothing_stored() && !error.is_retryable());
        let TransportError::InvalidArgument {
            message,
            publish: Some(refusal),
        } = error
        else {
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
    prost_types::Any {
        type_url: type_url.into(),
        value,
    }
}

#[tokio::test]
async fn a_publish_over_the_ceiling_is_not_sent_and_one_just_under_it_arrives() {
    let backend = Scripted::start(publishes(Ok(PublishResponse {
        envelope_metas: vec![meta(topic(1), 1)],
    })))
    .await;
    let connection = backend.connect();
    let fits = Bytes::from(vec![0; MAX_REQUEST_BYTES - 16]);
    connection.publish(vec![fits]).await.unwrap();

    let error = connection
        .publish(vec![Bytes::from(vec![0; MAX_REQUEST_BYTES])])
        .await
        .unwrap_err();
    assert!(error.proves_nothing_stored());
    let TransportError::InvalidArgument {
        publish: Some(refusal),
        ..
    } = error
    else {
        panic!("no refusal: {error:?}")
    };
    assert_eq!(refusal.reason, RefusalReason::TooLarge);
}

#[tokio::test]
async fn each_status_of_the_backend_becomes_its_own_error() {
    let text = || "scripted".to_owned();
    let message = text();
    let table = [
        (
            Code::InvalidArgument,
            false,
            TransportError::InvalidArgument {
                message: text(),
                publish: None,
            },
        ),
        (
            Code::OutOfRange,
            false,
            TransportError::OutOfRange { message: text() },
        ),
        (
            Code::Aborted,
            true,
            TransportError::Aborted { message: text() },
        ),
        (
            Code::Unavailable,
            true,
            TransportError::unavailable(message.clone()),
        ),
        (
            Code::DeadlineExceeded,
            true,
            TransportError::DeadlineExceeded { message: text() },
        ),
        (
            Code::ResourceExhausted,
            true,
            TransportError::ResourceExhausted {
                message: text(),
                retry_after: None,
            },
        ),
        (
            Code::Unauthenticated,
            false,
            TransportError::Unauthenticated { message: text() },
        ),
        (
            Code::PermissionDenied,
            false,
            TransportError::Unauthenticated { message: text() },
        ),
        (
            Code::Unimplemented,
            false,
            TransportError::Unimplemented { message: text() },
        ),
        (
            Code::Internal,
            false,
            TransportError::Internal { message: text() },
        ),
        (
            Code::Cancelled,
            false,
            TransportError::Cancelled { message: text() },
        ),
        (
            Code::Unknown,
            true,
            TransportError::Unexpected {
                code: "UNKNOWN",
                message: text(),
            },
        ),
        (
            Code::NotFound,
            false,
            TransportError::Unexpected {
                code: "NOT_FOUND",
                message: text(),
            },
        ),
    ];
    for (code, retryable, expected) in table {
        let status = Status::new(code, "scripted");
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend
            .connect()
            .publish(vec![Bytes::new()])
            .await
            .unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.is_retryable(), retryable, "{error:?}");
        assert_eq!(error.proves_nothing_stored(), code == Code::InvalidArgument);
    }
}

#[tokio::test]
async fn the_backends_wish_to_be_left_alone_is_kept() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(1_500)));
        let status = Status::with_error_details(code, "later", details);
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend
            .connect()
            .publish(vec![Bytes::new()])
            .await
            .unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1_500)));
    }
}

/// Shows: PROC-021.
#[tokio::test]
async fn a_time_limit_of_this_side_is_no_cancellation_of_the_backends() {
    let backend = Scripted::start(Script {
        query: Arc::new(|_| Box::pin(std::future::pending())),
        ..Script::default()
    })
    .await;
    let options = ConnectOptions {
        request_timeout: Duration::from_millis(200),
        ..Default::default()
    };
    let connection = connect(backend.address, options);
    let error = connection
        .query(&[(topic(1), Cursor::ZERO)], 0)
        .await
        .unwrap_err();
    assert!(
        matches!(error, TransportError::DeadlineExceeded { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable());
}

/// Shows: PROC-021.
#[tokio::test]
async fn a_cut_connection_is_retryable_and_the_next_call_makes_a_new_one() {
    let (asked, mut asking) = tokio::sync::mpsc::unbounded_channel();
    let backend = Scripted::start(Script {
        query: Arc::new(move |_| {
            asked.send(()).unwrap();
            Box::pin(std::future::pending())
        }),
        ..queries(vec![], false)
    })
    .await;
    let link = Link::to(backend.address).await;
    let connection = connect(link.address, ConnectOptions::default());
    let query = [(topic(1), Cursor::ZERO)];
    let (error, ()) = tokio::join!(connection.query(&query, 0), async {
        asking.recv().await.unwrap();
        link.cut();
    });
    let error = error.unwrap_err();
    assert!(
        matches!(error, TransportError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable() && !error.proves_nothing_stored());

    // Nobody listens there any more.
    let error = connection.query(&query, 0).await.unwrap_err();
    assert!(
        matches!(error, TransportError::Unavailable { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_call_after_the_backend_came_back_succeeds_on_the_same_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = Scripted::start(queries(vec![envelope(topic(1), 1)], false)).await;
    let connection = connect(listener.local_addr().unwrap(), ConnectOptions::default());
    let query = [(topic(1), Cursor::ZERO)];
    let first = tokio::spawn({
        let connection = connection.clone();
        async move { connection.query(&query, 0).await }
    });
    drop(listener.accept().await.unwrap());
    assert!(first.await.unwrap().unwrap_err().is_retryable());

    let again = connection.query(&query, 0);
    let forward = async {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(backend.address)
            .await
            .unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    };
    let page = tokio::select! {
        page = again => page.unwrap(),
        () = forward => panic!("the forwarder ended first"),
    };
    assert_eq!(page.prefixes.len(), 1);
}

#[tokio::test]
async fn an_address_that_no_network_makes_usable_is_refused_at_once() {
    for url in [
        "",
        "not a url",
        "ftp://host",
        "/path",
        "127.0.0.1:5050",
        "https://host",
    ] {
        let error = Connection::connect(url, ConnectOptions::default()).unwrap_err();
        assert!(
            matches!(error, TransportError::BadEndpoint(_)),
            "{url}: {error:?}"
        );
        assert!(!error.is_retryable());
    }
}

/// Shows: STR-060, PROC-001.
#[tokio::test]
async fn a_page_becomes_one_prefix_for_each_topic_from_the_start_that_was_asked_for() {
    let envelopes = vec![
        envelope(topic(1), 11),
        envelope(topic(2), 12),
        envelope(topic(1), 15),
        envelope(topic(2), 40),
    ];
    let backend = Scripted::start(queries(envelopes, true)).await;
    let asked = [
        (topic(1), at(10)),
        (topic(2), at(3)),
        (topic(3), at(0)),
        (topic(2), at(7)),
    ];
    let page = backend.connect().query(&asked, 4).await.unwrap();
    assert!(page.has_more);
    let summary: Vec<_> = page
        .prefixes
        .iter()
        .map(|p| (p.topic(), p.after(), p.last(), p.len()))
        .collect();
    assert_eq!(
        summary,
        [(topic(1), at(10), at(15), 2), (topic(2), at(3), at(40), 2)]
    );
}

/// Shows: STR-060, PROC-001.
#[tokio::test]
async fn a_page_that_is_no_ordered_answer_to_the_question_is_refused_whole() {
    let mut hashless = envelope(topic(1), 11);
    hashless.meta.as_mut().unwrap().message_hash = None;
    let mut empty = envelope(topic(1), 11);
    empty.envelope = None;
    let wrong = [
        (vec![envelope(topic(1), 12), envelope(topic(1), 11)], false),
        (vec![envelope(topic(1), 11), envelope(topic(1), 11)], false),
        (vec![envelope(topic(1), 10)], false),
        (vec![envelope(topic(2), 11)], false),
        (vec![envelope(topic(1), u64::MAX)], false),
        ((11..15).map(|id| envelope(topic(1), id)).collect(), false),
        (vec![hashless], false),
        (vec![empty], false),
        (vec![], true),
    ];
    for (envelopes, has_more) in wrong {
        let backend = Scripted::start(queries(envelopes.clone(), has_more)).await;
        let error = backend
            .connect()
            .query(&[(topic(1), at(10))], 3)
            .await
            .unwrap_err();
        assert!(
            matches!(error, TransportError::Protocol(_)),
            "{error:?} for {envelopes:?}"
        );
    }
}

#[tokio::test]
async fn a_topic_without_an_ordered_read_is_not_asked_for() {
    let backend = Scripted::start(Script::default()).await;
    let key_package = Topic::key_package(InstallationKey::from_bytes([1; 32]));
    let error = backend
        .connect()
        .query(&[(key_package, at(0))], 0)
        .await
        .unwrap_err();
    assert!(
        matches!(error, TransportError::InvalidArgument { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn more_topics_than_one_query_takes_share_one_limit() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sizes);
    let backend = Scripted::start(Script {
        query: answer(
            move |request: highwater_wire::proto::backend::QueryRequest| {
                seen.lock()
                    .unwrap()
                    .push((request.queries.len(), request.limit));
                let of = Topic::try_from(request.queries[0].topic.as_ref().unwrap()).unwrap();
                let envelopes = (1..=4.min(request.limit.into()))
                    .map(|id| envelope(of, id))
                    .collect();
                Ok(QueryResponse {
                    envelopes,
                    continuation: None,
                })
            },
        ),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (0..3_500).map(|n| (numbered(n), Cursor::ZERO)).collect();
    let page = backend.connect().query(&asked, 10).await.unwrap();
    let (at_once, rest) = (MAX_QUERY_TOPICS, 10);
    let expected = [(at_once, rest), (at_once, 6), (at_once, 2)];
    assert_eq!(*sizes.lock().unwrap(), expected);
    assert!(
        page.has_more,
        "topics that nobody asked about may have more"
    );
    assert_eq!(
        page.prefixes
            .iter()
            .map(|prefix| prefix.len())
            .sum::<usize>(),
        10
    );
}

#[tokio::test]
async fn a_page_too_long_for_one_message_is_asked_for_in_smaller_parts() {
    let limits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&limits);
    let backend = Scripted::start(Script {
        query: answer(
            move |request: highwater_wire::proto::backend::QueryRequest| {
                seen.lock().unwrap().push(request.limit);
                if request.limit > 30 {
                    return Err(Status::out_of_range("too long"));
                }
                let envelopes = (1..=request.limit)
                    .map(|id| envelope(topic(1), id.into()))
                    .collect();
                Ok(QueryResponse {
                    envelopes,
                    continuation: Some(Continuation { has_more: true }),
                })
            },
        ),
        ..Script::default()
    })
    .await;
    let page = backend
        .connect()
        .query(&[(topic(1), at(0))], 0)
        .await
        .unwrap();
    assert_eq!(*limits.lock().unwrap(), [100, 50, 25]);
    assert!(page.has_more);
    assert_eq!(page.prefixes[0].last(), at(25));
}

#[tokio::test]
async fn an_answer_longer_than_four_mebibytes_is_taken() {
    let mut large = envelope(topic(1), 1);
    large.envelope = Some(client_envelope(vec![7; 20 * 1024 * 1024]));
    let backend = Scripted::start(queries(vec![large], false)).await;
    let page = backend
        .connect()
        .query(&[(topic(1), at(0))], 1)
        .await
        .unwrap();
    assert!(page.prefixes[0].stored_bytes() > 20 * 1024 * 1024);
}

fn newest(id: u64, of: Topic, full: bool) -> query_newest_response::Result {
    query_newest_response::Result {
        topic: Some(of.to_proto()),
        meta: Some(meta(of, id)),
        envelope: full.then(|| client_envelope(vec![1])),
    }
}

/// Answers for every topic whose identifier doesn't start with a 1 byte, in reverse order.
fn newest_script(max: usize, sizes: Arc<Mutex<Vec<usize>>>) -> Script {
    Script {
        query_newest: answer(
            move |request: highwater_wire::proto::backend::QueryNewestRequest| {
                sizes.lock().unwrap().push(request.topics.len());
                if request.topics.len() > max {
                    return Err(Status::out_of_range("too long"));
                }
                let full = request.include_full_envelope;
                let topics = request
                    .topics
                    .iter()
                    .map(|topic| Topic::try_from(topic).unwrap());
                let mut results: Vec<_> = topics
                    .filter(|topic| topic.identifier()[0] != 1)
                    .map(|topic| newest(5, topic, full))
                    .collect();
                results.reverse();
                Ok(QueryNewestResponse { results })
            },
        ),
        ..Script::default()
    }
}

#[tokio::test]
async fn newest_ids_are_matched_by_topic_and_empty_topics_are_absent() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let backend = Scripted::start(newest_script(usize::MAX, Arc::clone(&sizes))).await;
    let mut topics: Vec<_> = (0..2_500).map(numbered).collect();
    topics.extend([topic(1), numbered(3)]);
    let found = backend.connect().query_newest(&topics).await.unwrap();
    assert_eq!(found.len(), 2_500);
    assert!(!found.contains_key(&topic(1)));
    assert_eq!(found[&numbered(3)].get(), 5);
    let at_once = MAX_NEWEST_METADATA_TOPICS;
    assert_eq!(*sizes.lock().unwrap(), [at_once, at_once, 501]);
}

#[tokio::test]
async fn newest_envelopes_are_asked_for_in_parts_that_fit_one_message() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let backend = Scripted::start(newest_script(60, Arc::clone(&sizes))).await;
    let topics: Vec<_> = (0..120).map(numbered).collect();
    let found = backend.connect().query_newest_full(&topics).await.unwrap();
    assert_eq!(found.len(), 120);
    assert_eq!(found[&numbered(7)].topic(), numbered(7));
    assert_eq!(*sizes.lock().unwrap(), [MAX_NEWEST_FULL_TOPICS, 50, 50, 20]);
}

#[tokio::test]
async fn a_newest_answer_about_something_else_is_refused() {
    let mut mixed = newest(5, topic(1), true);
    mixed.meta = Some(meta(topic(2), 5));
    let mut bare = newest(5, topic(1), true);
    bare.envelope = None;
    for results in [
        vec![newest(5, topic(2), true)],
        vec![newest(5, topic(1), true); 2],
        vec![newest(0, topic(1), true)],
        vec![mixed],
        vec![bare],
    ] {
        let response = QueryNewestResponse { results };
        let backend = Scripted::start(Script {
            query_newest: answer(move |_| Ok(response.clone())),
            ..Script::default()
        })
        .await;
        let error = backend
            .connect()
            .query_newest_full(&[topic(1)])
            .await
            .unwrap_err();
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
    }
}

#[tokio::test]
async fn inboxes_are_looked_up_in_parts_and_matched_by_identifier() {
    let inbox = InboxId::from_bytes([3; 32]);
    let backend = Scripted::start(Script {
        get_inbox_ids: answer(
            move |request: highwater_wire::proto::backend::GetInboxIdsRequest| {
                if request.requests.len() > MAX_LOOKUP_IDENTIFIERS {
                    return Err(Status::invalid_argument("too many"));
                }
                let response =
                    |request: &highwater_wire::proto::backend::get_inbox_ids_request::Request| {
                        get_inbox_ids_response::Response {
                            identifier: request.identifier.clone(),
                            identifier_kind: IdentifierKind::Ethereum as i32,
                            inbox_id: request.identifier.ends_with('7').then(|| inbox.to_string()),
                        }
                    };
                let responses = request.requests.iter().rev().map(response).collect();
                Ok(GetInboxIdsResponse { responses })
            },
        ),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (0..600)
        .map(|n| (format!("0x{n}"), IdentifierKind::Unspecified))
        .collect();
    let found = backend.connect().get_inbox_ids(&asked).await.unwrap();
    assert_eq!(found.len(), 600);
    for (n, found) in found.into_iter().enumerate() {
        assert_eq!(found, (n % 10 == 7).then_some(inbox));
    }
}

#[tokio::test]
async fn an_identifier_without_an_answer_is_a_broken_protocol() {
    let backend = Scripted::start(Script {
        get_inbox_ids: answer(|_| Ok(GetInboxIdsResponse::default())),
        ..Script::default()
    })
    .await;
    let asked = [("0x1".to_owned(), IdentifierKind::Ethereum)];
    let error = backend.connect().get_inbox_ids(&asked).await.unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
}

fn wallet_signature(n: u64) -> WalletSignature {
    WalletSignature {
        account_id: format!("eip155:1:0x{n}"),
        block_number: Some(n),
        hash: vec![1; 32],
        signature: vec![2; 65],
    }
}

#[tokio::test]
async fn verdicts_come_in_the_order_asked_and_no_verdict_is_no_no() {
    let backend = Scripted::start(Script {
        verify: answer(
            |request: highwater_wire::proto::backend::VerifySmartContractWalletSignaturesRequest| {
                if request.signatures.len() > MAX_SCW_SIGNATURES {
                    return Err(Status::invalid_argument("too many"));
                }
                let response = |block: u64| verified::Response {
                    is_valid: block.is_multiple_of(2),
                    block_number: Some(block),
                    error: block.is_multiple_of(3).then(|| "unreachable".to_owned()),
                };
                let blocks = request.signatures.iter().filter_map(|asked| asked.block_number);
                let responses = blocks.map(response).collect();
                Ok(VerifySmartContractWalletSignaturesResponse { responses })
            },
        ),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (1..=250).map(wallet_signature).collect();
    let verdicts = backend.connect().verify_signatures(&asked).await.unwrap();
    assert_eq!(verdicts.len(), 250);
    assert_eq!(
        verdicts[..4],
        [Ok(false), Ok(true), Err("unreachable".to_owned()), Ok(true)]
    );
}

#[tokio::test]
async fn a_verdict_at_another_block_is_refused() {
    let backend = Scripted::start(Script {
        verify: answer(|_| {
            let response = verified::Response {
                is_valid: true,
                block_number: Some(99),
                error: None,
            };
            Ok(VerifySmartContractWalletSignaturesResponse {
                responses: vec![response],
            })
        }),
        ..Script::default()
    })
    .await;
    let error = backend
        .connect()
        .verify_signatures(&[wallet_signature(7)])
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
}
