use std::sync::{Arc, Mutex};

use highwater_store::{OpenError, Store, StoreError};

use crate::support::{Place, insert, texts, write};

const SECRET: &str = "the treaty is signed at midnight";

/// Shows: PROC-036, STR-064.
#[tokio::test]
async fn no_file_shows_what_is_stored_while_it_is_open_nor_afterwards() {
    let place = Place::new();
    let store = place.open().await;
    for _ in 0..50 {
        write(&store, SECRET).await.unwrap();
    }
    // A sort that doesn't fit in the cache goes to a temporary file, or would.
    let sorted: Result<Vec<String>, StoreError> = store
        .read("sort", |tx| {
            Box::pin(async move {
                let sql = "SELECT a.text || b.text || c.id FROM notes_rows a, notes_rows b, notes_rows c \
                           WHERE c.id < 5 ORDER BY 1";
                Ok(sqlx::query_scalar(sql).fetch_all(tx.conn()).await?)
            })
        })
        .await;
    assert_eq!(sorted.unwrap().len(), 50 * 50 * 4);
    let temporary = "PRAGMA temp_store";
    let read: Result<i64, StoreError> = store
        .read("pragma", move |tx| {
            Box::pin(async move { Ok(sqlx::query_scalar(temporary).fetch_one(tx.conn()).await?) })
        })
        .await;
    let written: Result<i64, StoreError> = store
        .write("pragma", move |tx| {
            Box::pin(async move { Ok(sqlx::query_scalar(temporary).fetch_one(tx.conn()).await?) })
        })
        .await;
    assert_eq!((read.unwrap(), written.unwrap()), (2, 2), "temporary tables and sorts stay in memory");
    let open = place.files();
    assert!(open.contains_key("notes.db-wal"));
    store.close().await;
    for (name, bytes) in open.into_iter().chain(place.files()) {
        assert!(!contains(&bytes, SECRET.as_bytes()), "{name} shows the text");
        assert!(!contains(&bytes, b"notes_rows"), "{name} shows the schema");
        assert!(!contains(&bytes, b"SQLite format 3"), "{name} has a plain header");
    }
    assert_eq!(texts(&place.open().await).await.len(), 50);
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Shows: PROC-036, STR-064.
#[tokio::test]
async fn neither_key_nor_content_is_logged_even_at_the_finest_level() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let place = Place::new();
    let store = place.open().await;
    tracing::info!("the log works");
    write(&store, SECRET).await.unwrap();
    let failed: Result<(), StoreError> = store
        .write("fails", |tx| {
            Box::pin(async move {
                insert(tx, SECRET).await?;
                sqlx::query("INSERT INTO notes_rows (id, text) VALUES (1, ?)")
                    .bind(SECRET)
                    .execute(tx.conn())
                    .await?;
                Ok(())
            })
        })
        .await;
    let failed = failed.unwrap_err();
    assert_eq!(texts(&store).await, [SECRET]);
    store.close().await;
    let mut wrong = place.options();
    wrong.key = highwater_store::DatabaseKey::from_bytes([8; 32]);
    let wrong = Store::open(wrong).await.unwrap_err();
    assert!(matches!(wrong, OpenError::WrongKey), "{wrong:?}");
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("the log works"));
    for text in [logged, format!("{failed:?} {failed}"), format!("{wrong:?} {wrong}")] {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains(&"07".repeat(32)) && !text.contains(&"08".repeat(32)), "{text}");
    }
}
