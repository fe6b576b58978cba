use highwater_delivery::{
    DeliveryError, Inserted, MessageStatus, Selection, confirm, delete, erase_expired, fail, last_number,
    unpublished,
};
use highwater_store::Store;
use highwater_wire::{MessageId, SequenceId};

use crate::support::*;

async fn confirmed(store: &Store, id: MessageId) -> Result<u64, DeliveryError> {
    let sequence_id = SequenceId::try_from(77_u64)?;
    store
        .write("confirm", move |tx| {
            Box::pin(async move { Ok(confirm(tx, id, sequence_id, 500, None).await?.get()) })
        })
        .await
}

async fn removed(store: &Store, id: MessageId) -> bool {
    store
        .write::<_, DeliveryError, _>("delete", move |tx| Box::pin(async move { delete(tx, id).await }))
        .await
        .unwrap()
}

async fn failed(store: &Store, id: MessageId, why: &'static str) {
    store
        .write::<_, DeliveryError, _>("fail", move |tx| Box::pin(async move { fail(tx, id, why).await }))
        .await
        .unwrap();
}

/// Shows: STR-090, PROC-024.
#[tokio::test]
async fn numbers_rise_in_the_order_of_becoming_deliverable_and_duplicates_keep_theirs() {
    let fixture = store().await;
    let store = fixture.store();
    let (a1, a2, b1) = (text(A, "a1"), text(A, "a2"), text(B, "b1"));
    let first = publish(store, vec![a1.clone(), b1.clone(), a1.clone()]).await;
    assert_eq!(first, [Inserted::New, Inserted::New, Inserted::Duplicate]);
    let second = publish(store, vec![b1.clone(), a2.clone(), a1.clone()]).await;
    assert_eq!(second, [Inserted::Duplicate, Inserted::New, Inserted::Duplicate]);
    for (message, number) in [(&a1, 1), (&b1, 2), (&a2, 3)] {
        assert_eq!(stored(store, message.id).await.delivery_number.unwrap().get(), number);
    }
    sound(store).await;
}

/// Ids are kept in two tables, and those of the first move to the second after 8,192 messages.
/// Shows: STR-090, PROC-024.
#[tokio::test]
async fn a_message_is_known_by_its_id_however_many_came_after_it() {
    let fixture = store().await;
    let store = fixture.store();
    let names: Vec<_> = (0..9_000).map(|n| format!("{n:04}")).collect();
    let mine = text(B, "mine");
    prepare(store, mine.clone()).await;
    for names in names.chunks(1_500) {
        let new = publish(store, names.iter().map(|name| text(A, name)).collect()).await;
        assert!(new.iter().all(|inserted| *inserted == Inserted::New));
        sound(store).await;
    }
    let again = [0, 1, 8_190, 8_191, 8_192, 8_999].map(|n: usize| text(A, &names[n]));
    assert_eq!(publish(store, again.to_vec()).await, [Inserted::Duplicate; 6]);
    assert_eq!(prepare(store, mine.clone()).await, Inserted::Duplicate);
    assert_eq!(stored(store, again[0].id).await.delivery_number.unwrap().get(), 1);
    assert!(removed(store, again[0].id).await && removed(store, again[5].id).await);
    assert_eq!(confirmed(store, mine.id).await.unwrap(), 9_001);
    sound(store).await;
}

/// An optimistic message takes its number when the topic confirms it, not when it is written.
/// Shows: STR-090, STR-103, PROC-024, PROC-025.
#[tokio::test]
async fn an_unpublished_message_has_no_number_until_it_is_confirmed() {
    let fixture = store().await;
    let store = fixture.store();
    let mine = text(A, "mine");
    assert_eq!(prepare(store, mine.clone()).await, Inserted::New);
    assert_eq!(prepare(store, mine.clone()).await, Inserted::Duplicate);
    arrive(store, &[(A, "theirs")]).await;
    assert_eq!(deliver(store, Selection::all()).await, ["theirs"]);
    assert!(stored(store, mine.id).await.cursor(store.database_id()).is_none());

    assert_eq!(confirmed(store, mine.id).await.unwrap(), 2);
    assert_eq!(confirmed(store, mine.id).await.unwrap(), 2);
    let now = stored(store, mine.id).await;
    assert_eq!((now.status, now.sent_ns), (MessageStatus::Published, 500));
    assert_eq!(now.sequence_id, SequenceId::try_from(77_u64).ok());
    assert_eq!(deliver(store, Selection::all()).await, ["mine"]);

    let unknown = MessageId::from_bytes([0; 32]);
    let error = confirmed(store, unknown).await.unwrap_err();
    assert!(matches!(error, DeliveryError::UnknownMessage(id) if id == unknown));
    assert!(!error.is_retryable());
    sound(store).await;
}

/// Shows: STR-103, PROC-025.
#[tokio::test]
async fn a_failed_message_is_never_handed_out_and_keeps_its_first_reason() {
    let fixture = store().await;
    let store = fixture.store();
    let (mine, theirs) = (text(A, "mine"), text(A, "theirs"));
    prepare(store, mine.clone()).await;
    publish(store, vec![theirs.clone()]).await;
    failed(store, mine.id, "too_large").await;
    failed(store, mine.id, "later").await;
    failed(store, theirs.id, "not mine to fail").await;
    assert_eq!(deliver(store, Selection::all()).await, ["theirs"]);
    let mine = stored(store, mine.id).await;
    assert_eq!(mine.status, MessageStatus::Failed);
    assert_eq!(mine.failure.as_deref(), Some("too_large"));
    let waiting: Result<Vec<_>, DeliveryError> =
        store.read("waiting", |tx| Box::pin(async move { unpublished(tx, A, None).await })).await;
    assert_eq!(waiting.unwrap(), [mine]);
    sound(store).await;
}

/// The same message can come from this client's outbox and, by another installation, from the topic.
/// Shows: STR-090, PROC-024.
#[tokio::test]
async fn what_ordered_processing_delivers_confirms_a_message_only_prepared_here() {
    let fixture = store().await;
    let store = fixture.store();
    prepare(store, text(A, "both")).await;
    assert_eq!(publish(store, vec![text(A, "x"), text(A, "both")]).await, [Inserted::New; 2]);
    assert_eq!(deliver(store, Selection::all()).await, ["x", "both"]);
    sound(store).await;
}

/// Shows: STR-090, STR-102, PROC-024.
#[tokio::test]
async fn deletion_removes_the_content_and_gives_neither_id_nor_number_back() {
    let fixture = store().await;
    let store = fixture.store();
    let last = text(A, "last");
    publish(store, vec![text(A, "first"), last.clone()]).await;
    assert!(removed(store, last.id).await);
    assert!(!removed(store, last.id).await);
    assert_eq!(publish(store, vec![last.clone()]).await, [Inserted::Duplicate]);
    arrive(store, &[(A, "next")]).await;
    assert_eq!(deliver(store, Selection::all()).await, ["first", "next"]);
    let gone = stored(store, last.id).await;
    assert!(gone.deleted && gone.content.is_empty());
    assert_eq!(gone.delivery_number.unwrap().get(), 2);
    let counted: Result<u64, DeliveryError> =
        store.read("last", |tx| Box::pin(async move { last_number(tx).await })).await;
    assert_eq!(counted.unwrap(), 3);
    sound(store).await;
}

/// Shows: STR-103, PROC-025.
#[tokio::test]
async fn a_message_past_its_time_is_left_out_at_selection_and_its_content_goes() {
    let fixture = store().await;
    let store = fixture.store();
    let soon = store.now_ns() + 1_000;
    let brief = highwater_delivery::NewMessage { expires_ns: Some(soon), ..text(A, "brief") };
    publish(store, vec![text(A, "a"), brief.clone(), text(A, "b")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a");
    // It was there when "a" was handed out; what counts is the moment of its own handoff.
    fixture.clock().advance(std::time::Duration::from_nanos(1_000));
    assert_eq!(next(&mut consumer).await, "b");
    let erased: Result<u64, DeliveryError> =
        store.write("erase", |tx| Box::pin(async move { erase_expired(tx, 10).await })).await;
    assert_eq!(erased.unwrap(), 1);
    assert!(stored(store, brief.id).await.content.is_empty());
    sound(store).await;
}

/// Shows: PROC-024, STR-090.
#[tokio::test]
async fn the_database_itself_refuses_to_change_a_number_or_to_lower_a_position() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a"), (A, "b")]).await;
    deliver(store, Selection::all()).await;
    for sql in [
        "UPDATE delivery_messages SET delivery_number = 9 WHERE delivery_number = 1",
        "UPDATE delivery_messages SET delivery_number = NULL, status = 1",
        "UPDATE delivery_messages SET delivery_number = 2 WHERE delivery_number = 1",
        "DELETE FROM delivery_messages",
        "UPDATE delivery_counter SET last = last - 1",
        "DELETE FROM delivery_counter",
        "UPDATE delivery_positions SET delivered = 1",
        "DELETE FROM delivery_positions",
    ] {
        let refused: Result<(), DeliveryError> = store
            .write("tamper", move |tx| {
                Box::pin(async move {
                    sqlx::query(sql).execute(tx.conn()).await?;
                    Ok(())
                })
            })
            .await;
        refused.expect_err(sql);
    }
    assert_eq!(d(store, A).await, 2);
    sound(store).await;
}

/// Shows: STR-090.
#[tokio::test]
async fn a_failed_transaction_gives_its_numbers_back() {
    let fixture = store().await;
    let store = fixture.store();
    let failed: Result<(), DeliveryError> = store
        .write("fails", |tx| {
            Box::pin(async move {
                highwater_delivery::insert_published(tx, &[text(A, "lost")]).await?;
                Err(DeliveryError::Damaged("a later step of the same transaction"))
            })
        })
        .await;
    failed.unwrap_err();
    arrive(store, &[(A, "kept")]).await;
    assert_eq!(stored(store, text(A, "kept").id).await.delivery_number.unwrap().get(), 1);
    sound(store).await;
}

/// Shows: STR-064.
#[test]
fn debug_output_shows_no_content() {
    let shown = format!("{:?}", text(A, "a secret"));
    assert!(!shown.contains("secret"), "{shown}");
}
