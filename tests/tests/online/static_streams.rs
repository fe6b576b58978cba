//! Clients that receive over static streams.

use std::collections::BTreeMap;

use highwater::{Content, ReceiverKind};
use highwater_testkit::{Link, Relay, TestBackend, TestClient, assert_clean, eventually};
use tokio::time::Instant;

use crate::process::PATIENCE;

/// Groups come while messages flow, so streams are replaced all the time, and the connection is cut now and then: every
/// message arrives once and in order, and no bidirectional stream is ever opened.
///
/// Shows: STR-051, STR-054, STR-036.
#[tokio::test(flavor = "multi_thread")]
async fn static_streams_are_replaced_under_traffic_and_lose_nothing() {
    const GROUPS: usize = 6;
    let backend = TestBackend::start().await;
    let relay = Relay::to(backend.address()).await;
    let link = Link::to(relay.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let mut bob = TestClient::new(&link.url()).await;
    bob.set_receiver(ReceiverKind::Static);
    bob.reopen().await;
    relay.forget();
    let mut stream = bob.messages().open().await.unwrap();

    let mut groups = Vec::new();
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for round in 0..GROUPS {
        groups.push(alice.create_group([bob.inbox_id()]).await.unwrap());
        for group in &groups {
            for n in 0..3 {
                let text = format!("{round}.{n}");
                group.send_text(&text).await.unwrap();
                expected.entry(group.id().to_string()).or_default().push(text);
            }
        }
        if round % 3 == 1 {
            link.cut();
            link.restore();
        }
    }

    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    let count = |texts: &BTreeMap<String, Vec<String>>| texts.values().map(Vec::len).sum::<usize>();
    while count(&found) < count(&expected) {
        let item = tokio::time::timeout_at(deadline, stream.next()).await;
        let item = item.unwrap_or_else(|_| panic!("waited in vain: {found:?}")).unwrap().unwrap();
        if let Content::Text(text) = item.message.content {
            found.entry(item.message.group_id.to_string()).or_default().push(text);
        }
    }
    assert_eq!(found, expected);

    // It comes to rest with every topic on a stream, and brings what comes then without being asked.
    eventually("every topic to be on a stream", async || stream.catch_up().await.unwrap().is_caught_up())
        .await;
    let traffic = relay.traffic();
    assert_eq!(traffic.sessions, 0);
    assert!(traffic.static_sessions > 2, "{traffic:?}");
    relay.forget();
    groups[0].send_text("at rest").await.unwrap();
    let item = tokio::time::timeout_at(deadline, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(item.message.text().unwrap(), "at rest");
    let traffic = relay.traffic();
    assert_eq!((traffic.sessions, traffic.static_sessions, traffic.queries), (0, 0, 0), "{traffic:?}");
    stream.close().await;
    assert_clean(&bob).await;
}
