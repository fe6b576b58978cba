//! A physical standby serves QueryNewest and streams; Query reads what was written.

use highwater_backend::{
    DatabaseConfig,
    store::{ReadBounds, Source, TopicRead},
};
use highwater_testkit_postgres::Postgres;
use highwater_wire::Cursor;

use crate::fixture::{envelope, opened, put, soon, topic};

/// Shows: STR-012.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_see_a_standby_and_queries_the_primary() {
    let primary = Postgres::start();
    let database = primary.create_database();
    let replica = primary.replica();
    let config: DatabaseConfig = primary.url(&database).parse().expect("a database");
    let store = opened(config.with_replica(&replica.url(&database)).expect("a replica")).await;
    let reads = [TopicRead { topic: topic(1), after: Cursor::ZERO }];
    let bounds = ReadBounds { rows_per_topic: 10, rows: 10, bytes: 1_000_000 };
    let rows =
        async |source| store.read_after(source, &reads, bounds).await.expect("a page")[0].envelopes.len();

    // The standby was waited for until it showed the schema.
    let mut tail = store.tail().await.expect("a tail");
    replica.pause_replay();
    let metas = put(&store, &[envelope(topic(1), "a")]).await;
    assert_eq!(rows(Source::Primary).await, 1);
    assert_eq!(rows(Source::Serving).await, 0);
    assert_eq!(store.heads(&[topic(1)]).await.expect("heads").len(), 0);
    assert_eq!(store.newest(&[topic(1)]).await.expect("newest"), []);
    assert_eq!(tail.next().await.expect("arrivals"), []);

    replica.resume_replay();
    let arrivals = soon("the arrival", async {
        loop {
            let arrivals = tail.next().await.expect("arrivals");
            if !arrivals.is_empty() {
                return arrivals;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(arrivals[0].sequence_id, metas[0].sequence_id);
    assert_eq!(rows(Source::Serving).await, 1);
    assert_eq!(store.heads(&[topic(1)]).await.expect("heads")[&topic(1)], metas[0].sequence_id);
    store.close().await;
}
