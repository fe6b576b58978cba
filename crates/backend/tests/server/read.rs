//! Query, QueryNewest, lookups and health.

use highwater_wire::{
    InboxId, Topic,
    proto::backend::{
        QueryNewestRequest, QueryNewestResponse, QueryRequest, Topic as WireTopic, TopicQuery,
        VerifySmartContractWalletSignaturesRequest,
        verify_smart_contract_wallet_signatures_request::Signature,
    },
};
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::fixture::*;

async fn newest(client: &mut Client, topics: &[Topic], full: bool) -> Result<QueryNewestResponse, Status> {
    let topics = topics.iter().map(Topic::to_proto).collect();
    let request = QueryNewestRequest { topics, include_full_envelope: full };
    Ok(client.query.query_newest(request).await?.into_inner())
}

#[tokio::test]
async fn pages_ascend_without_holes_and_say_truly_whether_there_is_more() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut expected = vec![Vec::new(); 3];
    for round in 0..20_u8 {
        for number in 0..3_u8 {
            let id = client.put_one(welcome(number, &[round])).await;
            expected[usize::from(number)].push(id);
        }
    }
    for limit in [1, 7, 20, 59, 60, 61] {
        let mut got = vec![Vec::new(); 3];
        loop {
            let queries: Vec<(Topic, u64)> = (0..3_u8)
                .map(|n| (welcome_topic(n), got[usize::from(n)].last().copied().unwrap_or(0)))
                .collect();
            let page = client.page(&queries, limit).await.expect("a page");
            assert!(page.envelopes.len() <= limit as usize);
            let done: usize = got.iter().map(Vec::len).sum();
            assert!(!page.envelopes.is_empty() || done == 60, "no empty page before the end");
            for envelope in &page.envelopes {
                let topic = envelope.meta.as_ref().and_then(|meta| meta.topic.clone());
                let n = (0..3_u8).find(|n| topic == Some(welcome_topic(*n).to_proto()));
                got[usize::from(n.expect("an asked topic"))].push(envelope_id(envelope));
            }
            let done: usize = got.iter().map(Vec::len).sum();
            assert_eq!(has_more(&page), done < 60, "limit {limit}, {done} read");
            if !has_more(&page) {
                break;
            }
        }
        assert_eq!(got, expected, "limit {limit}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_topic_reads_from_its_lowest_cursor() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let first = client.put_one(welcome(1, b"a")).await;
    let second = client.put_one(welcome(1, b"b")).await;
    let topic = welcome_topic(1);
    let page = client.page(&[(topic, second), (topic, first)], 0).await.expect("a page");
    assert_eq!(page.envelopes.iter().map(envelope_id).collect::<Vec<_>>(), [second]);
    server.stop().await;
}

#[tokio::test]
async fn pages_end_before_they_outgrow_a_response() {
    let (_home, server) = server_with(|config| {
        config.limits.max_envelope_bytes = 10_000;
        config.limits.max_response_bytes = 50_000;
        few_topics(config);
        config.limits.delivery_frame_target_bytes = 40_000;
    })
    .await;
    let mut client = server.client().await;
    for i in 0..12 {
        client.put_one(welcome(1, &[i; 9_000])).await;
    }
    let page = client.page(&[(welcome_topic(1), 0)], 0).await.expect("a page");
    assert!((4..=5).contains(&page.envelopes.len()) && has_more(&page));
    assert_eq!(client.all(welcome_topic(1)).await.len(), 12);
    // QueryNewest can't be cut: a topic left out would mean that it is empty.
    for number in 2..10 {
        client.put_one(welcome(number, &[number; 9_000])).await;
    }
    let topics: Vec<Topic> = (2..10).map(welcome_topic).collect();
    let status = newest(&mut client, &topics, true).await.expect_err("too large");
    assert_eq!(status.code(), Code::OutOfRange);
    server.stop().await;
}

#[tokio::test]
async fn the_newest_envelope_comes_per_topic_that_has_one() {
    let (_home, server) = server().await;
    let mut client = server.client().await;
    client.put_one(welcome(1, b"old")).await;
    let newest_id = client.put_one(welcome(1, b"new")).await;
    let topics = [welcome_topic(1), welcome_topic(2), welcome_topic(1)];
    for full in [false, true] {
        let response = newest(&mut client, &topics, full).await.expect("answered");
        assert_eq!(response.results.len(), 1);
        let result = &response.results[0];
        assert_eq!(result.topic, Some(welcome_topic(1).to_proto()));
        assert_eq!(id(result.meta.as_ref().expect("metadata")), newest_id);
        assert_eq!(result.envelope, full.then(|| welcome(1, b"new")));
    }
    server.stop().await;
}

#[tokio::test]
async fn bad_topics_cursors_and_counts_are_invalid_arguments() {
    let (_home, server) = server_with(|config| {
        config.limits.max_query_topics = 2;
        config.limits.max_newest_metadata_topics = 2;
        config.limits.max_newest_full_topics = 1;
        config.limits.max_scw_signatures = 1;
    })
    .await;
    let mut client = server.client().await;
    let welcome = welcome_topic(1).to_bytes();
    let mut unknown = welcome.clone();
    unknown[0] = 9;
    let key_package = Topic::key_package(installation(1)).to_bytes();
    for topic in [vec![], welcome[..32].to_vec(), unknown, key_package] {
        let query = TopicQuery { topic: Some(WireTopic { topic }), cursor: None };
        let request = QueryRequest { queries: vec![query], limit: 0 };
        let status = client.query.query(request).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    let status = client.page(&[(welcome_topic(1), u64::MAX)], 0).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    let three: Vec<Topic> = (1..4).map(welcome_topic).collect();
    let queries: Vec<(Topic, u64)> = three.iter().map(|topic| (*topic, 0)).collect();
    let refusals = [
        client.page(&queries, 0).await.map(drop),
        newest(&mut client, &three, false).await.map(drop),
        newest(&mut client, &three[..2], true).await.map(drop),
    ];
    for refusal in refusals {
        assert_eq!(refusal.expect_err("refused").code(), Code::InvalidArgument);
    }
    let mut verify = async |count| {
        let signatures = vec![Signature::default(); count];
        let request = VerifySmartContractWalletSignaturesRequest { signatures };
        let answer = client.identity.verify_smart_contract_wallet_signatures(request).await;
        answer.expect_err("no verdict").code()
    };
    assert_eq!(verify(2).await, Code::InvalidArgument);
    assert_eq!(verify(1).await, Code::Unavailable);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_inbox_has_an_empty_log() {
    let (_home, server) = server().await;
    let client = server.client().await;
    assert!(client.all(Topic::identity(InboxId::from_bytes([1; 32]))).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn health_says_serving() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut health = HealthClient::new(client.channel.clone());
    for service in ["", "xmtp.backend.v1.PublishService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.expect("answered").into_inner().status();
        assert_eq!(status, ServingStatus::Serving);
    }
    server.stop().await;
}

/// Shows: STR-031.
#[tokio::test]
async fn an_answer_over_the_ceiling_is_out_of_range() {
    let (_home, server) = server_with(|config| {
        config.limits.max_envelope_bytes = 64 * 1024;
        config.limits.delivery_frame_target_bytes = 66 * 1024;
        config.limits.max_response_bytes = 100 * 1024;
        few_topics(config);
    })
    .await;
    let client = server.client().await;
    for number in 0..2 {
        client.put_one(welcome(number, &[1; 60 * 1024])).await;
    }
    let newest = async |topics: &[u8]| {
        let topics = topics.iter().map(|number| welcome_topic(*number).to_proto()).collect();
        let request = QueryNewestRequest { topics, include_full_envelope: true };
        client.query.clone().query_newest(request).await
    };
    assert_eq!(newest(&[0]).await.expect("fits").into_inner().results.len(), 1);
    let status = newest(&[0, 1]).await.expect_err("too long");
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    // A page ends early instead.
    let page = client.page(&[(welcome_topic(0), 0), (welcome_topic(1), 0)], 0).await.expect("a page");
    assert_eq!((page.envelopes.len(), has_more(&page)), (1, true));
    server.stop().await;
}
