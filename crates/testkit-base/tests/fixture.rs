//! The fixture does what the tests that use it rely on.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use highwater_store::{Migrations, Store, StoreError};
use highwater_testkit_base::{START_NS, StoreFixture, eventually};

const NOTES: Migrations =
    Migrations { owner: "notes", steps: &["CREATE TABLE notes_rows (text TEXT NOT NULL) STRICT"] };

async fn note(store: &Store, text: String) -> Result<(), StoreError> {
    store
        .write("note", |tx| {
            Box::pin(async move {
                sqlx::query("INSERT INTO notes_rows VALUES (?)").bind(text).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await
}

async fn notes(store: &Store) -> i64 {
    store
        .read("notes", |tx| {
            Box::pin(async move {
                let sql = "SELECT count(*) FROM notes_rows";
                Ok::<_, StoreError>(sqlx::query_scalar(sql).fetch_one(tx.conn()).await?)
            })
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_restart_keeps_the_data_and_a_second_store_shares_it() {
    let mut fixture = StoreFixture::new(vec![NOTES]).await;
    note(fixture.store(), "one".into()).await.unwrap();
    let id = fixture.store().database_id();
    fixture.reopen().await;
    assert_eq!(fixture.store().database_id(), id);
    let another = fixture.another().await;
    note(&another, "two".into()).await.unwrap();
    eventually(Duration::from_secs(30), async || notes(fixture.store()).await == 2).await;
    assert!(fixture.path().starts_with(fixture.folder()));
}

#[tokio::test]
async fn the_clock_stands_until_it_is_moved() {
    let fixture = StoreFixture::new(vec![NOTES]).await;
    assert_eq!(fixture.store().now_ns(), START_NS);
    fixture.clock().advance(Duration::from_secs(1));
    assert_eq!(fixture.store().now_ns(), START_NS + 1_000_000_000);
    fixture.clock().set(5);
    assert_eq!(fixture.store().now_ns(), 5);
}

#[tokio::test]
async fn a_full_disk_refuses_what_needs_space_until_the_restart() {
    let mut fixture = StoreFixture::new(vec![NOTES]).await;
    fixture.fill_disk(0).await.unwrap();
    let refused = note(fixture.store(), "x".repeat(100_000)).await.unwrap_err();
    assert!(refused.is_disk_full(), "{refused:?}");
    fixture.reopen().await;
    note(fixture.store(), "x".repeat(100_000)).await.unwrap();
    assert_eq!(notes(fixture.store()).await, 1);
}
