//! What readers read: how much at once, and how often when there is nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use highwater_delivery::{
    DeliveryCursor, DeliveryError, MAX_LOCAL_READ_BYTES, NewMessage, ReplayReader, Selection, StoredMessage,
    delete, unpublished,
};
use highwater_store::{ACTIVE_DATABASE_POLL_INTERVAL, Store};
use highwater_testkit_base::eventually;
use highwater_wire::MessageId;
use tracing::{Metadata, span};

use crate::support::*;

async fn own_after(store: &Store, after: Option<MessageId>) -> Result<Vec<StoredMessage>, DeliveryError> {
    store.read("unpublished", move |tx| Box::pin(async move { unpublished(tx, A, after).await })).await
}

async fn own(store: &Store) -> Vec<String> {
    let found = own_after(store, None).await;
    found.unwrap().into_iter().map(|message| message.idempotency_key).collect()
}

fn of_size(name: &str, bytes: usize) -> NewMessage {
    NewMessage { content: vec![1; bytes], ..text(A, name) }
}

/// Shows: STR-066, STR-101.
#[tokio::test]
async fn what_is_not_published_is_read_within_the_same_bounds() {
    let fixture = store().await;
    let store = fixture.store();
    let large = MAX_LOCAL_READ_BYTES as usize + 1;
    prepare(store, of_size("larger than all", large)).await;
    prepare(store, of_size("small", 1)).await;
    assert_eq!(own(store).await, ["larger than all"]);
    let fixture = crate::support::store().await;
    let store = fixture.store();
    for n in 0..20 {
        prepare(store, of_size(&n.to_string(), 1_000_000)).await;
    }
    assert_eq!(own(store).await.len(), 16);
    for n in 20..150 {
        prepare(store, of_size(&n.to_string(), 1)).await;
    }
    assert_eq!(own(store).await.len(), 16);
}

/// What ends a page may be published or deleted when the next one is asked for.
/// Shows: STR-066.
#[tokio::test]
async fn everything_not_published_is_read_page_by_page_whatever_becomes_of_it() {
    let fixture = store().await;
    let store = fixture.store();
    for n in 0..300 {
        prepare(store, of_size(&n.to_string(), 1)).await;
        prepare(store, text(B, &n.to_string())).await;
    }
    let (mut read, mut pages, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = own_after(store, after).await.unwrap();
        let Some(last) = page.last() else { break };
        match pages.len() {
            0 => drop(publish(store, vec![last.clone().into()]).await),
            _ => delete_content(store, last.id).await,
        }
        after = Some(last.id);
        pages.push(page.len());
        read.extend(page.into_iter().map(|message| message.idempotency_key));
    }
    assert_eq!(pages, [128, 128, 44]);
    assert_eq!(read, (0..300).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(own(store).await.len(), 128);
    let nowhere = MessageId::from_bytes([9; 32]);
    let refused = own_after(store, Some(nowhere)).await;
    assert!(matches!(refused, Err(DeliveryError::UnknownMessage(id)) if id == nowhere), "{refused:?}");
}

async fn delete_content(store: &Store, id: MessageId) {
    let deleted: Result<bool, DeliveryError> =
        store.write("delete", move |tx| Box::pin(async move { delete(tx, id).await })).await;
    assert!(deleted.unwrap());
}

/// A message above the bound of bytes is handed out by itself, by either reader, and holds nothing up.
/// Shows: STR-066, STR-101.
#[tokio::test]
async fn a_message_larger_than_a_read_may_be_is_handed_out_by_itself() {
    let fixture = store().await;
    let store = fixture.store();
    let large = of_size("large", MAX_LOCAL_READ_BYTES as usize + 1);
    publish(store, vec![text(A, "before"), large.clone(), text(A, "after")]).await;
    let mut replay =
        ReplayReader::new(store.clone(), DeliveryCursor::beginning(store.database_id()), Selection::all())
            .await
            .unwrap();
    let mut consumer = open(store, Selection::all()).await;
    for id in [text(A, "before").id, large.id, text(A, "after").id] {
        assert_eq!(consumer.next().await.unwrap().unwrap().message.id, id);
        assert_eq!(replay.next().await.unwrap().unwrap().message.id, id);
    }
    assert!(consumer.next().await.unwrap().is_none() && replay.next().await.unwrap().is_none());
    sound(store).await;
}

/// Counts the transactions that this thread's stores begin.
#[derive(Clone, Default)]
struct Transactions(Arc<AtomicUsize>);

impl Transactions {
    fn taken(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl tracing::Subscriber for Transactions {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "transaction"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        self.0.fetch_add(1, Ordering::SeqCst);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Three readers wait. The store's one look at the version of the file is all that goes on, and what others commit
/// costs each reader at most one look in an interval.
/// Shows: STR-078, STR-101.
#[tokio::test]
async fn readers_that_wait_read_nothing() {
    let fixture = store().await;
    let (store, elsewhere) = (fixture.store(), fixture.another().await);
    let transactions = Transactions::default();
    let _counted = tracing::subscriber::set_default(transactions.clone());
    let mut consumer = open(store, Selection::all()).await;
    let beginning = DeliveryCursor::beginning(store.database_id());
    let mut readers = Vec::new();
    for _ in 0..2 {
        readers.push(ReplayReader::new(store.clone(), beginning, Selection::all()).await.unwrap());
    }
    let first = tokio::spawn(async move { name(&consumer.next_wait().await.unwrap()) });
    let rest: Vec<_> = readers
        .into_iter()
        .map(|mut reader| tokio::spawn(async move { name(&reader.next_wait().await.unwrap()) }))
        .collect();
    // Opening has committed, which wakes everybody once more when the poll notices.
    eventually(Duration::from_secs(20), async || {
        tokio::time::sleep(3 * ACTIVE_DATABASE_POLL_INTERVAL).await;
        transactions.taken() == 0
    })
    .await;
    tokio::time::sleep(10 * ACTIVE_DATABASE_POLL_INTERVAL).await;
    assert_eq!(transactions.taken(), 0, "in ten intervals without any commit");

    // Something that is nobody's message, ten times within an interval or so.
    for n in 0..10 {
        put(&elsewhere, conversation(highwater_wire::GroupId::from_bytes([n; 16]))).await;
    }
    tokio::time::sleep(5 * ACTIVE_DATABASE_POLL_INTERVAL).await;
    let looks = transactions.taken() - 10;
    // It may have taken some intervals here to commit ten times.
    assert!((3..=3 * 10).contains(&looks), "{looks}");

    arrive(&elsewhere, &[(A, "a")]).await;
    assert_eq!(first.await.unwrap(), "a");
    for task in rest {
        assert_eq!(task.await.unwrap(), "a");
    }
    elsewhere.close().await;
}
