//! Publish throughput against bare inserts of as many rows, in transactions of as many as can wait for the
//! writer at once.

use std::time::{Duration, Instant};

use highwater_testkit_postgres::Postgres;

use crate::{
    bare::Rows,
    loopback::{self, Backend},
    report::Pair,
};

const TOPICS: u32 = 50;
const BYTES: usize = 512;
const ENVELOPES: usize = 16_000;

/// Requests of many envelopes from a few publishers.
pub(crate) async fn batches() -> Pair {
    compare(8, 100).await
}

/// The same on PostgreSQL, against the same floor in SQLite.
pub(crate) async fn batches_on_postgres() -> Pair {
    let server = Postgres::start_durable();
    let ours = ours(Backend::on_postgres(&server).await, 8, 100).await;
    Pair { floor: floor(800).await, ours, count: ENVELOPES, unit: "per envelope" }
}

/// Requests of one envelope from many publishers.
pub(crate) async fn singles() -> Pair {
    compare(100, 1).await
}

async fn compare(publishers: usize, per_request: usize) -> Pair {
    let ours = ours(Backend::start().await, publishers, per_request).await;
    let floor = floor(publishers * per_request).await;
    Pair { floor, ours, count: ENVELOPES, unit: "per envelope" }
}

async fn floor(together: usize) -> Duration {
    let mut rows = Rows::new().await;
    let start = Instant::now();
    let mut left = ENVELOPES;
    while left > 0 {
        let count = together.min(left);
        rows.insert(count, i64::from(TOPICS), BYTES).await;
        left -= count;
    }
    start.elapsed()
}

async fn ours(backend: Backend, publishers: usize, per_request: usize) -> Duration {
    let mut channels = Vec::new();
    for _ in 0..publishers.min(8) {
        channels.push(loopback::connect(backend.address).await);
    }
    let requests = ENVELOPES / per_request / publishers;
    let left_over = ENVELOPES - requests * per_request * publishers;
    assert_eq!(left_over, 0, "every publisher sends as many requests");
    let start = Instant::now();
    let tasks: Vec<_> = (0..publishers)
        .map(|publisher| {
            let channel = channels[publisher % channels.len()].clone();
            tokio::spawn(async move {
                for request in 0..requests {
                    let first = (publisher * requests + request) * per_request;
                    let envelopes = (first..first + per_request)
                        .map(|serial| loopback::welcome(serial as u32 % TOPICS, serial as u64, BYTES))
                        .collect();
                    loopback::put(&channel, envelopes).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("published");
    }
    let took = start.elapsed();
    backend.stop().await;
    took
}
