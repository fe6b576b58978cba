//! Messages that disappear, in a client that is open.

use std::time::Duration;

use highwater::GroupId;
use highwater_delivery::{DeliveryError, MessageKind, NewMessage, StoredMessage, insert_published, message};
use highwater_testkit::eventually;
use highwater_tests::{Inside, text_content};
use highwater_wire::{InboxId, MessageId};

use crate::readers::{replayed, two};

fn disappearing(group: GroupId, name: &str, expires_ns: i64) -> NewMessage {
    let content = text_content(name);
    NewMessage {
        id: MessageId::derive(group, name, &content),
        group,
        kind: MessageKind::Application,
        sender_inbox: InboxId::from_bytes([1; 32]),
        sender_installation: None,
        sent_ns: 1,
        idempotency_key: name.to_owned(),
        content,
        sequence_id: None,
        expires_ns: Some(expires_ns),
    }
}

async fn store(inside: &Inside, messages: Vec<NewMessage>) {
    let stored: Result<_, DeliveryError> = inside
        .store
        .write("arrive", move |tx| Box::pin(async move { insert_published(tx, &messages).await }))
        .await;
    stored.unwrap();
}

async fn found(inside: &Inside, id: MessageId) -> StoredMessage {
    let found: Result<_, DeliveryError> =
        inside.store.read("message", move |tx| Box::pin(async move { message(tx, id).await })).await;
    found.unwrap().unwrap()
}

/// What has disappeared leaves the database of a client that is open, network or not: what was due before it was opened,
/// what comes due while it runs, more than one transaction takes.
///
/// Shows: STR-102, STR-103, PROC-025.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_disappeared_leaves_the_database() {
    let (mut backend, _alice, mut bob, group) = two().await;
    bob.sync().await.unwrap();
    bob.close().await;
    backend.stop().await;
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let now = inside.store.now_ns();
    let past: Vec<_> = (0..300).map(|n| disappearing(group.id(), &format!("past {n}"), now)).collect();
    let kept = disappearing(group.id(), "kept", now + Duration::from_secs(3600).as_nanos() as i64);
    let ids: Vec<_> = past.iter().map(|message| message.id).collect();
    store(&inside, past).await;
    store(&inside, vec![kept.clone()]).await;
    assert!(!found(&inside, ids[0]).await.content.is_empty());

    bob.open().await;
    eventually("what was past to be removed", async || {
        let last = found(&inside, ids[299]).await;
        last.deleted && last.content.is_empty()
    })
    .await;
    for id in ids {
        assert!(found(&inside, id).await.content.is_empty());
    }
    let soon = disappearing(group.id(), "soon", inside.store.now_ns() + 1_500_000_000);
    store(&inside, vec![soon.clone()]).await;
    eventually("what is due now to be removed", async || found(&inside, soon.id).await.content.is_empty())
        .await;
    assert!(inside.store.now_ns() >= soon.expires_ns.unwrap(), "it went before its time");
    assert_eq!(found(&inside, kept.id).await.content, kept.content);
    assert_eq!(replayed(&bob).await, ["kept"]);
    inside.audit().await;
}
