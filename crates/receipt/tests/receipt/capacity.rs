use highwater_receipt::{
    Admission, AdmitError, Budget, ReceiptError, budgets, may_receive, may_receive_many, room, settle_through,
};
use highwater_store::Store;
use highwater_wire::{Topic, TopicKind, limits};

use crate::support::*;

async fn may(store: &Store, topic: Topic) -> bool {
    let may: Result<bool, ReceiptError> =
        store.read("may", move |tx| Box::pin(async move { may_receive(tx, topic).await })).await;
    may.unwrap()
}

async fn settle(store: &Store, topic: Topic, through: u64) {
    let settled: Result<u64, ReceiptError> = store
        .write("settle", move |tx| Box::pin(async move { settle_through(tx, topic, id(through)).await }))
        .await;
    settled.unwrap();
}

/// Fills a topic until it pauses; returns F.
async fn fill(store: &Store, topic: Topic, size: usize) -> (u64, Budget) {
    let start = f(store, topic).await;
    let all = sized(topic, start, start + 1..start + 1_200, size);
    loop {
        match try_admit(store, all.clone()).await {
            Ok(Admission::Admitted { rows, .. }) => assert!(rows > 0),
            Ok(Admission::Paused { received, by, .. }) => return (received.cursor().get(), by),
            Err(AdmitError::Capacity { received, by, .. }) => return (received.cursor().get(), by),
            other => panic!("{other:?}"),
        }
    }
}

/// Shows: STR-063, STR-066.
#[tokio::test]
async fn one_admission_takes_at_most_a_batch() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    let all = prefix(topic, 0, 1..=300);
    for expected in [(128, 128), (128, 256), (44, 300)] {
        let admission = try_admit(store, all.clone()).await.unwrap();
        let Admission::Admitted { rows, received } = admission else { panic!("{admission:?}") };
        assert_eq!((rows, received.cursor().get()), expected);
    }
    // In bytes as well: 32 MiB hold 31 envelopes of the largest size and their metadata.
    let large = sized(group(2), 0, 1..=40, limits::MAX_ENVELOPE_BYTES);
    let admission = try_admit(store, large).await.unwrap();
    assert!(matches!(admission, Admission::Admitted { rows: 31, .. }), "{admission:?}");
    sound(store).await;
}

/// Shows: STR-063, STR-066, PROC-020.
#[tokio::test]
async fn a_full_topic_pauses_alone_and_resumes_as_it_is_processed() {
    let fixture = store().await;
    let (store, full, other) = (fixture.store(), group(1), group(2));
    assert_eq!(fill(store, full, 1).await, (1_024, Budget::Topic));
    assert!(!may(store, full).await);
    assert!(may(store, other).await);
    admit_all(store, prefix(other, 0, [5_000])).await;

    let refused = try_admit(store, prefix(full, 1_024, [1_025])).await;
    let Err(error @ AdmitError::Capacity { received, by: Budget::Topic, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(received.cursor(), at(1_024));
    assert!(error.is_retryable());
    assert_eq!(ids(store, full).await.len(), 1_024);

    settle(store, full, 10).await;
    assert!(may(store, full).await);
    assert_eq!(fill(store, full, 1).await, (1_034, Budget::Topic));
    sound(store).await;
}

/// Shows: STR-063, STR-066.
#[tokio::test]
async fn a_topic_is_bounded_in_bytes_too() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    let size = limits::MAX_ENVELOPE_BYTES;
    let (received, by) = fill(store, topic, size).await;
    // 64 MiB hold 63 of the largest envelopes with their metadata.
    assert_eq!((received, by), (63, Budget::Topic));
    sound(store).await;
}

/// Case "shared capacity" of the specification: the kind is full, an envelope for an empty topic
/// of that kind is refused, the other kinds go on; room that is released is given to topics with
/// nothing pending as well.
/// Shows: STR-063, STR-066, PROC-020, REVIEW-SHARED-CAPACITY.
#[tokio::test]
async fn a_used_up_kind_refuses_an_empty_topic_and_leaves_the_other_kinds_alone() {
    let fixture = store().await;
    let store = fixture.store();
    // Welcome: 1,024 rows in all. The open three quarters go to the first topic, the rest in
    // shares.
    let mut n = 0;
    while {
        let used: Result<_, ReceiptError> =
            store.read("room", |tx| Box::pin(async move { room(tx, TopicKind::Welcome).await })).await;
        used.unwrap().left.rows > 0
    } {
        n += 1;
        let (_, by) = fill(store, welcome(n), 1).await;
        assert_eq!(by, Budget::Kind);
        assert!(n < 100);
    }
    assert_eq!(ids(store, welcome(1)).await.len(), 768);
    assert!(ids(store, welcome(2)).await.len() <= 64);
    assert!(n > 20, "{n} topics used up the kind");

    let empty = welcome(200);
    let refused = try_admit(store, prefix(empty, 0, [9_000])).await;
    assert!(matches!(refused, Err(AdmitError::Capacity { by: Budget::Kind, .. })), "{refused:?}");
    assert_eq!(f(store, empty).await, 0);
    assert!(!may(store, empty).await);

    for topic in [group(1), identity(1)] {
        assert!(may(store, topic).await);
        admit_all(store, prefix(topic, 0, [1])).await;
    }

    // One processed envelope of the heaviest topic makes room for the empty one, not for itself.
    settle(store, welcome(1), 1).await;
    let asked = [welcome(1), empty];
    let may: Result<_, ReceiptError> =
        store.read("may", move |tx| Box::pin(async move { may_receive_many(tx, &asked).await })).await;
    let may = may.unwrap();
    assert_eq!((may[&welcome(1)], may[&empty]), (false, true));
    let last = f(store, welcome(1)).await;
    assert!(try_admit(store, prefix(welcome(1), last, [last + 1])).await.is_err());
    admit_all(store, prefix(empty, 0, [9_000])).await;
    sound(store).await;
}

/// Shows: STR-066.
#[test]
fn the_budgets_are_finite_and_hold_the_largest_envelope() {
    for kind in [TopicKind::GroupMessage, TopicKind::Welcome, TopicKind::IdentityUpdate] {
        let budget = budgets::of_kind(kind).unwrap();
        assert!(budget.rows > 0 && budget.rows < 100_000);
        assert!(budget.bytes > limits::MAX_ENVELOPE_BYTES as u64 && budget.bytes < 1 << 30);
    }
    assert!(budgets::of_kind(TopicKind::KeyPackage).is_none());
}
