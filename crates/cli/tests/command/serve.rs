//! `serve` from a configuration file.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{binary, run, signal};

fn written(dir: &std::path::Path, text: &str) -> String {
    let file = dir.join("backend.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_file_is_checked_and_a_bad_one_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("backend.db");
    let good = format!("[database]\nurl = \"sqlite:{}\"\n", database.display());
    let file = written(dir.path(), &good);
    assert_eq!(run(&["serve", "--config", &file, "--check"]).one()["event"], "checked");
    assert!(!database.exists(), "checking opens nothing");
    let file = written(dir.path(), &format!("{good}[limits]\nmax_envelope = 1\n"));
    for arguments in [&["serve", "--config", &file, "--check"][..], &["serve", "--config", &file]] {
        let ran = run(arguments);
        let line = ran.failed(2);
        assert!(line.contains("line 4") && line.contains("max_envelope"), "{line}");
    }
    run(&["serve", "--config", "/nonexistent/backend.toml"]).failed(2);
    run(&["serve", "--config", &file, "--database", "sqlite:x"]).failed(2);
}

/// Shows: STR-035.
#[test]
fn a_configured_server_logs_json_and_ends_in_order_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"env:HIGHWATER_TEST_DATABASE\"\n\
                [logs]\nformat = \"json\"\n";
    let file = written(dir.path(), text);
    let database = format!("sqlite:{}", dir.path().join("backend.db").display());
    let mut child = binary()
        .args(["--json", "serve", "--config", &file])
        .env("HIGHWATER_TEST_DATABASE", &database)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let listening: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(listening["event"], "listening");
    signal(&child, "TERM");
    let mut logs = String::new();
    child.stderr.take().unwrap().read_to_string(&mut logs).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let lines: Vec<Value> = logs.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line["level"].is_string()), "{logs}");
}
