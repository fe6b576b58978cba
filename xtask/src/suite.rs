//! Runs the workspace's tests once, for whoever wants their outcome: everything goes to the terminal
//! and to a file that the conformance table is made from.

use crate::workspace;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// Where the last run's output is kept.
pub(crate) fn output_path() -> PathBuf {
    workspace::root().join("target/test-output.txt")
}

/// Unit, integration and documentation tests of the whole workspace; false when any failed.
pub(crate) fn workspace_tests() -> Result<bool> {
    let path = output_path();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut kept = File::create(&path).with_context(|| path.display().to_string())?;
    // One pipe for both streams: cargo's headers go to stderr and the results to stdout, and their
    // order says which executable a result belongs to.
    let (reader, writer) = std::io::pipe()?;
    let mut command = workspace::cargo([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--message-format=json-render-diagnostics",
    ]);
    command
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TERM_PROGRESS_WHEN", "never")
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn().context("cargo test did not start")?;
    // The command holds the pipe's writing end; as long as it lives the reader never sees the end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        kept.write_all(&line)?;
        if !line.starts_with(b"{\"reason\":") {
            std::io::stdout().write_all(&line)?;
        }
        line.clear();
    }
    Ok(child.wait()?.success())
}
