//! Every developer and CI command of Highwater: `cargo xtask test | lint | conformance | bench | soak`.
//!
//! Owns the checks that no crate can make about itself: the arrows between crates, who names which
//! table, whether the documents point at something, and which requirement is shown by which test.
//! It deliberately doesn't build or install anything beyond what cargo does, and it needs no network
//! of its own.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

mod bench;
mod catalogue;
mod conformance;
mod finding;
mod lint;
mod soak;
mod source;
mod suite;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every developer and CI command")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI checks, in order, with a table of where the time went
    Test,
    /// The architecture: arrows, tables, documents, file sizes, leftovers
    Lint(lint::Options),
    /// Requirement id, status, tests and verdict
    Conformance(conformance::Options),
    /// Ratios to a floor measured in the same run
    Bench(bench::Options),
    /// The long system tests
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test => test::run(),
        Command::Lint(options) => lint::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Soak(options) => soak::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
