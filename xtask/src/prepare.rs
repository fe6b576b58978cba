//! `prepare`: what the tests need besides Rust and can't bring themselves. Programs of the system come from
//! Debian's packages where that is possible, the browser test's packages from npm, at the versions of its
//! lock file. What is there already is left alone, so the second run takes no time and no network.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the browser test and its packages are.
const BROWSER: &str = "tests/browser";
/// A copy of the lock file that the installed packages are of.
const INSTALLED: &str = "node_modules/.installed-lock.json";

/// A program of the system.
struct Program {
    what: &'static str,
    /// Debian's name of it.
    package: &'static str,
    is_there: fn() -> bool,
}

const PROGRAMS: [Program; 5] = [
    Program { what: "PostgreSQL's server", package: "postgresql", is_there: has_postgres },
    Program { what: "Chromium", package: "chromium", is_there: || on_path("chromium") },
    Program { what: "Node.js", package: "nodejs", is_there: || on_path("node") },
    Program { what: "npm", package: "npm", is_there: || on_path("npm") },
    Program { what: "Python", package: "python3-venv", is_there: || on_path("python3") },
];

pub(crate) fn run() -> Result<()> {
    for program in PROGRAMS.iter().filter(|program| !(program.is_there)()) {
        install(program)?;
    }
    browser_packages(&workspace::root().join(BROWSER))
}

fn install(program: &Program) -> Result<()> {
    let Program { what, package, is_there } = program;
    let missing =
        format!("{what} is missing: install it with the system's package manager (Debian: {package})");
    if !on_path("apt-get") || !is_root() {
        bail!("{missing}");
    }
    println!("installing {what}");
    // Lists of packages may be absent or old; they are only fetched when they have to be.
    if !apt(&["install", "-y", "--no-install-recommends", package]) {
        apt(&["update"]);
        apt(&["install", "-y", "--no-install-recommends", package]);
    }
    if !is_there() {
        bail!("{missing}");
    }
    Ok(())
}

fn apt(arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn browser_packages(folder: &Path) -> Result<()> {
    let lock = fs::read(folder.join("package-lock.json")).context("tests/browser/package-lock.json")?;
    let installed = folder.join(INSTALLED);
    if fs::read(&installed).is_ok_and(|found| found == lock) {
        return Ok(());
    }
    println!("npm ci in {BROWSER}");
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-fund", "--no-audit"]).current_dir(folder);
    if !command.status().context("npm did not start")?.success() {
        bail!("npm ci failed in {BROWSER}");
    }
    fs::write(installed, lock)?;
    Ok(())
}

fn has_postgres() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|entry| entry.path().join("bin/initdb")).any(|initdb| initdb.exists()) || on_path("initdb")
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}
