//! Ordered reads.

use crate::scripted::{Script, Scripted, answer, at, client_envelope, envelope, numbered, queries, topic};
use highwater_transport::TransportError;
use highwater_wire::limits::MAX_QUERY_TOPICS;
use highwater_wire::proto::backend::{QueryRequest, QueryResponse, query_response::Continuation};
use highwater_wire::{Cursor, InstallationKey, Topic};
use std::sync::{Arc, Mutex};
use tonic::Status;

/// Shows: STR-060, PROC-001.
#[tokio::test]
async fn a_page_becomes_one_prefix_for_each_topic_from_the_start_that_was_asked_for() {
    let envelopes =
        vec![envelope(topic(1), 11), envelope(topic(2), 12), envelope(topic(1), 15), envelope(topic(2), 40)];
    let backend = Scripted::start(queries(envelopes, true)).await;
    let asked = [(topic(1), at(10)), (topic(2), at(3)), (topic(3), at(0)), (topic(2), at(7))];
    let page = backend.connect().query(&asked, 4).await.unwrap();
    assert!(page.has_more);
    let summary: Vec<_> = page.prefixes.iter().map(|p| (p.topic(), p.after(), p.last(), p.len())).collect();
    assert_eq!(summary, [(topic(1), at(10), at(15), 2), (topic(2), at(3), at(40), 2)]);
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
        let error = backend.connect().query(&[(topic(1), at(10))], 3).await.unwrap_err();
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?} for {envelopes:?}");
    }
}

#[tokio::test]
async fn a_topic_without_an_ordered_read_is_not_asked_for() {
    let backend = Scripted::start(Script::default()).await;
    let key_package = Topic::key_package(InstallationKey::from_bytes([1; 32]));
    let error = backend.connect().query(&[(key_package, at(0))], 0).await.unwrap_err();
    assert!(matches!(error, TransportError::InvalidArgument { .. }), "{error:?}");
}

#[tokio::test]
async fn more_topics_than_one_query_takes_share_one_limit() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sizes);
    let backend = Scripted::start(Script {
        query: answer(move |request: QueryRequest| {
            seen.lock().unwrap().push((request.queries.len(), request.limit));
            let of = Topic::try_from(request.queries[0].topic.as_ref().unwrap()).unwrap();
            let envelopes = (1..=4.min(request.limit.into())).map(|id| envelope(of, id)).collect();
            Ok(QueryResponse { envelopes, continuation: None })
        }),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (0..3_500).map(|n| (numbered(n), Cursor::ZERO)).collect();
    let page = backend.connect().query(&asked, 10).await.unwrap();
    let (at_once, rest) = (MAX_QUERY_TOPICS, 10);
    let expected = [(at_once, rest), (at_once, 6), (at_once, 2)];
    assert_eq!(*sizes.lock().unwrap(), expected);
    assert!(page.has_more, "topics that nobody asked about may have more");
    assert_eq!(page.prefixes.iter().map(|prefix| prefix.len()).sum::<usize>(), 10);
}

#[tokio::test]
async fn a_page_too_long_for_one_message_is_asked_for_in_smaller_parts() {
    let limits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&limits);
    let backend = Scripted::start(Script {
        query: answer(move |request: QueryRequest| {
            seen.lock().unwrap().push(request.limit);
            if request.limit > 30 {
                return Err(Status::out_of_range("too long"));
            }
            let envelopes = (1..=request.limit).map(|id| envelope(topic(1), id.into())).collect();
            Ok(QueryResponse { envelopes, continuation: Some(Continuation { has_more: true }) })
        }),
        ..Script::default()
    })
    .await;
    let page = backend.connect().query(&[(topic(1), at(0))], 0).await.unwrap();
    assert_eq!(*limits.lock().unwrap(), [100, 50, 25]);
    assert!(page.has_more);
    assert_eq!(page.prefixes[0].last(), at(25));
}

#[tokio::test]
async fn an_answer_longer_than_four_mebibytes_is_taken() {
    let mut large = envelope(topic(1), 1);
    large.envelope = Some(client_envelope(vec![7; 20 * 1024 * 1024]));
    let backend = Scripted::start(queries(vec![large], false)).await;
    let page = backend.connect().query(&[(topic(1), at(0))], 1).await.unwrap();
    assert!(page.prefixes[0].stored_bytes() > 20 * 1024 * 1024);
}
