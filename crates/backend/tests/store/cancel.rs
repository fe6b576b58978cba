//! A publish whose caller goes away, at every point: nothing is half stored, and nothing stays held.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use highwater_backend::{
    DatabaseConfig, EnvelopeStore, PostgresStore, SqliteStore, Timing,
    store::{ReadBounds, Source, TopicRead},
};
use highwater_testkit_postgres::Postgres;
use highwater_wire::Cursor;
use tempfile::TempDir;

use crate::fixture::{envelope, put, soon, topic};

/// Polls a publish of two topics at most `polls` times, and drops it.
async fn cut_short(store: &Arc<dyn EnvelopeStore>, round: usize, polls: usize) {
    let envelopes = [1, 2].map(|number| envelope(topic(number), &format!("cut {round}")));
    let mut publish = pin!(store.commit(&envelopes));
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcome) = publish.as_mut().poll(&mut context) {
            outcome.expect("committed");
            return;
        }
        // Lets the other side get on, by more or less.
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_micros((round % 5) as u64 * 200)).await;
    }
}

async fn rounds(store: Arc<dyn EnvelopeStore>, rounds: usize) {
    let mut cut = 0;
    for round in 0..rounds {
        cut_short(&store, round, round % 9).await;
        cut += 1;
        let after =
            soon("a plain publish", put(&store, &[envelope(topic(3), &format!("plain {round}"))])).await;
        assert_eq!(after.len(), 1);
    }
    // A publish that was dropped may still be on its way; one to the same topics waits for it.
    put(&store, &[envelope(topic(1), "last"), envelope(topic(2), "last")]).await;
    let reads = [1, 2].map(|number| TopicRead { topic: topic(number), after: Cursor::ZERO });
    let bounds = ReadBounds { rows_per_topic: 10_000, rows: 20_000, bytes: 64 * 1024 * 1024 };
    let page = store.read_after(Source::Primary, &reads, bounds).await.expect("a page");
    let payloads = |index: usize| page[index].envelopes.iter().map(|e| e.payload.clone()).collect::<Vec<_>>();
    assert_eq!(payloads(0), payloads(1), "of each publish both or none");
    assert!(payloads(0).len() <= cut + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_dropped_at_any_point_leaves_a_sqlite_store_whole() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("backend.db");
    let store = SqliteStore::open(&path, Duration::from_secs(5)).await.expect("opened");
    rounds(Arc::new(store), 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_dropped_at_any_point_leaves_a_postgres_store_whole() {
    let server = Postgres::shared();
    let database = server.create_database();
    let config: DatabaseConfig = server.url(&database).parse().expect("a database");
    let DatabaseConfig::Postgres(mut config) = config else { panic!("PostgreSQL is meant") };
    config.max_connections = 1;
    let store = PostgresStore::open(&config, &Timing::default()).await.expect("opened");
    rounds(Arc::new(store), 300).await;
    let idle = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND state LIKE 'idle in %'"
    );
    assert_eq!(server.sql("postgres", &idle).trim(), "0");
}
