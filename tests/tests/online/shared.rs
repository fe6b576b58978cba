//! What one process finds of what another did to their database.

use std::sync::Arc;
use std::time::Duration;

use highwater::{Client, Content, Database, Topic};
use highwater_receipt::AdmitError;
use highwater_testkit::{Link, Relay, TestBackend, TestClient, eventually};
use highwater_tests::{Inside, Outsider};
use highwater_wire::OrderedPrefix;
use tokio::time::Instant;

use crate::process::PATIENCE;

/// 100 ms between two looks at the database, what follows a look, and a machine with other things to do.
const FOUND_WITHIN: Duration = Duration::from_millis(600);

/// A reader that has no network at all waits for what another client of the database stores.
///
/// Shows: STR-078, STR-101, PROC-026.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_finds_another_processs_message_within_the_poll_interval() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    let reader = Client::builder().database(Database::file(bob.path(), bob.key())).open().await.unwrap();
    let mut stream = reader.messages().open().await.unwrap();
    let mut delays = Vec::new();
    for n in 0..7 {
        group.send_text(&n.to_string()).await.unwrap();
        // The reader waits before anything is there to be found.
        let found = async {
            loop {
                let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
                if let Content::Text(text) = item.message.content {
                    assert_eq!(text, n.to_string());
                    return Instant::now();
                }
            }
        };
        let stored = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            bob.sync().await.unwrap();
            Instant::now()
        };
        let (found, stored) = tokio::join!(found, stored);
        delays.push(found.saturating_duration_since(stored));
    }
    delays.sort();
    assert!(delays[delays.len() / 2] < FOUND_WITHIN, "{delays:?}");
    stream.close().await;
    reader.close().await;
}

/// Shows: STR-078, STR-085.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_registers_a_group_that_another_process_made() {
    let backend = TestBackend::start().await;
    let relay = Relay::to(backend.address()).await;
    let alice = TestClient::new(&relay.url()).await;
    let stream = alice.messages().all_groups().open().await.unwrap();
    eventually("the stream to be open", async || stream.catch_up().await.unwrap().is_caught_up()).await;
    let elsewhere = alice.open_another().await;
    let mut delays = Vec::new();
    for _ in 0..5 {
        let group = elsewhere.create_group([]).await.unwrap();
        let topic = Topic::group(group.id());
        let made = Instant::now();
        while !relay.traffic().registered.iter().any(|(of, _)| *of == topic) {
            assert!(made.elapsed() < PATIENCE, "never registered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        delays.push(made.elapsed());
    }
    delays.sort();
    assert!(delays[delays.len() / 2] < FOUND_WITHIN, "{delays:?}");
    elsewhere.close().await;
    stream.close().await;
}

async fn admit(inside: &Inside, prefix: OrderedPrefix) -> Result<(), AdmitError> {
    let prefix = Arc::new(prefix);
    let admitted = inside.store.write("admit", move |tx| {
        Box::pin(async move { highwater_receipt::admit(tx, &prefix).await.map(drop) })
    });
    admitted.await
}

/// Another process received and died before it processed. Whoever runs finds the work, and whoever waits is told, without
/// anything new from the network.
///
/// Shows: STR-036, STR-078, PROC-008.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_client_processes_what_another_process_received() {
    let mut backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    group.set_name("a new epoch").await.unwrap();
    group.send_text("in it").await.unwrap();
    let outsider = Outsider::connect(&backend.url());
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let topic = Topic::group(group.id());
    let before = inside.position(topic).await;
    let prefix = outsider.prefix(topic, before.received).await;
    backend.stop().await;

    admit(&inside, prefix).await.unwrap();
    let admitted = Instant::now();
    eventually("the work to be found", async || {
        let at = inside.position(topic).await;
        at.pending.is_empty() && at.processed == Some(at.received)
    })
    .await;
    let took = admitted.elapsed();
    assert!(took < 2 * FOUND_WITHIN, "{took:?}");
    assert_eq!(bob.group(group.id()).await.unwrap().name(), Some("a new epoch"));
    assert_eq!(inside.messages().await.last().unwrap().text.as_deref(), Some("in it"));
    inside.audit().await;
}

/// Case A1: a late frame of an older session, which began further on, is refused. F goes over the commit in between only
/// with what a read from F brings, and P applies it first.
///
/// Shows: STR-060, STR-062, STR-072, PROC-001.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_frame_of_an_older_session_moves_nothing() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let mut bob = TestClient::new(&link.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    let topic = Topic::group(group.id());
    for n in 1..=4 {
        group.send_text(&n.to_string()).await.unwrap();
    }
    bob.sync().await.unwrap();
    bob.close().await;
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let known = inside.position(topic).await;

    // 5 is a commit, and 6 and 7 are written after it. The old session was opened after 6.
    group.set_name("five").await.unwrap();
    group.send_text("6").await.unwrap();
    let six = Outsider::connect(&backend.url()).stored(group.id()).await.last().unwrap().0;
    group.send_text("7").await.unwrap();
    let late = Outsider::connect(&backend.url()).prefix(topic, six).await;
    link.go_down();
    bob.open().await;
    let mut stream = bob.messages().open().await.unwrap();
    let refused = admit(&inside, late.clone()).await.unwrap_err();
    assert!(matches!(refused, AdmitError::Gap { received, .. } if received.cursor().get() == known.received));
    assert_eq!(inside.position(topic).await, known);
    link.restore();

    let mut texts = Vec::new();
    while texts.len() < 6 {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        texts.extend(item.message.text().ok().map(str::to_owned));
    }
    assert_eq!(texts, ["1", "2", "3", "4", "6", "7"]);
    // Late again, and by now only an overlap.
    let settled = inside.position(topic).await;
    admit(&inside, late).await.unwrap();
    assert_eq!(inside.position(topic).await, settled);
    assert_eq!((settled.processed, settled.pending.len()), (Some(settled.received), 0));
    let theirs = Inside::open(&alice.path(), &alice.key()).await;
    assert_eq!(inside.agreement(group.id()).await, theirs.agreement(group.id()).await);
    assert_eq!(inside.rejections(group.id()).await, []);
    stream.close().await;
}
