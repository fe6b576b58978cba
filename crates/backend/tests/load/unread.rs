//! Case: one unread subscriber stopped the rest.

use std::time::Duration;

use crate::{
    deaf::DeafLink,
    fixture::{Client, server_with, welcome, welcome_topic},
    follower::Follower,
    size,
};

const WHOLE: Duration = Duration::from_secs(1_800);

/// 100 subscribers of one topic. One never reads, one reads a little at a time, one vanishes; the others get
/// everything in order, and nobody is skipped in silence.
///
/// Shows: STR-010, STR-030, STR-031.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_read_costs_the_others_nothing() {
    let messages = size(600, 10_000);
    let (_home, server) = server_with(|config| {
        config.timing.stall_wait = Duration::from_millis(1_500);
        config.timing.keepalive = Duration::from_millis(500);
        config.timing.pong_wait = Duration::from_millis(1_500);
    })
    .await;
    let link = DeafLink::to(&server.url).await;
    let connect = async |url: &str| {
        let mut follower = Follower::of(1..2);
        follower.connect(&Client::connect(url).await).await.expect("a stream");
        follower
    };
    let mut unread = connect(&server.url).await;
    let mut vanishing = connect(&link.url).await;
    let slow = connect(&server.url).await;
    let url = server.url.clone();
    let slow = tokio::spawn(async move { read_slowly(slow, url, messages).await });
    let readers: Vec<_> = {
        let mut followers = Vec::new();
        for _ in 0..97 {
            followers.push(connect(&server.url).await);
        }
        followers.into_iter().map(|follower| tokio::spawn(read_all(follower, messages))).collect()
    };
    let publisher = server.client().await;
    let mut expected = Vec::new();
    for number in 0..messages {
        let mut text = format!("{number} ").into_bytes();
        text.resize(4_096, 0);
        expected.push(publisher.put_one(welcome(1, &text)).await);
        if number == messages / 4 {
            link.go_deaf();
        }
    }
    for reader in readers {
        let follower = tokio::time::timeout(WHOLE, reader).await.expect("in time").expect("complete");
        assert_eq!(follower.received()[&welcome_topic(1)], expected);
    }
    // Whoever fell behind goes on from where it stood, on another stream if its own was ended.
    vanishing.disconnect();
    let again = async || Client::connect(&server.url).await;
    for follower in [&mut unread, &mut vanishing] {
        tokio::time::timeout(WHOLE, follower.receive(again, messages)).await.expect("in time");
        assert_eq!(follower.received()[&welcome_topic(1)], expected);
    }
    let slow = tokio::time::timeout(WHOLE, slow).await.expect("in time").expect("complete");
    assert_eq!(slow.received()[&welcome_topic(1)], expected);
    server.stop().await;
}

/// Without ever opening another stream.
async fn read_all(mut follower: Follower, messages: usize) -> Follower {
    while follower.count() < messages {
        follower.step().await.expect("a healthy stream");
    }
    follower
}

async fn read_slowly(mut follower: Follower, url: String, messages: usize) -> Follower {
    while follower.count() < messages {
        if follower.step().await.is_err() {
            follower.connect(&Client::connect(&url).await).await.expect("a stream");
        }
        tokio::time::sleep(Duration::from_millis(size(20, 1_000) as u64)).await;
    }
    follower
}
