//! Which printed lines count as handled, whatever ends the stream.

use std::path::Path;
use std::time::Duration;

use crate::support::{Backend, Home, Lines, ended, signal};

/// Longer than any test waits.
const FOREVER: [&str; 2] = ["--pace", "600000"];

/// Bob has one, two and three to read.
fn three_for_bob(dir: &Path) -> (Backend, Home) {
    let backend = Backend::start(dir);
    let alice = Home::init(dir.join("alice"), &backend);
    let bob = Home::init(dir.join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    for text in ["one", "two", "three"] {
        alice.send(&group, text);
    }
    bob.run("sync", &[]).one();
    (backend, bob)
}

/// Shows: STR-095.
#[test]
fn a_line_whose_pause_is_interrupted_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, bob) = three_for_bob(dir.path());
    for (name, until) in [("INT", &[][..]), ("TERM", &[]), ("INT", &["--count", "1"])] {
        let mut child = bob.start("stream", &[&FOREVER, until].concat());
        assert_eq!(Lines::of(&mut child).next_message()["text"], "one");
        signal(&child, name);
        assert_eq!(ended(&mut child), Some(0));
    }
    assert_eq!(bob.run("stream", &["--count", "2"]).texts(), ["one", "two"]);
    bob.assert_clean();
}

/// Shows: STR-095.
#[test]
fn a_line_whose_pause_is_longer_than_the_timeout_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, bob) = three_for_bob(dir.path());
    let late = [&FOREVER[..], &["--timeout", "3"]].concat();
    assert_eq!(bob.run("stream", &late).texts(), ["one"]);
    assert_eq!(bob.run("stream", &late).texts(), ["one"]);
    assert_eq!(bob.run("stream", &["--timeout", "3"]).texts(), ["one", "two", "three"]);
}

/// Shows: STR-094.
#[test]
fn a_counted_line_is_handled_once_its_pause_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, bob) = three_for_bob(dir.path());
    let paced = bob.run("stream", &["--count", "2", "--pace", "300"]);
    assert_eq!(paced.texts(), ["one", "two"]);
    assert!(paced.took >= Duration::from_millis(600), "{paced:?}");
    // Without a pause, a line is handled as soon as it is printed.
    let mut child = bob.start("stream", &[]);
    assert_eq!(Lines::of(&mut child).next_message()["text"], "three");
    signal(&child, "INT");
    assert_eq!(ended(&mut child), Some(0));
    assert!(bob.run("stream", &["--timeout", "1"]).texts().is_empty());
}
