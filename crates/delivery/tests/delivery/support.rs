//! Messages and conversations, and short ways to run one transaction.

use highwater_delivery::{
    Consent, ConsumerError, Conversation, ConversationKind, ConversationState, DefaultConsumer,
    DeliveryError, Inserted, Item, MIGRATIONS, MessageKind, NewMessage, Selection, StoredMessage, audit,
    delivered, insert_published, insert_unpublished, message, put_conversation, set_consent,
};
use highwater_store::Store;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{GroupId, InboxId, MessageId, SequenceId};

/// How many random runs a model is held against, one after another in one database.
pub(crate) fn runs() -> u32 {
    if std::env::var_os("HIGHWATER_SOAK").is_some() { 20_000 } else { 3_000 }
}

/// A store with groups A, B and C, and DM D.
pub(crate) async fn store() -> StoreFixture {
    let fixture = StoreFixture::new(vec![MIGRATIONS]).await;
    for group in [A, B, C] {
        put(fixture.store(), conversation(group)).await;
    }
    let dm = ConversationKind::Dm { peer: InboxId::from_bytes([9; 32]) };
    put(fixture.store(), Conversation { kind: dm, ..conversation(D) }).await;
    fixture
}

pub(crate) const A: GroupId = GroupId::from_bytes([0xa; 16]);
pub(crate) const B: GroupId = GroupId::from_bytes([0xb; 16]);
pub(crate) const C: GroupId = GroupId::from_bytes([0xc; 16]);
pub(crate) const D: GroupId = GroupId::from_bytes([0xd; 16]);

pub(crate) fn conversation(group: GroupId) -> Conversation {
    Conversation {
        group,
        kind: ConversationKind::Group,
        state: ConversationState::Active,
        consent: Consent::Allowed,
        name: None,
        created_ns: 1,
        adder: None,
        discovered_by: None,
    }
}

pub(crate) async fn put(store: &Store, conversation: Conversation) {
    store
        .write::<_, DeliveryError, _>("put", move |tx| {
            Box::pin(async move { put_conversation(tx, conversation).await })
        })
        .await
        .unwrap();
}

pub(crate) async fn consent(store: &Store, group: GroupId, consent: Consent) {
    store
        .write::<_, DeliveryError, _>("consent", move |tx| {
            Box::pin(async move { set_consent(tx, group, consent).await })
        })
        .await
        .unwrap();
}

/// The message called `name` in a group; its content is the name.
pub(crate) fn text(group: GroupId, name: &str) -> NewMessage {
    NewMessage {
        id: MessageId::derive(group, name, name.as_bytes()),
        group,
        kind: MessageKind::Application,
        sender_inbox: InboxId::from_bytes([7; 32]),
        sender_installation: None,
        sent_ns: 1,
        idempotency_key: name.to_owned(),
        content: name.as_bytes().to_vec(),
        sequence_id: SequenceId::try_from(1_u64).ok(),
        expires_ns: None,
    }
}

pub(crate) async fn publish(store: &Store, messages: Vec<NewMessage>) -> Vec<Inserted> {
    store
        .write::<_, DeliveryError, _>("publish", move |tx| {
            Box::pin(async move { insert_published(tx, &messages).await })
        })
        .await
        .unwrap()
}

/// Stores published messages called by their names, in this order.
pub(crate) async fn arrive(store: &Store, names: &[(GroupId, &str)]) {
    publish(store, names.iter().map(|(group, name)| text(*group, name)).collect()).await;
}

pub(crate) async fn prepare(store: &Store, message: NewMessage) -> Inserted {
    store
        .write::<_, DeliveryError, _>("prepare", move |tx| {
            Box::pin(async move { insert_unpublished(tx, message).await })
        })
        .await
        .unwrap()
}

pub(crate) async fn stored(store: &Store, id: MessageId) -> StoredMessage {
    store
        .read::<_, DeliveryError, _>("message", move |tx| Box::pin(async move { message(tx, id).await }))
        .await
        .unwrap()
        .unwrap()
}

/// D of a group.
pub(crate) async fn d(store: &Store, group: GroupId) -> u64 {
    store
        .read::<_, DeliveryError, _>("D", move |tx| Box::pin(async move { delivered(tx, group).await }))
        .await
        .unwrap()
        .get()
}

pub(crate) async fn open(store: &Store, selection: Selection) -> DefaultConsumer {
    DefaultConsumer::acquire(store.clone(), selection).await.unwrap()
}

pub(crate) fn name(item: &Item) -> String {
    String::from_utf8(item.message.content.clone()).unwrap()
}

/// The name of the next item, or "" when there is none now.
pub(crate) async fn next(consumer: &mut DefaultConsumer) -> String {
    consumer.next().await.unwrap().as_ref().map(name).unwrap_or_default()
}

/// The names of everything that is there to hand out; acknowledges all of it.
pub(crate) async fn drain(consumer: &mut DefaultConsumer) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(item) = consumer.next().await.unwrap() {
        names.push(name(&item));
    }
    names
}

/// Opens a consumer, hands out everything, closes it.
pub(crate) async fn deliver(store: &Store, selection: Selection) -> Vec<String> {
    let mut consumer = open(store, selection).await;
    let names = drain(&mut consumer).await;
    consumer.release().await.unwrap();
    names
}

pub(crate) async fn refused(store: &Store) -> ConsumerError {
    DefaultConsumer::acquire(store.clone(), Selection::all()).await.unwrap_err()
}

/// The invariants hold over the whole database.
pub(crate) async fn sound(store: &Store) {
    let audit = store
        .read::<_, DeliveryError, _>("audit", |tx| Box::pin(async move { audit(tx).await }))
        .await
        .unwrap();
    assert!(audit.violations.is_empty(), "{:?}", audit.violations);
    assert!(audit.checks > 0);
}
