//! `fuzz`: the targets of the fuzz crate, built for libFuzzer by the toolchain that is pinned, without cargo-fuzz.
//!
//! A run is the same each time: the checked-in corpus, a fixed number of inputs, a fixed seed. Whoever wants to search
//! for long runs one target with many `--runs`, or cargo-fuzz (see `fuzz/README.md`).

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Target {
    name: &'static str,
    /// How many inputs a run tries, as many as take some seconds.
    runs: u64,
    /// Bytes of an input at most.
    longest: u32,
}

const TARGETS: [Target; 3] = [
    Target { name: "wire", runs: 500_000, longest: 1_024 },
    Target { name: "admission", runs: 1_000, longest: 256 },
    Target { name: "disposition", runs: 250, longest: 256 },
];

/// What cargo-fuzz passes as well, without a sanitizer: counters for every edge, and the operands of comparisons.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";
const SEED: u32 = 20_260_101;
/// A run that takes longer ends there; it found nothing until then.
const LONGEST_SECONDS: u32 = 120;
/// One input that takes longer is a finding.
const HANGS_SECONDS: u32 = 30;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this target
    target: Option<String>,
    /// How many inputs are tried, without an end to the time it takes
    #[arg(long)]
    runs: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named = |target: &&Target| options.target.as_ref().is_none_or(|name| name == target.name);
    let chosen: Vec<_> = TARGETS.iter().filter(named).collect();
    if chosen.is_empty() {
        bail!("the targets are {}", TARGETS.map(|target| target.name).join(", "));
    }
    let programs = build()?;
    let mut failed = Vec::new();
    for target in chosen {
        if !fuzz(target, options.runs, &programs)? {
            failed.push(target.name);
        }
    }
    if !failed.is_empty() {
        bail!("fuzzing failed: {}", failed.join(", "));
    }
    Ok(())
}

/// All targets as CI runs them.
pub(crate) fn run_all() -> Result<()> {
    run(&Options { target: None, runs: None })
}

/// Builds the targets and says in which folder they are. Naming the machine's own platform keeps the flags away from
/// build scripts, which are no fuzz targets. Little optimisation: a run is short, and a build is not.
fn build() -> Result<PathBuf> {
    let platform = platform()?;
    let arguments = ["build", "--release", "--locked", "--bins", "--manifest-path", "fuzz/Cargo.toml"];
    let mut command = workspace::cargo(arguments);
    command.args(["--target-dir", "target/fuzz", "--target", &platform]);
    command.env("RUSTFLAGS", INSTRUMENTED).env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    println!("{}", workspace::spoken(&command));
    if !command.status()?.success() {
        bail!("the fuzz targets don't build");
    }
    Ok(workspace::root().join("target/fuzz").join(platform).join("release"))
}

fn platform() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(workspace::root()).output()?;
    let said = String::from_utf8(output.stdout)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc doesn't say its host")?.to_owned())
}

/// Whether nothing was found.
fn fuzz(target: &Target, runs: Option<u64>, programs: &Path) -> Result<bool> {
    let root = workspace::root();
    let artifacts = root.join("target/fuzz-artifacts").join(target.name);
    fs::create_dir_all(&artifacts)?;
    let corpus = root.join("fuzz/corpus").join(target.name);
    let scratch = Scratch::new(target.name)?;
    let found = scratch.0.join("corpus");
    fs::create_dir(&found)?;
    let program = programs.join(target.name);
    let mut command = Command::new(&program);
    // New inputs go into the first folder, so that the checked-in one stays as it is.
    command.args([&found, &corpus]).env("TMPDIR", &scratch.0).current_dir(&root);
    command.arg(format!("-runs={}", runs.unwrap_or(target.runs)));
    command.arg(format!("-seed={SEED}")).arg(format!("-max_len={}", target.longest));
    command.arg(format!("-timeout={HANGS_SECONDS}")).args(["-print_final_stats=1", "-verbosity=0"]);
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    if runs.is_none() {
        command.arg(format!("-max_total_time={LONGEST_SECONDS}"));
    }
    println!("fuzzing {}", target.name);
    let passed = command.status().with_context(|| program.display().to_string())?.success();
    if !passed {
        println!("the failing input is the newest file in {}", artifacts.display());
        println!("replay it: {} FILE", program.display());
    }
    Ok(passed)
}

/// A folder for databases and new inputs, in memory where that is possible, and gone afterwards: a fuzz target ends
/// without cleaning up.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = place.join(format!("highwater-fuzz-{name}-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}
