use highwater_receipt::{
    Admission, AdmitError, ReceiptError, ReceivedPosition, anchor, pending, pending_ids, pending_one,
    pending_topics, received_many, settle_one, settle_through, topics,
};
use highwater_wire::{PrefixCursor, Topic, TopicKind};

use crate::support::*;

fn received_of(admission: Admission) -> u64 {
    admission.received().cursor().get()
}

/// Shows: STR-061, PROC-002.
#[tokio::test]
async fn the_new_suffix_and_f_are_stored_together_and_overlap_is_skipped() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    let first = try_admit(store, prefix(topic, 0, [3, 5, 9])).await.unwrap();
    assert!(matches!(first, Admission::Admitted { rows: 3, .. }));
    assert_eq!(received_of(first), 9);

    let second = try_admit(store, prefix(topic, 3, [5, 9, 12])).await.unwrap();
    assert!(matches!(second, Admission::Admitted { rows: 1, .. }));
    assert_eq!(received_of(second), 12);
    assert_eq!(ids(store, topic).await, [3, 5, 9, 12]);

    let again = try_admit(store, prefix(topic, 0, [3, 5, 9])).await.unwrap();
    assert!(matches!(again, Admission::Duplicate { .. }));
    let empty = try_admit(store, prefix(topic, 9, [])).await.unwrap();
    assert!(matches!(empty, Admission::Duplicate { .. }));
    assert_eq!(f(store, topic).await, 12);
    assert_eq!(ids(store, topic).await, [3, 5, 9, 12]);
    sound(store).await;
}

/// What was handled doesn't come back with an overlap.
/// Shows: STR-061, PROC-002.
#[tokio::test]
async fn a_settled_envelope_is_not_admitted_again() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    admit_all(store, prefix(topic, 0, [1, 2, 3])).await;
    let settled: Result<u64, ReceiptError> = store
        .write("settle", move |tx| Box::pin(async move { settle_through(tx, topic, id(2)).await }))
        .await;
    assert_eq!(settled.unwrap(), 2);
    let again = try_admit(store, prefix(topic, 0, [1, 2, 3, 4])).await.unwrap();
    assert!(matches!(again, Admission::Admitted { rows: 1, .. }));
    assert_eq!(ids(store, topic).await, [3, 4]);
    sound(store).await;
}

/// A late frame of an older session, opened further on, must not carry F over the commit between
/// them (reported failure A1). Gaps between ids are no gap in the prefix.
/// Shows: STR-060, STR-062, PROC-001.
#[tokio::test]
async fn a_prefix_that_starts_above_f_is_refused_and_changes_nothing() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    admit_all(store, prefix(topic, 0, [1, 4])).await;

    let late = try_admit(store, prefix(topic, 6, [7])).await;
    let Err(error @ AdmitError::Gap { received, .. }) = late else { panic!("{late:?}") };
    assert_eq!(received.cursor(), at(4));
    assert!(error.is_retryable());
    assert_eq!(ids(store, topic).await, [1, 4]);

    // An empty frame from further on says nothing either.
    assert!(matches!(try_admit(store, prefix(topic, 6, [])).await, Err(AdmitError::Gap { .. })));
    assert_eq!(f(store, topic).await, 4);

    admit_all(store, prefix(topic, 4, [5])).await;
    admit_all(store, prefix(topic, 5, [70])).await;
    assert_eq!(ids(store, topic).await, [1, 4, 5, 70]);
    sound(store).await;
}

/// Shows: STR-060, PROC-001.
#[tokio::test]
async fn a_batch_out_of_order_or_off_topic_never_becomes_admissible() {
    let topic = group(1);
    let mut cursor = PrefixCursor::new(topic, at(4));
    cursor.extend(vec![envelope(topic, 5, 1)]).unwrap();
    for bad in [
        vec![envelope(topic, 5, 1)],
        vec![envelope(topic, 7, 1), envelope(topic, 6, 1)],
        vec![envelope(topic, 8, 1), envelope(group(2), 9, 1)],
        vec![envelope(topic, 0, 1)],
        vec![envelope(topic, u64::MAX, 1)],
    ] {
        cursor.extend(bad).unwrap_err();
        assert_eq!(cursor.last(), at(5));
    }
}

/// Shows: STR-060, PROC-001, STR-036.
#[tokio::test]
async fn an_envelope_comes_back_as_it_was_received_after_reopening() {
    let mut fixture = store().await;
    let topic = group(7);
    let sent = prefix(topic, 0, [2, 3]);
    admit_all(fixture.store(), sent.clone()).await;
    fixture.reopen().await;
    let store = fixture.store();
    assert_eq!(f(store, topic).await, 3);
    let stored = pending_of(store, topic).await;
    for (stored, sent) in stored.iter().zip(sent.envelopes()) {
        assert_eq!(stored.sequence_id, sent.sequence_id());
        assert_eq!(stored.server_ns, sent.server_ns());
        assert_eq!(stored.expiry_ns, sent.expiry_ns());
        assert_eq!(stored.hash.as_bytes().as_slice(), hash(sent.sequence_id().get()));
        assert_eq!(stored.is_commit_or_proposal, sent.is_commit_or_proposal());
        assert_eq!(&stored.payload, sent.payload());
    }
    let held: Result<_, ReceiptError> =
        store.read("topics", |tx| Box::pin(async move { pending_topics(tx, None).await })).await;
    let held = held.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].topic, held[0].rows, held[0].head), (topic, 2, id(2)));
    assert_eq!(held[0].bytes, sent.stored_bytes());
}

/// Shows: PROC-010.
#[tokio::test]
async fn a_join_anchor_raises_f_drops_what_is_below_and_keeps_what_is_above() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    let set = async |to: u64| -> u64 {
        let position: Result<ReceivedPosition, ReceiptError> =
            store.write("anchor", move |tx| Box::pin(async move { anchor(tx, topic, id(to)).await })).await;
        position.unwrap().cursor().get()
    };
    // A group whose topic was never read starts at the anchor.
    assert_eq!(set(10).await, 10);
    assert!(matches!(try_admit(store, prefix(topic, 11, [12])).await, Err(AdmitError::Gap { .. })));
    admit_all(store, prefix(topic, 10, [11, 15, 20])).await;
    assert_eq!(set(15).await, 20);
    assert_eq!(ids(store, topic).await, [20]);
    // Below everything, nothing happens; above everything, F jumps.
    assert_eq!(set(3).await, 20);
    assert_eq!(ids(store, topic).await, [20]);
    assert_eq!(set(30).await, 30);
    assert!(ids(store, topic).await.is_empty());
    sound(store).await;
}

/// Shows: PROC-002.
#[tokio::test]
async fn the_database_itself_refuses_to_lower_or_forget_f() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    admit_all(store, prefix(topic, 0, [5])).await;
    for sql in ["UPDATE receipt_topics SET received = 4", "DELETE FROM receipt_topics"] {
        let refused: Result<(), ReceiptError> = store
            .write("lower", move |tx| {
                Box::pin(async move {
                    sqlx::query("DELETE FROM receipt_pending").execute(tx.conn()).await?;
                    sqlx::query(sql).execute(tx.conn()).await?;
                    Ok(())
                })
            })
            .await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("never falls"), "{message}");
    }
    assert_eq!(f(store, topic).await, 5);
    assert_eq!(ids(store, topic).await, [5]);
}

/// Shows: STR-060.
#[tokio::test]
async fn kinds_without_an_ordered_prefix_are_refused() {
    let fixture = store().await;
    let store = fixture.store();
    let topic = Topic::key_package(highwater_wire::InstallationKey::from_bytes([1; 32]));
    let refused = try_admit(store, prefix(topic, 0, [1])).await.unwrap_err();
    assert!(matches!(refused, AdmitError::Receipt(ReceiptError::NotReceived(TopicKind::KeyPackage))));
    assert!(!refused.is_retryable());
    assert_eq!(f(store, topic).await, 0);
}

/// Shows: STR-066.
#[tokio::test]
async fn pending_reads_are_bounded_in_rows_and_bytes_but_always_give_the_head() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(1));
    let sent = sized(topic, 0, 1..=10, 1_000);
    let one = sent.envelopes()[0].stored_bytes();
    admit_all(store, sent).await;
    let read = async |rows: u32, bytes: u64| -> Vec<u64> {
        let found: Result<Vec<_>, ReceiptError> = store
            .read("pending", move |tx| Box::pin(async move { pending(tx, topic, rows, bytes).await }))
            .await;
        found.unwrap().iter().map(|envelope| envelope.sequence_id.get()).collect()
    };
    assert_eq!(read(3, u64::MAX).await, [1, 2, 3]);
    assert_eq!(read(100, 4 * one).await, [1, 2, 3, 4]);
    assert_eq!(read(100, 4 * one - 1).await, [1, 2, 3]);
    assert_eq!(read(100, 1).await, [1]);
    assert_eq!(read(0, u64::MAX).await, [0_u64; 0]);
}

/// Shows: STR-061.
#[tokio::test]
async fn welcomes_are_settled_one_by_one_in_any_order() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), welcome(1));
    admit_all(store, prefix(topic, 0, [1, 2, 3])).await;
    let settle = async |n: u64| -> bool {
        let settled: Result<bool, ReceiptError> = store
            .write("settle", move |tx| Box::pin(async move { settle_one(tx, topic, id(n)).await }))
            .await;
        settled.unwrap()
    };
    assert!(settle(2).await);
    assert!(!settle(2).await);
    assert!(!settle(9).await);
    assert_eq!(ids(store, topic).await, [1, 3]);
    let (one, two, through): (_, _, Vec<_>) = store
        .read::<_, ReceiptError, _>("read", move |tx| {
            Box::pin(async move {
                Ok((
                    pending_one(tx, topic, id(1)).await?,
                    pending_one(tx, topic, id(2)).await?,
                    pending_ids(tx, topic, at(2)).await?,
                ))
            })
        })
        .await
        .unwrap();
    assert_eq!(one.unwrap().sequence_id, id(1));
    assert!(two.is_none());
    assert_eq!(through, [id(1)]);
    assert_eq!(f(store, topic).await, 3);
    sound(store).await;
}

/// Each topic reads on from its own F: a quiet one from where it stood, not from zero, nor from
/// another's (reported failure A2).
/// Shows: STR-036.
#[tokio::test]
async fn every_topic_has_its_own_f() {
    let fixture = store().await;
    let store = fixture.store();
    for (n, last) in [(1, 100), (2, 200), (3, 300)] {
        admit_all(store, prefix(group(n), 0, [last])).await;
    }
    admit_all(store, prefix(group(3), 300, 301..=350)).await;
    let wanted = vec![group(1), group(2), group(3), group(4)];
    let asked = wanted.clone();
    let found: Result<_, ReceiptError> =
        store.read("received", move |tx| Box::pin(async move { received_many(tx, &asked).await })).await;
    let found: Vec<_> = found.unwrap().into_values().map(|f| f.cursor().get()).collect();
    assert_eq!(found, [100, 200, 350, 0]);
    let all: Result<Vec<_>, ReceiptError> =
        store.read("topics", |tx| Box::pin(async move { topics(tx).await })).await;
    assert_eq!(all.unwrap().into_iter().map(|(topic, _)| topic).collect::<Vec<_>>(), wanted[..3]);
}

/// Shows: STR-064, PROC-036.
#[tokio::test]
async fn nothing_received_is_readable_in_the_files_or_in_debug_output() {
    let fixture = store().await;
    let (store, topic) = (fixture.store(), group(0x41));
    let sent = sized(topic, 0, [0x42], 4_096);
    admit_all(store, sent.clone()).await;
    let stored = format!("{:?}", pending_of(store, topic).await);
    for shown in [stored, format!("{sent:?}"), format!("{topic:?}")] {
        assert!(!shown.contains("66, 66, 66"), "{shown}");
        assert!(!shown.contains("4141414141"), "{shown}");
    }
    for file in std::fs::read_dir(fixture.path().parent().unwrap()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(16).any(|run| run == [0x42; 16] || run == [0x41; 16]));
    }
}
