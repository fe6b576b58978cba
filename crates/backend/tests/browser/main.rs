//! A real browser as a client: a page in headless Chromium with a stock gRPC-Web client, generated from this
//! project's schema. `cargo xtask prepare` installs what it needs.

mod chromium;
#[path = "../server/fixture.rs"]
#[allow(dead_code, reason = "the server suite uses the rest")]
mod fixture;

use std::time::Duration;

use highwater_wire::{Topic, proto::backend::ClientEnvelope};
use prost::Message as _;
use serde_json::{Value, json};

use chromium::Page;
use fixture::{server_with, soon, welcome, welcome_topic};

const ENGINE: fixture::Engine = fixture::Engine::Sqlite;

const INVALID_ARGUMENT: u64 = 3;
const UNAVAILABLE: u64 = 14;
const MALFORMED_PAYLOAD: u64 = 1;

fn encoded(envelopes: &[ClientEnvelope]) -> Value {
    envelopes.iter().map(|envelope| hex::encode(envelope.encode_to_vec())).collect()
}

fn hexes(topics: &[Topic]) -> Value {
    topics.iter().map(Topic::to_hex).collect()
}

/// Shows: STR-050, STR-051, STR-052, STR-055.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_subscribes_publishes_and_sees_errors() {
    let (_home, running) = server_with(|config| config.timing.keepalive = Duration::from_millis(200)).await;
    let client = running.client().await;
    let history = [client.put_one(welcome(1, b"one")).await, client.put_one(welcome(1, b"two")).await];
    let mut page = Page::open(&running.url).await;
    let topics = hexes(&[welcome_topic(1), welcome_topic(2)]);

    page.tell(json!(["subscribe", "a", topics])).await;
    let started = page.hear("a", "frame").await;
    assert_eq!(started, json!({"name": "a", "frame": "started", "targets": [history[1], 0]}));
    assert_eq!(page.ids("a", 2).await, history);

    // One at a time: each arrives before the next is published.
    for number in 0..3_u8 {
        let id = client.put_one(welcome(1 + number % 2, &[number])).await;
        assert_eq!(page.ids("a", 1).await, [id]);
    }
    page.frame("a", "keepalive").await;

    // The page's own publish comes back on its stream.
    page.tell(json!(["publish", "p", encoded(&[welcome(2, b"from the page")])])).await;
    let published = page.hear("p", "ids").await;
    assert_eq!(page.ids("a", 1).await, [published["ids"][0].as_u64().expect("an id")]);
    page.tell(json!(["query", "q", hexes(&[welcome_topic(2)])])).await;
    assert_eq!(page.hear("q", "ids").await["ids"].as_array().expect("ids").len(), 2);

    page.tell(json!(["publish", "bad", encoded(&[welcome(2, b"good"), ClientEnvelope::default()])])).await;
    let failed = &page.hear("bad", "failed").await["failed"];
    assert_eq!(*failed, json!({"code": INVALID_ARGUMENT, "index": 1, "reason": MALFORMED_PAYLOAD}));
    page.tell(json!(["subscribe", "none", []])).await;
    assert_eq!(page.hear("none", "ended").await["ended"], INVALID_ARGUMENT);

    running.stop().await;
    assert_eq!(page.hear("a", "ended").await["ended"], UNAVAILABLE);
    page.close().await;
}

/// Shows: STR-035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cancels_or_leaves_is_gone_from_the_server() {
    let (_home, running) = server_with(|_| {}).await;
    let mut page = Page::open(&running.url).await;
    let gone = async || {
        soon("no stream", async {
            while running.activity.streams() > 0 || running.activity.registrations() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    };
    for name in ["a", "b"] {
        page.tell(json!(["subscribe", name, hexes(&[welcome_topic(1)])])).await;
        page.frame(name, "started").await;
        page.tell(json!(["cancel", name])).await;
        page.hear(name, "ended").await;
        gone().await;
    }
    // Cancelled before anything was received.
    page.tell(json!(["subscribe", "c", hexes(&[welcome_topic(1)])])).await;
    page.tell(json!(["cancel", "c"])).await;
    page.hear("c", "ended").await;
    gone().await;
    page.tell(json!(["subscribe", "d", hexes(&[welcome_topic(1), welcome_topic(2)])])).await;
    page.frame("d", "started").await;
    page.leave().await;
    gone().await;
    page.close().await;
    running.stop().await;
}
