//! Benchmarks of the server over loopback, each against a floor measured in the same run: what the same
//! bytes cost without this server's promises.
//!
//! Each measurement is one JSON line; everything else printed is for people. Floor and server take turns,
//! and the round with the median ratio counts, so that a machine that slows down for a while slows both.

#![allow(clippy::print_stdout, reason = "measurements are this program's output")]

mod bare;
mod catchup;
mod fanout;
mod latency;
mod loopback;
mod memory;
mod publish;
mod report;
mod unread;

const ROUNDS: usize = 3;

fn main() {
    // The harness's own flags, such as --bench, say nothing here.
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let asked = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    macro_rules! measure {
        ($($name:literal: $round:expr),+ $(,)?) => {$(
            if asked($name) {
                let rounds: Vec<_> = (0..ROUNDS).map(|_| runtime.block_on($round)).collect();
                report::median($name, rounds);
            }
        )+};
    }
    measure! {
        "fanout_100": fanout::round(),
        "publish_batches": publish::batches(),
        "publish_singles": publish::singles(),
        "publish_batches_postgres": publish::batches_on_postgres(),
        "publish_to_received": latency::sqlite(),
        "publish_to_received_postgres": latency::postgres(),
        "catchup_10000_topics": catchup::round(),
        "publish_beside_unread": unread::round(),
    }
    if asked("memory_per_topic") {
        runtime.block_on(memory::print());
    }
}
