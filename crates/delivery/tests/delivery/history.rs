use highwater_delivery::{
    Consent, DeliveryError, HistoryPage, HistoryQuery, MAX_LOCAL_READ_BYTES, NewMessage, Order, ReplayReader,
    Selection, history,
};
use highwater_store::Store;

use crate::support::*;

async fn page(store: &Store, query: HistoryQuery) -> HistoryPage {
    let database = store.database_id();
    store
        .read::<_, DeliveryError, _>("history", move |tx| {
            Box::pin(async move { history(tx, database, &query).await })
        })
        .await
        .unwrap()
}

fn names(page: &HistoryPage) -> Vec<String> {
    page.messages.iter().map(|it| String::from_utf8(it.content.clone()).unwrap()).collect()
}

/// Shows: STR-099.
#[tokio::test]
async fn history_and_the_stream_that_continues_it_meet_without_gap_or_overlap() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a1"), (B, "b1"), (A, "a2")]).await;
    prepare(store, text(A, "not published")).await;
    let first = page(store, HistoryQuery::default()).await;
    assert_eq!(names(&first), ["a2", "b1", "a1"]);
    assert!(first.more.is_none());
    // Stored after the snapshot, before the stream.
    arrive(store, &[(B, "b2")]).await;
    let mut stream = ReplayReader::new(store.clone(), first.cursor, Selection::all()).await.unwrap();
    assert_eq!(name(&stream.next().await.unwrap().unwrap()), "b2");
    assert!(stream.next().await.unwrap().is_none());
    assert_eq!((d(store, A).await, d(store, B).await), (0, 0));
}

/// Shows: STR-099, STR-101.
#[tokio::test]
async fn pages_go_on_where_the_last_one_ended_in_both_directions() {
    let fixture = store().await;
    let store = fixture.store();
    consent(store, B, Consent::Denied).await;
    publish(store, (0..300).map(|n| text([A, B, C][n % 3], &n.to_string())).collect()).await;
    let selection = Selection::groups([A, B]).with_consent([Consent::Allowed]);
    let mut expected: Vec<_> = (0..300).step_by(3).map(|n| n.to_string()).collect();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let mut seen = Vec::new();
        let mut from = None;
        loop {
            let query = HistoryQuery { selection: selection.clone(), order, from, limit: 30 };
            let page = page(store, query).await;
            assert!(page.messages.len() <= 30);
            seen.extend(names(&page));
            from = page.more;
            if from.is_none() {
                assert_eq!(page.cursor.number().unwrap().get(), 300);
                break;
            }
            if order == Order::OldestFirst {
                assert_eq!(Some(page.cursor), page.more);
            }
        }
        assert_eq!(seen, expected);
        expected.reverse();
    }
}

/// Shows: STR-066, STR-101.
#[tokio::test]
async fn a_page_is_bounded_in_rows_and_bytes() {
    let fixture = store().await;
    let store = fixture.store();
    publish(store, (0..200).map(|n| text(A, &n.to_string())).collect()).await;
    let all = HistoryQuery { limit: 10_000, ..HistoryQuery::default() };
    assert_eq!(page(store, all.clone()).await.messages.len(), 128);

    let large = |n: u32| NewMessage { content: vec![1; 1_000_000], ..text(A, &format!("large{n}")) };
    publish(store, (0..20).map(large).collect()).await;
    let bounded = page(store, all).await;
    let bytes: u64 = bounded.messages.iter().map(|it| it.local_bytes()).sum();
    assert!(bytes <= MAX_LOCAL_READ_BYTES && bounded.messages.len() == 16, "{bytes}");
    assert!(bounded.more.is_some());
}
