//! Catch-up on one stream: the time a topic costs among 10,000, against the time it costs among 1,000.

use std::time::{Duration, Instant};

use highwater_wire::Topic;

use crate::{
    loopback::{self, Backend},
    report::Pair,
};

const FEW: u32 = 1_000;
const MANY: u32 = 10_000;
/// Envelopes of each topic.
const HISTORY: u64 = 3;
const BYTES: usize = 256;

pub(crate) async fn round() -> Pair {
    let backend = Backend::start().await;
    let channel = loopback::connect(backend.address).await;
    for first in (0..MANY).step_by(500) {
        for serial in 0..HISTORY {
            let topics = first..first + 500;
            let envelopes = topics.map(|topic| loopback::welcome(topic, serial, BYTES)).collect();
            loopback::put(&channel, envelopes).await;
        }
    }
    let few = catch_up(&backend, FEW).await;
    let many = catch_up(&backend, MANY).await;
    backend.stop().await;
    Pair { floor: few * (MANY / FEW), ours: many, count: MANY as usize, unit: "per topic" }
}

async fn catch_up(backend: &Backend, count: u32) -> Duration {
    let channel = loopback::connect(backend.address).await;
    let topics: Vec<Topic> = (0..count).map(loopback::topic).collect();
    let start = Instant::now();
    let mut stream = loopback::subscribe(&channel, &topics).await;
    loopback::receive(&mut stream, count as usize * HISTORY as usize).await;
    start.elapsed()
}
