//! Starts, restarts and ends.

use std::time::Duration;

use highwater_backend::{ConfigError, Server, ServerConfig, StartError, StoreError};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::fixture::*;

#[tokio::test]
async fn a_restart_keeps_what_was_stored_and_never_gives_an_id_twice() {
    let home = Home::new();
    let mut ids = Vec::new();
    for round in 0..3 {
        let server = Running::start(&home, |_| {}).await;
        let client = server.client().await;
        assert_eq!(client.all(welcome_topic(1)).await, ids);
        for i in 0..5 {
            ids.push(client.put_one(welcome(1, &[round, i])).await);
        }
        // A refused publish between them.
        let refused = client.put(vec![welcome(1, b"x"), group_message(vec![])]).await;
        assert!(refused.is_err());
        server.stop().await;
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_dropped_in_the_middle_of_publishing_keeps_what_it_confirmed() {
    let home = Home::new();
    let mut confirmed = Vec::new();
    for round in 0..5 {
        let server = Running::start(&home, |_| {}).await;
        let clients = futures::future::join_all((0..4).map(|_| server.client())).await;
        let publishing: Vec<_> = (0_u8..)
            .zip(clients)
            .map(|(number, client)| {
                tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for i in 0_u16.. {
                        let data = [&[round, number][..], &i.to_be_bytes()].concat();
                        // Two at a time: both are there afterwards, or neither.
                        let pair = vec![welcome(1, &data), welcome(2, &data)];
                        match client.put(pair).await {
                            Ok(metas) => ids.extend(metas.iter().map(id)),
                            Err(_) => return ids,
                        }
                    }
                    ids
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50 + 20 * u64::from(round))).await;
        server.kill().await;
        for joined in publishing {
            confirmed.extend(soon("the clients' failure", joined).await.expect("no panic"));
        }
    }
    let server = Running::start(&home, |_| {}).await;
    let client = server.client().await;
    let one = client.all(welcome_topic(1)).await;
    let two = client.all(welcome_topic(2)).await;
    assert_eq!(one.len(), two.len(), "no half of a publish");
    let stored: std::collections::BTreeSet<u64> = one.into_iter().chain(two).collect();
    assert!(confirmed.iter().all(|id| stored.contains(id)));
    let unique: std::collections::BTreeSet<u64> = confirmed.iter().copied().collect();
    assert_eq!(unique.len(), confirmed.len(), "no id twice");
    let next = client.put_one(welcome(1, b"after")).await;
    assert!(Some(&next) > stored.last());
    server.stop().await;
}

#[tokio::test]
async fn health_turns_to_not_serving_when_the_server_shuts_down() {
    let (_home, mut server) = server_with(|config| config.timing.drain = Duration::from_millis(500)).await;
    let client = server.client().await;
    let mut health = HealthClient::new(client.channel.clone());
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(request).await.expect("watching").into_inner();
    let mut status = async || {
        let answer = soon("a status", watch.message()).await.expect("a healthy stream");
        answer.expect("goes on").status()
    };
    assert_eq!(status().await, ServingStatus::Serving);
    server.ask_to_stop();
    assert_eq!(status().await, ServingStatus::NotServing);
    // The watcher holds its connection open; the server ends all the same.
    server.stop().await;
}

#[tokio::test]
async fn a_publish_in_flight_finishes_during_a_shutdown() {
    let (_home, mut server) = server().await;
    let client = server.client().await;
    let publishing: Vec<_> = (0..20_u8)
        .map(|i| {
            let client = client.clone();
            tokio::spawn(async move { client.put(vec![welcome(1, &[i])]).await })
        })
        .collect();
    tokio::task::yield_now().await;
    server.ask_to_stop();
    for joined in publishing {
        // Taken up before the end, or never: nothing in between.
        if let Err(status) = soon("an answer", joined).await.expect("no panic") {
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        }
    }
    server.stop().await;
}

/// Shows: STR-031.
#[tokio::test]
async fn a_configuration_in_which_a_permitted_envelope_cannot_be_delivered_does_not_start() {
    let home = Home::new();
    let start = async |change: fn(&mut ServerConfig)| {
        let mut config = ServerConfig::new(home.database());
        change(&mut config);
        match Server::bind(config).await.expect_err("refused") {
            StartError::Config(error) => error,
            other => panic!("not {other:?}"),
        }
    };
    let too_small: [fn(&mut ServerConfig); 5] = [
        |config| config.limits.delivery_frame_target_bytes = config.limits.max_envelope_bytes,
        |config| config.limits.max_response_bytes = config.limits.max_envelope_bytes,
        |config| config.limits.fetched_unsent_bytes = config.limits.max_envelope_bytes,
        |config| config.limits.outbound_queue_bytes = config.limits.max_envelope_bytes,
        // Enough for every envelope, and not for the acknowledgement of an update that is allowed.
        |config| config.limits.outbound_queue_bytes = 4 * 1024 * 1024,
    ];
    for change in too_small {
        let error = start(change).await;
        assert!(matches!(error, ConfigError::TooSmall { .. }), "{error:?}");
    }
    let error = start(|config| config.timing.pong_wait = config.timing.keepalive).await;
    assert!(matches!(error, ConfigError::Order { .. }), "{error:?}");
    assert!(!home.path().exists(), "nothing was made");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named_as_such_and_left_alone() {
    let home = Home::new();
    let content = b"this is a text and not a database at all, whatever it is called".repeat(50);
    std::fs::write(home.path(), &content).expect("written");
    let error = Server::bind(ServerConfig::new(home.database())).await.expect_err("refused");
    assert!(matches!(error, StartError::Store(StoreError::Corrupt(_))), "{error:?}");
    assert!(!error.is_retryable());
    assert_eq!(std::fs::read(home.path()).expect("read"), content);
}
