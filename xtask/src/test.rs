//! `test`: everything CI checks, every step even when an earlier one failed, and where the time went.
//!
//! The order is by cost of finding out. Clippy and the documentation share the checked dependencies;
//! the workspace's tests compile everything for real, once, and the conformance table is read from
//! that one run. Two more builds follow: the backend alone, since without the client crates its SQLite is
//! the plain one, which feature unification hides otherwise; and the fuzz targets.

use crate::{conformance, fuzz, lint, prepare, suite, workspace};
use anyhow::{Result, bail};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

struct Step {
    name: &'static str,
    run: fn() -> Result<Outcome>,
}

const STEPS: [Step; 13] = [
    Step { name: "prepare", run: || prepare::run().map(|()| Outcome::Passed) },
    Step { name: "format", run: || run_cargo(&["fmt", "--all", "--check"], &[]) },
    Step {
        name: "format (fuzz)",
        run: || run_cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"], &[]),
    },
    Step { name: "lint", run: || lint::run(&lint::Options::default()).map(|()| Outcome::Passed) },
    Step { name: "catalogue", run: || conformance::report_catalogue().map(|()| Outcome::Passed) },
    Step {
        name: "clippy",
        run: || {
            let flags = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            run_cargo(&flags, &[])
        },
    },
    Step {
        name: "documentation",
        run: || {
            let flags = ["doc", "--workspace", "--no-deps"];
            run_cargo(&flags, &[("RUSTDOCFLAGS", "-D warnings")])
        },
    },
    Step {
        // The same units as the tests', and the binaries that system tests start besides.
        name: "build",
        run: || run_cargo(&["build", "--workspace", "--all-targets"], &[]),
    },
    Step { name: "tests", run: workspace_tests },
    Step {
        name: "conformance",
        run: || conformance::report_run(&suite::output_path(), false).map(|()| Outcome::Passed),
    },
    Step {
        name: "backend alone",
        run: || run_cargo(&["test", "-p", "highwater-backend", "--no-fail-fast"], &[]),
    },
    // The second of the two other builds: instrumented, so nothing of the workspace's can be used.
    Step { name: "fuzz", run: || fuzz::run_all().map(|()| Outcome::Passed) },
    Step { name: "licences", run: licences },
];

pub(crate) fn run() -> Result<()> {
    for missing in missing_tools() {
        println!("missing: {missing}");
    }
    let mut report = Vec::new();
    for step in STEPS {
        println!("\n== {}", step.name);
        let start = Instant::now();
        let outcome = (step.run)().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(why) = &outcome {
            println!("{} failed: {why}", step.name);
        }
        report.push((step.name, start.elapsed(), outcome));
    }
    print_report(&report);
    let failed = report.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_)));
    let failed: Vec<_> = failed.map(|(name, _, _)| *name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn print_report(report: &[(&str, Duration, Outcome)]) {
    println!("\n{:<16} {:>8}  outcome", "step", "seconds");
    let mut total = Duration::ZERO;
    for (name, took, outcome) in report {
        total += *took;
        let words = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        println!("{name:<16} {:>8.1}  {words}", took.as_secs_f64());
    }
    println!("{:<16} {:>8.1}", "all", total.as_secs_f64());
}

fn run_cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Outcome> {
    let mut command = workspace::cargo(arguments);
    command.envs(environment.iter().copied());
    let spoken = workspace::spoken(&command);
    println!("{spoken}");
    Ok(if command.status()?.success() { Outcome::Passed } else { Outcome::Failed(spoken) })
}

fn workspace_tests() -> Result<Outcome> {
    println!("cargo test --workspace");
    Ok(if suite::workspace_tests()? {
        Outcome::Passed
    } else {
        Outcome::Failed("cargo test --workspace".to_owned())
    })
}

fn licences() -> Result<Outcome> {
    if !answers("cargo", &["deny", "--version"]) {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed (cargo install --locked cargo-deny)".to_owned(),
        ));
    }
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let flags = ["deny", "--manifest-path", manifest, "--all-features"];
        let checks = ["check", "--config", "deny.toml", "bans", "licenses", "sources"];
        if let failed @ Outcome::Failed(_) = run_cargo(&[&flags[..], &checks].concat(), &[])? {
            return Ok(failed);
        }
    }
    Ok(Outcome::Passed)
}

/// What the build needs and rustup doesn't bring.
fn missing_tools() -> Vec<String> {
    let needed = [
        ("cc", "--version", "a C compiler builds SQLCipher and OpenSSL"),
        ("make", "--version", "OpenSSL's build needs it"),
        ("perl", "-v", "OpenSSL's configuration needs it"),
    ];
    needed
        .iter()
        .filter(|(tool, flag, _)| !answers(tool, &[flag]))
        .map(|(tool, _, why)| format!("{tool}: {why}; install it with the system's package manager"))
        .collect()
}

fn answers(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
