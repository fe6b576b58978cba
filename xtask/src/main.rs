//! Every developer and CI command of Highwater: `cargo xtask prepare | test | lint | conformance | fuzz | bench | soak`.
//!
//! Owns the checks that no crate can make about itself: the arrows between crates, who names which
//! table, whether the documents point at something, and which requirement is shown by which test.
//! Only `prepare`, with which `test` begins, installs anything beyond what cargo does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to its terminal")]

mod bench;
mod catalogue;
mod conformance;
mod finding;
mod fuzz;
mod lint;
mod prepare;
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
    /// Installs what the tests need besides Rust: PostgreSQL, Chromium, the browser test's packages
    Prepare,
    /// Everything CI checks, in order, with a table of where the time went
    Test,
    /// The architecture: arrows, tables, documents, file sizes, leftovers
    Lint(lint::Options),
    /// Requirement id, status, tests and verdict
    Conformance(conformance::Options),
    /// The fuzz targets, each for a fixed number of inputs
    Fuzz(fuzz::Options),
    /// Ratios to a floor measured in the same run
    Bench(bench::Options),
    /// The long system tests
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Prepare => prepare::run(),
        Command::Test => test::run(),
        Command::Lint(options) => lint::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
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
