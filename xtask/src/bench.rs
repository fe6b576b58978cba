//! `bench`: runs the benchmark binary, which prints one JSON object per measurement, and holds its
//! ratios against the recorded ones. A ratio is the floor's time over ours, both measured in one run,
//! so it means the same on every machine and more is better.

use crate::workspace;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

const PATH: &str = "xtask/bench-ratios.toml";
const TOLERANCE: f64 = 0.1;
const HEAD: &str = "\
# Ratios of a floor's time to ours, measured in one run; more is better. A run may fall below `ratio` by
# `tolerance`. `cargo xtask bench --record` writes what it measured and keeps tolerances.

";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fail when a ratio is below its record by more than its tolerance
    #[arg(long, conflicts_with = "record")]
    check: bool,
    /// Write the measured ratios into the record
    #[arg(long)]
    record: bool,
    /// Passed to the benchmark binary
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// One measurement as the benchmark binary prints it; times in microseconds.
#[derive(Debug, Clone, Deserialize)]
struct Measurement {
    bench: String,
    ratio: f64,
    floor_us: f64,
    measured_us: f64,
    unit: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    ratio: f64,
    #[serde(default = "tolerance")]
    tolerance: f64,
}

type Records = BTreeMap<String, Record>;

fn tolerance() -> f64 {
    TOLERANCE
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let measured = measure(&options.arguments)?;
    print_table(&measured);
    let root = workspace::root();
    if options.record {
        let records = record(load(&root)?, &measured);
        fs::write(root.join(PATH), format!("{HEAD}{}", toml::to_string(&records)?))?;
        println!("{PATH}: {} ratios recorded", records.len());
    }
    if options.check {
        // Naming benchmarks measures only some of them; then the others' absence says nothing.
        let all_ran = options.arguments.is_empty();
        let failures = compare(&load(&root)?, &measured, all_ran);
        for failure in &failures {
            println!("{failure}");
        }
        if !failures.is_empty() {
            bail!("{} ratios don't hold", failures.len());
        }
    }
    Ok(())
}

/// Runs the client's benchmarks and the server's. Flags are the client's alone, and measure only it.
fn measure(arguments: &[String]) -> Result<Vec<Measurement>> {
    let client = ["run", "--release", "-p", "highwater-tests", "--bin", "bench", "--"];
    let server = ["bench", "-p", "highwater-backend", "--bench", "server", "--"];
    let mut measured = run_binary(&client, arguments)?;
    if !arguments.iter().any(|argument| argument.starts_with('-')) {
        measured.extend(run_binary(&server, arguments)?);
    }
    if measured.is_empty() {
        bail!("the benchmark measured nothing");
    }
    Ok(measured)
}

fn run_binary(cargo: &[&str], arguments: &[String]) -> Result<Vec<Measurement>> {
    let mut command = workspace::cargo(cargo);
    command.args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo run did not start")?;
    let stdout = child.stdout.take().context("the benchmark has no output")?;
    let mut measured = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line.starts_with('{') {
            measured.push(serde_json::from_str(&line).with_context(|| format!("in {line}"))?);
        } else {
            println!("{line}");
        }
    }
    if !child.wait()?.success() {
        bail!("the benchmark failed");
    }
    Ok(measured)
}

fn print_table(measured: &[Measurement]) {
    println!("{:<40} {:>7} {:>12} {:>12}  unit", "benchmark", "ratio", "floor µs", "ours µs");
    for m in measured {
        println!("{:<40} {:>7.3} {:>12.2} {:>12.2}  {}", m.bench, m.ratio, m.floor_us, m.measured_us, m.unit);
    }
}

fn load(root: &Path) -> Result<Records> {
    let text = match fs::read_to_string(root.join(PATH)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {PATH}")),
    };
    toml::from_str(&text).with_context(|| format!("in {PATH}"))
}

fn record(mut records: Records, measured: &[Measurement]) -> Records {
    for m in measured {
        let ratio = (m.ratio * 1000.0).round() / 1000.0;
        let entry = records.entry(m.bench.clone()).or_insert(Record { ratio, tolerance: TOLERANCE });
        entry.ratio = ratio;
    }
    records
}

fn compare(records: &Records, measured: &[Measurement], all_ran: bool) -> Vec<String> {
    let mut failures = Vec::new();
    for m in measured {
        match records.get(&m.bench) {
            None => failures.push(format!("{}: not recorded; run `cargo xtask bench --record`", m.bench)),
            Some(record) if m.ratio.is_nan() || m.ratio < record.ratio - record.tolerance => {
                failures.push(format!(
                    "{}: {:.3} is below the recorded {:.3} by more than {:.3}; profile it",
                    m.bench, m.ratio, record.ratio, record.tolerance
                ))
            }
            Some(_) => {}
        }
    }
    for name in records.keys().filter(|_| all_ran) {
        if !measured.iter().any(|m| m.bench == *name) {
            failures.push(format!(
                "{name}: recorded and not measured; remove the record from {PATH} or restore the benchmark"
            ));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(bench: &str, ratio: f64) -> Measurement {
        let line = format!(
            r#"{{"bench":"{bench}","ratio":{ratio},"floor_us":50.0,"measured_us":60.0,"unit":"per message"}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_ratio_holds_within_its_tolerance_and_not_below() {
        let records = record(Records::new(), &[measured("path", 0.8)]);
        assert!(compare(&records, &[measured("path", 0.71)], true).is_empty());
        assert_eq!(compare(&records, &[measured("path", 0.69)], true).len(), 1);
    }

    #[test]
    fn unknown_and_missing_benchmarks_do_not_hold() {
        let records = record(Records::new(), &[measured("path", 0.8)]);
        let other = [measured("other", 0.8)];
        assert_eq!(compare(&records, &other, true).len(), 2);
        assert_eq!(compare(&records, &other, false).len(), 1);
    }

    #[test]
    fn recording_keeps_a_tolerance_and_survives_the_file() {
        let mut records = record(Records::new(), &[measured("path", 0.8)]);
        records.get_mut("path").unwrap().tolerance = 0.02;
        let records = record(records, &[measured("path", 0.81)]);
        let text = format!("{HEAD}{}", toml::to_string(&records).unwrap());
        let read: Records = toml::from_str(&text).unwrap();
        assert_eq!(read, records);
        assert_eq!(read["path"].ratio, 0.81);
        assert_eq!(read["path"].tolerance, 0.02);
    }
}
