//! Publishing beside 100 subscribers of which one never reads, against the same without that one: the 99th
//! percentile of a publish, and every reader complete (STR-031).

use std::time::{Duration, Instant};

use crate::{
    loopback::{self, Backend},
    report::Pair,
};

const READERS: usize = 99;
const PUBLISHES: usize = 1_000;
const BYTES: usize = 4 * 1_024;

pub(crate) async fn round() -> Pair {
    let floor = p99(false).await;
    let ours = p99(true).await;
    Pair { floor, ours, count: 1, unit: "99th percentile of a publish" }
}

async fn p99(with_unread: bool) -> Duration {
    let backend = Backend::start().await;
    let topics = [loopback::topic(1)];
    let mut readers = Vec::new();
    let mut channels = Vec::new();
    for number in 0..READERS {
        if number % 10 == 0 {
            channels.push(loopback::connect(backend.address).await);
        }
        let mut stream = loopback::subscribe(&channels[number / 10], &topics).await;
        readers.push(tokio::spawn(async move { loopback::receive(&mut stream, PUBLISHES).await }));
    }
    // On a connection of its own: it would hold up those that share its window.
    let unread = if with_unread {
        let channel = loopback::connect(backend.address).await;
        Some((loopback::subscribe(&channel, &topics).await, channel))
    } else {
        None
    };
    let publisher = loopback::connect(backend.address).await;
    let mut times = Vec::new();
    for serial in 0..PUBLISHES {
        let start = Instant::now();
        loopback::put(&publisher, vec![loopback::welcome(1, serial as u64, BYTES)]).await;
        times.push(start.elapsed());
    }
    for reader in readers {
        reader.await.expect("complete");
    }
    drop(unread);
    backend.stop().await;
    times.sort_unstable();
    times[PUBLISHES * 99 / 100]
}
