//! Health that tells the truth.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use highwater_backend::ServerConfig;
use highwater_wire::proto::backend::QueryNewestRequest;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::people::Person;
use crate::{fault::FaultyStore, fixture::*};

const PUBLISH: &str = "xmtp.backend.v1.PublishService";
const QUERY: &str = "xmtp.backend.v1.QueryService";
const SUBSCRIBE: &str = "xmtp.backend.v1.SubscribeService";
const IDENTITY: &str = "xmtp.backend.v1.IdentityService";

async fn serves(channel: &Channel, service: &str) -> bool {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = soon("health", HealthClient::new(channel.clone()).check(request)).await.expect("an answer");
    answer.into_inner().status() == ServingStatus::Serving
}

/// Waits until exactly these services of all are serving.
async fn until_serving(channel: &Channel, expected: &[&str]) {
    let deadline = Instant::now() + SOON;
    loop {
        let mut serving = Vec::new();
        for service in ["", PUBLISH, QUERY, SUBSCRIBE, IDENTITY] {
            if serves(channel, service).await {
                serving.push(service);
            }
        }
        if serving == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{serving:?} serve, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const ALL: [&str; 5] = ["", PUBLISH, QUERY, SUBSCRIBE, IDENTITY];

/// Shows: STR-035.
#[tokio::test]
async fn a_store_that_cannot_be_followed_stops_what_rests_on_it_until_it_can() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, with_metrics).await;
    let channel = server.client().await.channel;
    until_serving(&channel, &ALL).await;
    assert!(server.get("/readyz").await.0.starts_with("HTTP/1.1 200"));

    faults.tail.store(true, Ordering::SeqCst);
    until_serving(&channel, &[PUBLISH, IDENTITY]).await;
    let (head, body) = server.get("/readyz").await;
    assert!(head.starts_with("HTTP/1.1 503") && body.contains("followed"), "{head} {body}");
    assert!(server.get("/healthz").await.0.starts_with("HTTP/1.1 200"), "the process is well");
    let text = server.get("/metrics").await.1;
    assert!(crate::metrics::sample(&text, "highwater_tailer_errors_total") >= 1.0);
    assert!(crate::metrics::sample(&text, "highwater_ready") < 0.5);

    faults.tail.store(false, Ordering::SeqCst);
    until_serving(&channel, &ALL).await;
    assert!(server.get("/readyz").await.0.starts_with("HTTP/1.1 200"));
    server.stop().await;
}

#[tokio::test]
async fn a_failed_call_makes_the_server_look_and_say_so_until_the_store_is_back() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, with_metrics).await;
    let client = server.client().await;
    until_serving(&client.channel, &ALL).await;

    faults.reads.store(true, Ordering::SeqCst);
    let person = Person::new(1);
    client.put(vec![identity(person.registration.clone())]).await.expect_err("the store fails");
    until_serving(&client.channel, &[SUBSCRIBE]).await;
    assert!(server.get("/readyz").await.1.contains("store"));

    // Nobody calls meanwhile: the server finds out by itself.
    faults.reads.store(false, Ordering::SeqCst);
    until_serving(&client.channel, &ALL).await;
    client.put(vec![identity(person.registration)]).await.expect("stored");
    server.stop().await;
}

#[tokio::test]
async fn readiness_ends_with_the_drain_while_a_call_is_still_under_way() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let change = |config: &mut ServerConfig| {
        with_metrics(config);
        config.timing.drain = SOON;
    };
    let mut server = Running::start_over(store, &home, change).await;
    let client = server.client().await;
    faults.newest_wait.send_replace(true);
    let request = QueryNewestRequest { topics: vec![welcome_topic(1).to_proto()], ..Default::default() };
    let call = tokio::spawn(async move { client.query.clone().query_newest(request).await });
    let deadline = Instant::now() + SOON;
    while faults.newest_wait.receiver_count() == 0 {
        assert!(Instant::now() < deadline, "the call never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.ask_to_stop();
    loop {
        let (head, body) = server.get("/readyz").await;
        if head.starts_with("HTTP/1.1 503") {
            assert_eq!(body, "shutting down\n");
            break;
        }
        assert!(Instant::now() < deadline, "still ready");
    }
    assert!(server.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
    faults.newest_wait.send_replace(false);
    soon("the call", call).await.expect("no panic").expect("a call under way is answered");
    server.stop().await;
}
