//! A reader who goes away, as `head` does, ends a command quietly.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use crate::support::{Backend, Home, Lines, Ran, binary, ended, finish, signal};

/// Runs a command whose output nobody reads.
fn unread(arguments: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    finish(binary().args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap())
}

fn assert_quiet(ran: &Ran, arguments: &[&str]) {
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}");
}

#[test]
fn the_line_that_a_reader_who_left_could_not_get_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "one");
    let mut child = bob.start("stream", &[]);
    let mut lines = Lines::of(&mut child);
    assert_eq!(lines.next_message()["text"], "one");
    drop(lines);
    alice.send(&group, "two");
    assert_eq!(ended(&mut child), Some(0));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(complaint, "");
    assert_eq!(bob.run("stream", &["--count", "1"]).texts(), ["two"]);
    bob.assert_clean();
}

#[test]
fn no_command_complains_of_a_reader_who_left() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "hello");
    let group = ["--group", group.as_str()];
    for (command, more) in [
        ("init", &[][..]),
        ("whoami", &[]),
        ("group list", &[]),
        ("group members", &group),
        ("group rename", &[&group[..], &["--name", "harbour"]].concat()),
        ("send", &[&group[..], &["nobody is told"]].concat()),
        ("sync", &[]),
        ("history", &[]),
        ("history", &["--limit", "1"]),
        ("replay", &[]),
        ("replay", &["--count", "1"]),
        ("status", &[]),
        ("audit", &[]),
    ] {
        let arguments: Vec<_> =
            command.split(' ').chain(["--home", alice.path()]).chain(more.iter().copied()).collect();
        assert_quiet(&unread(&arguments), &arguments);
    }
    assert_quiet(&unread(&["--help"]), &["--help"]);
    // What the command was to do is done.
    bob.run("sync", &[]).one();
    assert_eq!(bob.run("history", &[]).texts(), ["hello", "nobody is told"]);
}

#[test]
fn a_demonstration_whose_reader_left_claims_nothing() {
    let ran = unread(&["demo", "--messages", "10"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""));
}

#[test]
fn a_failure_keeps_its_status_when_nobody_reads_why() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = binary().arg("frobnicate").stderr(writer).spawn().unwrap();
    assert_eq!(ended(&mut child), Some(2));
}

#[test]
fn a_backend_serves_on_when_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", dir.path().join("backend.db").display());
    let mut child = binary()
        .args(["--json", "serve", "--listen", "127.0.0.1:0", "--database", &database])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    signal(&child, "TERM");
    assert_quiet(&finish(child), &["serve"]);
}
