//! The newest envelope of each topic.

use crate::scripted::{Script, Scripted, answer, client_envelope, meta, numbered, topic};
use highwater_transport::TransportError;
use highwater_wire::Topic;
use highwater_wire::limits::{MAX_NEWEST_FULL_TOPICS, MAX_NEWEST_METADATA_TOPICS};
use highwater_wire::proto::backend::{QueryNewestRequest, QueryNewestResponse, query_newest_response};
use std::sync::{Arc, Mutex};
use tonic::Status;

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
        query_newest: answer(move |request: QueryNewestRequest| {
            sizes.lock().unwrap().push(request.topics.len());
            if request.topics.len() > max {
                return Err(Status::out_of_range("too long"));
            }
            let full = request.include_full_envelope;
            let topics = request.topics.iter().map(|topic| Topic::try_from(topic).unwrap());
            let mut results: Vec<_> = topics
                .filter(|topic| topic.identifier()[0] != 1)
                .map(|topic| newest(5, topic, full))
                .collect();
            results.reverse();
            Ok(QueryNewestResponse { results })
        }),
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
        let error = backend.connect().query_newest_full(&[topic(1)]).await.unwrap_err();
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
    }
}
