//! Benchmarks: what Highwater's durable path costs, against a floor measured in the same run.
//!
//! Each measurement is one JSON line; everything else printed is for people. Floor and path take turns in portions,
//! the whole is repeated, and the round with the median ratio is reported, so that a machine that slows down for a
//! while slows both.

#![allow(clippy::print_stdout, reason = "measurements are this program's output")]

mod durable;
mod growth;
mod measure;
mod openmls_floor;
mod reading;
mod spread;
mod sqlcipher_floor;
mod traffic;

use anyhow::Result;
use clap::Parser;

/// Measures the durable path against its floors.
#[derive(Debug, Parser)]
struct Arguments {
    /// Application messages of the one-group benchmark; the others scale with it.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(50..=10_000))]
    messages: u32,
    /// How often everything is repeated; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Only benchmarks whose name contains one of these.
    names: Vec<String>,
}

impl Arguments {
    fn asks_for(&self, names: &[&str]) -> bool {
        let asked = |name: &str| self.names.iter().any(|part| name.contains(part.as_str()));
        self.names.is_empty() || names.iter().any(|name| asked(name))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let messages = arguments.messages as usize;
    println!(
        "{messages} messages of {} bytes, {} rounds, {} threads",
        traffic::CONTENT_BYTES,
        arguments.rounds,
        std::thread::available_parallelism()?
    );
    let rounds = arguments.rounds;
    if arguments.asks_for(&durable::NAMES) {
        repeat(rounds, &durable::NAMES, || durable::round(messages)).await?;
    }
    if arguments.asks_for(&spread::NAMES) {
        repeat(rounds, &spread::NAMES, || spread::round(messages / 10)).await?;
    }
    if arguments.asks_for(&growth::HISTORY) {
        repeat(rounds, &growth::HISTORY, || growth::history(messages)).await?;
    }
    if arguments.asks_for(&growth::MEMBERS) {
        repeat(rounds, &growth::MEMBERS, || growth::members(messages / 4)).await?;
    }
    Ok(())
}

/// Measures so often and reports the median of each name.
async fn repeat(
    rounds: u32,
    names: &[&str],
    measure: impl AsyncFn() -> Result<measure::Round>,
) -> Result<()> {
    let mut measured = Vec::new();
    for _ in 0..rounds {
        measured.push(measure().await?);
    }
    names.iter().for_each(|name| measure::report(name, &measured));
    Ok(())
}
