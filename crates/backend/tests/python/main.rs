//! The server as Python's stock grpcio sees it: nothing of this project on the client's side but the
//! `.proto` files. The checks themselves are in `tests/python` of the workspace.

// The fixture is shared with the server suite, which uses all of it.
#![allow(dead_code)]

mod envelopes;
#[path = "../server/fixture.rs"]
mod fixture;
#[path = "../server/people.rs"]
mod people;
mod servers;
mod venv;

const ENGINE: fixture::Engine = fixture::Engine::Sqlite;

use std::{path::Path, process::Stdio, time::Duration};

use tempfile::TempDir;
use tokio::process::Command;

use crate::{servers::Servers, venv::Venv};

/// Longer than all Python tests together may take.
const LONG: Duration = Duration::from_secs(300);

/// Shows: STR-001, STR-003, STR-005, STR-006, STR-007, STR-009, STR-032, STR-033, STR-050, STR-051.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_grpcio_gets_what_the_protocol_promises() {
    let venv = Venv::ready().await;
    let folder = TempDir::new().expect("a temporary folder");
    let made = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    let (stubs, fixtures, signals) = (made("stubs"), made("fixtures"), made("signals"));
    venv.generate_stubs(&stubs).await;
    envelopes::write(&fixtures);
    let servers = Servers::start(&signals).await;

    let mut python = venv.python();
    python
        .args(["-m", "unittest", "discover", "-v", "-s"])
        .arg(venv::workspace().join("tests/python"))
        .env("PYTHONPATH", &stubs)
        .env("HIGHWATER_FIXTURES", &fixtures)
        .env("HIGHWATER_SIGNALS", &signals)
        .envs(servers.addresses());
    let report = run(python, LONG).await;
    assert!(!report.contains("Ran 0 tests"), "no test was found:\n{report}");
    servers.stop().await;
}

/// Runs a command to its end and gives what it wrote; a failure shows that.
async fn run(mut command: Command, limit: Duration) -> String {
    // Without the caller's end there is none to look at the output.
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match tokio::time::timeout(limit, running).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("can't run {command:?}: {error}")),
        Err(_) => panic!("not in time: {command:?}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report = format!("{out}{err}");
    assert!(output.status.success(), "{command:?}: {}\n{report}", output.status);
    report
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::write(path, content).unwrap_or_else(|error| panic!("can't write {}: {error}", path.display()));
}
