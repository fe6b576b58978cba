//! SIGKILL at any moment, then again.

use std::time::{Duration, Instant};

use crate::support::{Backend, Home, Lines, run, signal, start};

/// Shows: STR-095, PROC-052.
#[test]
fn a_killed_stream_repeats_its_last_line_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    for text in ["one", "two", "three"] {
        alice.send(&group, text);
    }
    let mut child = bob.start("stream", &["--pace", "200"]);
    let mut lines = Lines::of(&mut child);
    assert_eq!(lines.next_message()["text"], "one");
    assert_eq!(lines.next_message()["text"], "two");
    child.kill().unwrap();
    child.wait().unwrap();
    // The dead owner's place is free at once, well before its lease ends.
    let started = Instant::now();
    let again = bob.run("stream", &["--count", "2", "--timeout", "20"]);
    assert_eq!(again.texts(), ["two", "three"]);
    assert!(started.elapsed() < Duration::from_secs(10));
    bob.assert_clean();
}

/// Shows: STR-023, STR-096, PROC-031.
#[test]
fn a_second_stream_is_told_that_another_is_active() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "one");
    let mut first = alice.start("stream", &[]);
    let mut lines = Lines::of(&mut first);
    lines.next_message();
    let second = alice.run("stream", &["--timeout", "5"]);
    assert!(second.failed(1).contains("AlreadyActive"), "{second:?}");
    // Other commands on the home are no consumers.
    alice.send(&group, "two");
    assert_eq!(lines.next_message()["text"], "two");
    signal(&first, "INT");
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(alice.run("stream", &["--timeout", "1"]).texts().is_empty());
}

#[test]
fn init_killed_anywhere_and_run_again_ends_with_one_inbox() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let bob = Home::init(dir.path().join("bob"), &backend);
    let home = dir.path().join("alice");
    let arguments = ["init", "--home", home.to_str().unwrap(), "--backend", &backend.url];
    let mut wallet = None;
    for delay in [1, 5, 10, 20, 40, 60, 80, 100, 130, 160] {
        let mut child = start(&arguments);
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        if let Ok(key) = std::fs::read(home.join("wallet.key")) {
            assert_eq!(*wallet.get_or_insert_with(|| key.clone()), key);
        }
    }
    let first = run(&arguments);
    let again = run(&arguments);
    assert_eq!(first.one(), again.one());
    let alice = Home { dir: home, inbox: first.one()["inbox_id"].as_str().unwrap().to_owned() };
    let group = bob.group_with(&[&alice]);
    bob.send(&group, "hello");
    alice.run("sync", &[]).one();
    assert_eq!(alice.run("history", &[]).texts(), ["hello"]);
    alice.assert_clean();
}

/// Shows: STR-110, STR-077.
#[test]
fn commands_killed_at_any_moment_lose_nothing_that_was_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    let mut reported = Vec::new();
    for round in 0..8u64 {
        let text = format!("killed {round}");
        let mut child = alice.start("send", &["--group", &group, &text]);
        std::thread::sleep(Duration::from_millis(15 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut child = bob.start("sync", &[]);
        std::thread::sleep(Duration::from_millis(12 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 3 == 2 {
            backend.kill();
            backend.restart();
        }
        let text = format!("reported {round}");
        assert_eq!(alice.send(&group, &text)["outcome"], "confirmed");
        reported.push(text);
    }
    alice.run("sync", &[]).one();
    bob.run("sync", &[]).one();
    let history = bob.run("history", &[]);
    let texts = history.texts();
    let mut unique = texts.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), texts.len(), "something came twice: {texts:?}");
    let found: Vec<_> = texts.iter().filter(|text| text.starts_with("reported")).collect();
    assert_eq!(found, reported.iter().collect::<Vec<_>>());
    assert_eq!(alice.run("history", &[]).texts(), texts);
    alice.assert_clean();
    bob.assert_clean();
}
