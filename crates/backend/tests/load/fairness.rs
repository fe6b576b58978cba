//! Many topics on one stream.

use std::collections::HashMap;

use highwater_wire::{
    GroupId, Topic,
    proto::backend::{SubscribeStaticRequest, subscribe_static_response::Response},
};

use crate::fixture::{at, commit_log, envelope_id, server, server_with, soon, welcome, welcome_topic};

/// One topic with a long history beside 199 short ones: the short ones are complete while most of the long
/// one is still to come.
///
/// Shows: STR-011, STR-016, STR-052.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_topics_do_not_wait_for_a_long_one() {
    const LONG: usize = 5_000;
    let (_home, server) = server_with(|config| config.limits.fetch_turn_topics = 64).await;
    let client = server.client().await;
    for first in (0..LONG).step_by(250) {
        let text = |number: usize| format!("{number:2048}").into_bytes();
        let envelopes = (first..first + 250).map(|number| welcome(0, &text(number))).collect();
        client.put(envelopes).await.expect("published");
    }
    for round in 0..5_u8 {
        client.put((1..200).map(|number| welcome(number, &[round])).collect()).await.expect("published");
    }
    // The long one first, as if it had asked first.
    let topics = (0..200).map(|number| at(welcome_topic(number), 0)).collect();
    let mut stream = client
        .subscribe
        .clone()
        .subscribe_static(SubscribeStaticRequest { topics })
        .await
        .expect("a stream")
        .into_inner();
    let (mut long, mut short) = (0, 0);
    while short < 199 * 5 {
        let frame = soon("a frame", stream.message()).await.expect("a healthy stream").expect("a frame");
        if let Some(Response::Messages(messages)) = frame.response {
            for envelope in messages.envelopes {
                let topic = envelope.meta.expect("metadata").topic.expect("a topic");
                let is_long = Topic::try_from(&topic).expect("a topic") == welcome_topic(0);
                *if is_long { &mut long } else { &mut short } += 1;
            }
        }
    }
    assert!(long < LONG / 4, "{long} of the long topic came before the short ones were complete");
    server.stop().await;
}

/// Shows: STR-050, STR-051, STR-052.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_stream_takes_ten_thousand_topics() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let topic = |number: u32| {
        let mut group = [0; 16];
        group[..4].copy_from_slice(&number.to_be_bytes());
        Topic::commit_log(GroupId::from_bytes(group))
    };
    let entry = |number| commit_log(topic(number).group_id().expect("a group"));
    let mut stored = HashMap::new();
    for first in (0..10_000).step_by(500) {
        let numbers: Vec<u32> = (first..first + 500).filter(|number| number % 3 == 0).collect();
        let metas = client.put(numbers.iter().map(|number| entry(*number)).collect()).await.expect("stored");
        stored.extend(numbers.into_iter().zip(metas.iter().map(crate::fixture::id)));
    }
    let topics = (0..10_000).map(|number| at(topic(number), 0)).collect();
    let mut stream = client
        .subscribe
        .clone()
        .subscribe_static(SubscribeStaticRequest { topics })
        .await
        .expect("a stream")
        .into_inner();
    let first = soon("Started", stream.message()).await.expect("a healthy stream").expect("a frame");
    let Some(Response::Started(started)) = first.response else { panic!("Started comes first") };
    for (number, target) in (0..10_000).zip(&started.targets) {
        assert_eq!(target.topic, Some(topic(number).to_proto()));
        assert_eq!(target.through_sequence_id, stored.get(&number).copied().unwrap_or(0));
    }
    let mut received = Vec::new();
    while received.len() < stored.len() {
        let frame = soon("a frame", stream.message()).await.expect("a healthy stream").expect("a frame");
        if let Some(Response::Messages(messages)) = frame.response {
            received.extend(messages.envelopes.iter().map(envelope_id));
        }
    }
    received.sort_unstable();
    let mut expected: Vec<u64> = stored.into_values().collect();
    expected.sort_unstable();
    assert_eq!(received, expected);
    server.stop().await;
}
