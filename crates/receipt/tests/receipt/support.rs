//! Prefixes as a read would return them, and short ways to run one transaction.

use highwater_receipt::{
    Admission, AdmitError, MIGRATIONS, PendingEnvelope, ReceiptError, ReceivedPosition, admit, audit,
    pending, received,
};
use highwater_store::Store;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{
    Cursor, GroupId, InboxId, InstallationKey, OrderedPrefix, PrefixCursor, SequenceId, Topic,
    proto::backend::{
        self, ClientEnvelope, EnvelopeMeta, GroupMessage, ServerEnvelope, client_envelope::Payload,
        message_hash,
    },
};

pub(crate) async fn store() -> StoreFixture {
    StoreFixture::new(vec![MIGRATIONS]).await
}

pub(crate) fn group(n: u8) -> Topic {
    Topic::group(GroupId::from_bytes([n; 16]))
}

pub(crate) fn welcome(n: u8) -> Topic {
    Topic::welcome(InstallationKey::from_bytes([n; 32]))
}

pub(crate) fn identity(n: u8) -> Topic {
    Topic::identity(InboxId::from_bytes([n; 32]))
}

pub(crate) fn id(id: u64) -> SequenceId {
    SequenceId::try_from(id).unwrap()
}

pub(crate) fn at(position: u64) -> Cursor {
    Cursor::try_from(position).unwrap()
}

/// An envelope whose payload has about `size` bytes.
pub(crate) fn envelope(topic: Topic, id: u64, size: usize) -> ServerEnvelope {
    let message = GroupMessage { data: vec![id as u8; size], ..Default::default() };
    ServerEnvelope {
        meta: Some(EnvelopeMeta {
            cursor: Some(backend::Cursor { sequence_id: id }),
            server_ns: 1_000 + id % 1_000_000,
            message_hash: Some(backend::MessageHash { hash: Some(message_hash::Hash::Sha256(hash(id))) }),
            topic: Some(topic.into()),
            expiry_ns: u64::MAX - id,
            is_commit_or_proposal: id.is_multiple_of(2),
        }),
        envelope: Some(ClientEnvelope { payload: Some(Payload::GroupMessage(message)) }),
    }
}

/// Not the hash of anything: the client has no business checking.
pub(crate) fn hash(id: u64) -> Vec<u8> {
    [id.to_be_bytes(); 4].concat()
}

pub(crate) fn prefix(topic: Topic, after: u64, ids: impl IntoIterator<Item = u64>) -> OrderedPrefix {
    sized(topic, after, ids, 10)
}

pub(crate) fn sized(
    topic: Topic,
    after: u64,
    ids: impl IntoIterator<Item = u64>,
    size: usize,
) -> OrderedPrefix {
    let batch = ids.into_iter().map(|id| envelope(topic, id, size)).collect();
    PrefixCursor::new(topic, at(after)).extend(batch).unwrap()
}

pub(crate) async fn try_admit(store: &Store, prefix: OrderedPrefix) -> Result<Admission, AdmitError> {
    store.write("test admit", move |tx| Box::pin(async move { admit(tx, &prefix).await })).await
}

/// Admits the whole prefix, batch by batch.
pub(crate) async fn admit_all(store: &Store, prefix: OrderedPrefix) {
    while f(store, prefix.topic()).await < prefix.last().get() {
        let admission = try_admit(store, prefix.clone()).await.unwrap();
        assert!(matches!(admission, Admission::Admitted { .. }), "{admission:?}");
    }
}

/// F of a topic.
pub(crate) async fn f(store: &Store, topic: Topic) -> u64 {
    let position: Result<ReceivedPosition, ReceiptError> =
        store.read("test F", move |tx| Box::pin(async move { received(tx, topic).await })).await;
    position.unwrap().cursor().get()
}

pub(crate) async fn pending_of(store: &Store, topic: Topic) -> Vec<PendingEnvelope> {
    let pending: Result<_, ReceiptError> = store
        .read("test pending", move |tx| Box::pin(async move { pending(tx, topic, u32::MAX, u64::MAX).await }))
        .await;
    pending.unwrap()
}

/// The pending ids of a topic.
pub(crate) async fn ids(store: &Store, topic: Topic) -> Vec<u64> {
    pending_of(store, topic).await.iter().map(|envelope| envelope.sequence_id.get()).collect()
}

/// The invariants hold over the whole database.
pub(crate) async fn sound(store: &Store) {
    let audit: Result<_, ReceiptError> =
        store.read("test audit", |tx| Box::pin(async move { audit(tx).await })).await;
    let audit = audit.unwrap();
    assert!(audit.violations.is_empty(), "{:?}", audit.violations);
    assert!(audit.checks > 0);
}
