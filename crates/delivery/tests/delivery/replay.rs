use highwater_delivery::{
    Consent, CursorError, DeliveryCursor, DeliveryError, NewMessage, ReplayReader, Selection, delete,
};
use highwater_store::DatabaseId;
use sha2::{Digest as _, Sha256};

use crate::support::*;

async fn rest(reader: &mut ReplayReader) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(item) = reader.next().await.unwrap() {
        names.push(name(&item));
    }
    names
}

async fn from(store: &highwater_store::Store, cursor: DeliveryCursor) -> ReplayReader {
    ReplayReader::new(store.clone(), cursor, Selection::all()).await.unwrap()
}

/// Shows: STR-100, STR-098, PROC-033, PROC-034.
#[tokio::test]
async fn replay_is_independent_of_the_default_consumer() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a1"), (B, "b1"), (A, "a2")]).await;
    let mut consumer = open(store, Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a1");

    let beginning = DeliveryCursor::beginning(store.database_id());
    let mut replay = from(store, beginning).await;
    let first = replay.next().await.unwrap().unwrap();
    assert_eq!(name(&first), "a1");
    assert_eq!(rest(&mut replay).await, ["b1", "a2"]);
    assert_eq!((d(store, A).await, d(store, B).await), (0, 0));

    // Strictly after the cursor, and on with what is new.
    let mut later = from(store, first.cursor).await;
    assert_eq!(rest(&mut later).await, ["b1", "a2"]);
    arrive(store, &[(C, "c1")]).await;
    assert_eq!(name(&later.next_wait().await.unwrap()), "c1");
    assert_eq!(rest(&mut replay).await, ["c1"]);

    // And the default consumer has missed nothing by it.
    assert_eq!(drain(&mut consumer).await, ["b1", "a2", "c1"]);
    assert_eq!(rest(&mut from(store, beginning).await).await, ["a1", "b1", "a2", "c1"]);
}

/// Shows: STR-100, PROC-034, PROC-046.
#[tokio::test]
async fn replay_has_its_own_scope_and_filter() {
    let fixture = store().await;
    let store = fixture.store();
    consent(store, B, Consent::Denied).await;
    arrive(store, &[(A, "a1"), (B, "b1"), (C, "c1"), (D, "d1")]).await;
    let beginning = DeliveryCursor::beginning(store.database_id());
    let selection = Selection::groups([A, B, D]).with_consent([Consent::Allowed]);
    let mut replay = ReplayReader::new(store.clone(), beginning, selection).await.unwrap();
    assert_eq!(rest(&mut replay).await, ["a1", "d1"]);
    assert_eq!(d(store, B).await, 0);
}

/// Shows: STR-102.
#[tokio::test]
async fn a_cursor_does_not_bring_back_what_is_deleted_or_past_its_time() {
    let fixture = store().await;
    let store = fixture.store();
    let soon = store.now_ns() + 10;
    let brief = NewMessage { expires_ns: Some(soon), ..text(A, "brief") };
    publish(store, vec![text(A, "a"), brief, text(A, "gone"), text(A, "b")]).await;
    let beginning = DeliveryCursor::beginning(store.database_id());
    assert_eq!(rest(&mut from(store, beginning).await).await, ["a", "brief", "gone", "b"]);
    let gone = text(A, "gone").id;
    let deleted: Result<bool, DeliveryError> =
        store.write("delete", move |tx| Box::pin(async move { delete(tx, gone).await })).await;
    assert!(deleted.unwrap());
    fixture.clock().advance(std::time::Duration::from_secs(1));
    assert_eq!(rest(&mut from(store, beginning).await).await, ["a", "b"]);
}

/// Shows: STR-098, PROC-033.
#[tokio::test]
async fn a_cursor_of_another_database_or_of_the_future_is_refused() {
    let (fixture, other) = (store().await, store().await);
    let (store, other) = (fixture.store(), other.store());
    arrive(other, &[(A, "a")]).await;
    let cursor = open(other, Selection::all()).await.next().await.unwrap().unwrap().cursor;
    let error = ReplayReader::new(store.clone(), cursor, Selection::all()).await.unwrap_err();
    assert!(!error.is_retryable());
    let DeliveryError::Cursor(CursorError::OtherDatabase { expected, found }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((expected, found), (store.database_id(), other.database_id()));
}

/// The file was replaced by an older copy of itself: reading on from there would skip what the copy
/// has yet to number.
/// Shows: STR-098, PROC-033.
#[tokio::test]
async fn a_cursor_that_is_ahead_of_its_database_is_refused() {
    let mut fixture = store().await;
    arrive(fixture.store(), &[(A, "a")]).await;
    fixture.store().close().await;
    let copy = std::fs::read(fixture.path()).unwrap();
    fixture.reopen().await;
    arrive(fixture.store(), &[(A, "b"), (A, "c")]).await;
    let mut consumer = open(fixture.store(), Selection::all()).await;
    assert_eq!(next(&mut consumer).await, "a");
    assert_eq!(next(&mut consumer).await, "b");
    let cursor = consumer.out().unwrap();
    consumer.release().await.unwrap();
    fixture.store().close().await;
    std::fs::write(fixture.path(), copy).unwrap();
    fixture.reopen().await;
    let opened = ReplayReader::new(fixture.store().clone(), cursor, Selection::all()).await;
    let error = opened.unwrap_err();
    assert!(matches!(error, DeliveryError::Cursor(CursorError::Ahead { number: 2, last: 1 })), "{error:?}");
}

/// Shows: STR-098, PROC-033.
#[test]
fn only_the_exact_text_of_a_cursor_is_read_back() {
    let database = DatabaseId::from_bytes([0x5a; 16]);
    let cursor = DeliveryCursor::beginning(database);
    let text = cursor.to_string();
    assert_eq!(text, "015a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a0000000000000000".to_owned() + &text[50..]);
    assert_eq!(text.parse::<DeliveryCursor>().unwrap(), cursor);
    assert!(cursor.number().is_none());
    // Nothing, a sequence id, times, the id of a message, half a cursor.
    let (message, half) = ("5a".repeat(32), &text[..40]);
    for text in ["", "42", "1796274748", "1700000000000000000", "zz", &message, half] {
        let refused = text.parse::<DeliveryCursor>().unwrap_err();
        assert_eq!(refused, CursorError::Malformed, "{text}");
        assert!(!refused.is_retryable());
    }
    let changed = text.replacen("5a", "5b", 1);
    assert_eq!(changed.parse::<DeliveryCursor>(), Err(CursorError::Checksum));
    let body = [2, 0xaa];
    let sum = Sha256::new().chain_update(b"highwater delivery cursor").chain_update(body).finalize();
    let newer = format!("{}{}", hex::encode(body), hex::encode(&sum[..4]));
    assert_eq!(newer.parse::<DeliveryCursor>(), Err(CursorError::Version { found: 2 }));
}

/// What was read ahead is judged again at the handoff: deleted, denied or out of time in between, it isn't handed out.
///
/// Shows: PROC-025, PROC-046, STR-102.
#[tokio::test]
async fn what_a_replay_read_ahead_is_judged_at_its_handoff() {
    let fixture = store().await;
    let store = fixture.store();
    let names: Vec<_> = (0..40).map(|n| format!("{n:02}")).collect();
    let of = |n: usize| if n.is_multiple_of(2) { A } else { B };
    let mut messages: Vec<_> = names.iter().enumerate().map(|(n, name)| text(of(n), name)).collect();
    messages[14].expires_ns = Some(store.now_ns() + 1_000_000);
    let late = text(B, "late");
    publish(store, messages).await;
    let selection = Selection::all().with_consent([Consent::Allowed]);
    let beginning = DeliveryCursor::beginning(store.database_id());
    let mut replay = ReplayReader::new(store.clone(), beginning, selection).await.unwrap();
    let mut got = Vec::new();
    while got.len() < 12 {
        got.push(name(&replay.next().await.unwrap().unwrap()));
    }
    assert_eq!(got, names[..12]);
    // Only time passes: nobody commits.
    fixture.clock().advance(std::time::Duration::from_millis(2));
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "12");
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "13");
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "15", "14 has disappeared");
    consent(store, B, Consent::Denied).await;
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "16");
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "18", "B is denied by now");
    let gone = text(A, "20").id;
    store
        .write::<_, DeliveryError, _>("delete", move |tx| Box::pin(async move { delete(tx, gone).await }))
        .await
        .unwrap();
    assert_eq!(name(&replay.next().await.unwrap().unwrap()), "22", "20 is deleted");
    publish(store, vec![late]).await;
    let rest = rest(&mut replay).await;
    assert_eq!(rest, (24..40).step_by(2).map(|n| format!("{n:02}")).collect::<Vec<_>>());
}
