//! What the second listener counts.

use std::time::{Duration, Instant};

use highwater_wire::proto::backend::{SubscribeStaticRequest, subscribe_response::Response};

use crate::{fixture::*, subscribe::Stream};

/// One sample's value; 0 for one that was never counted.
pub(crate) fn sample(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map_or(0.0, |value| value.parse().expect("a number"))
}

/// Scrapes until it says so.
async fn until(server: &Running, what: &str, holds: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let (_, text) = server.get("/metrics").await;
        if holds(&text) {
            return text;
        }
        assert!(Instant::now() < deadline, "not in time: {what}\n{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_scrape_counts_what_streams_publishes_and_reads_did() {
    let (_home, server) = server_with(with_metrics).await;
    let client = server.client().await;
    let mut native = Stream::open(&client).await;
    native.update(1, &[(welcome_topic(1), 0), (welcome_topic(2), 0)], &[]).await;
    native.applied(1).await;
    let request = SubscribeStaticRequest { topics: vec![at(welcome_topic(3), 0)] };
    let mut fixed = client.subscribe.clone().subscribe_static(request).await.expect("a stream").into_inner();
    soon("Started", fixed.message()).await.expect("healthy").expect("a frame");

    let mut received = 0;
    for i in 0..3 {
        client.put_one(welcome(1, &[i])).await;
        while received <= usize::from(i) {
            if let Response::Messages(messages) = native.next().await {
                received += messages.envelopes.len();
            }
        }
    }
    client.put(vec![Default::default()]).await.expect_err("no payload");
    for _ in 0..2 {
        client.page(&[(welcome_topic(1), 0)], 0).await.expect("a page");
    }

    let (head, text) = server.get("/metrics").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
    assert!(text.ends_with("# EOF\n"));
    for (name, value) in [
        ("highwater_sessions{kind=\"native\"}", 1.0),
        ("highwater_sessions{kind=\"static\"}", 1.0),
        ("highwater_registrations", 3.0),
        ("highwater_frames_sent_total{kind=\"started\"}", 2.0),
        ("highwater_frames_sent_total{kind=\"applied\"}", 1.0),
        ("highwater_envelopes_delivered_total", 3.0),
        ("highwater_delivery_lag_seconds_count", 3.0),
        ("highwater_mailbox_overflows_total", 0.0),
        ("highwater_publishes_total{outcome=\"stored\"}", 3.0),
        ("highwater_publishes_total{outcome=\"invalid_argument\"}", 1.0),
        ("highwater_publish_duration_seconds_count", 4.0),
        ("highwater_envelopes_acknowledged_total", 3.0),
        ("highwater_tailer_arrivals_total", 3.0),
        ("highwater_tailer_errors_total", 0.0),
        ("highwater_queries_total{method=\"query\",outcome=\"ok\"}", 2.0),
        ("highwater_query_duration_seconds_count", 2.0),
        ("highwater_store_connections_max{pool=\"readers\"}", 4.0),
        ("highwater_ready", 1.0),
    ] {
        assert!((sample(&text, name) - value).abs() < 0.5, "{name} is not {value}:\n{text}");
    }
    assert!(sample(&text, "highwater_tailer_polls_total") >= 1.0);
    assert!(sample(&text, "highwater_delivery_lag_seconds_sum") < 60.0);

    drop((native, fixed, client));
    let text = until(&server, "the streams' end", |text| {
        sample(text, "highwater_registrations") < 0.5
            && sample(text, "highwater_sessions{kind=\"native\"}") < 0.5
            && sample(text, "highwater_sessions{kind=\"static\"}") < 0.5
    })
    .await;
    let ended = text.lines().filter(|line| line.starts_with("highwater_sessions_ended_total{"));
    assert_eq!(ended.count(), 2, "{text}");
    server.stop().await;
}

#[tokio::test]
async fn two_servers_in_one_process_count_apart() {
    let (_one_home, one) = server_with(with_metrics).await;
    let (_two_home, two) = server_with(with_metrics).await;
    one.client().await.put_one(welcome(1, b"x")).await;
    let stored = "highwater_publishes_total{outcome=\"stored\"}";
    assert!(sample(&one.get("/metrics").await.1, stored) > 0.5);
    assert!(sample(&two.get("/metrics").await.1, stored) < 0.5);
    one.stop().await;
    two.stop().await;
}
