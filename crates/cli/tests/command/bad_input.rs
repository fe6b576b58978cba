//! Wrong input: one line that says what to do, exit 1 or 2, and nothing changed.

use crate::support::{Backend, Home, run};

const NOBODY: &str = "00000000000000000000000000000000000000000000000000000000000000aa";
const NO_GROUP: &str = "000000000000000000000000000000aa";

#[test]
fn wrong_usage_exits_2_with_one_line() {
    for arguments in [
        &["frobnicate"][..],
        &["send"],
        &["send", "--home", "x", "--group", "zz", "hello"],
        &["send", "--home", "x", "--group", NO_GROUP],
        &["stream", "--home", "x", "--count", "0"],
        &["stream", "--home", "x", "--timeout", "soon"],
        &["stream", "--home", "x", "--group", "ABCDEF"],
        &["replay", "--home", "x", "--from", "12"],
        &["group", "create", "--home", "x", "--member", "bob"],
        &["group", "create", "--home", "x"],
        &["group", "create", "--home", "x", "--dm", NOBODY, "--name", "n"],
        &["init", "--home", "x", "--backend", "127.0.0.1:5050"],
        &["init", "--home", "/nonexistent-home-of-a-test"],
        &["serve", "--listen", "here", "--database", "sqlite:x"],
        &["serve", "--database", "x"],
        &["demo", "--messages", "0"],
    ] {
        let ran = run(arguments);
        let line = ran.failed(2);
        assert!(line.len() > 20, "{arguments:?}: {line}");
    }
    assert!(!std::path::Path::new("x").exists());
}

#[test]
fn a_home_that_was_never_made_is_named_with_the_command_that_makes_it() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("nobody");
    let home = home.to_str().unwrap();
    for command in [&["status"][..], &["audit"], &["sync"], &["stream"], &["history"], &["whoami"]] {
        let mut arguments = command.to_vec();
        arguments.extend(["--home", home]);
        assert!(run(&arguments).failed(1).contains("highwater init"), "{command:?}");
    }
    assert!(!std::path::Path::new(home).exists());
}

#[test]
fn what_doesnt_exist_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "one");
    let foreign = bob.run("sync", &[]);
    foreign.one();
    let history = bob.run("history", &[]);
    let cursor = history.all().last().unwrap()["cursor"].as_str().unwrap().to_owned();
    let long = "n".repeat(101);
    let before = alice.run("status", &[]).one().clone();

    for (command, more) in [
        ("send", &["--group", NO_GROUP, "hello"][..]),
        ("group create", &["--member", NOBODY]),
        ("group create", &["--member", &bob.inbox, "--name", &long]),
        ("group create", &["--dm", &alice.inbox]),
        ("group add", &["--group", &group, "--member", NOBODY]),
        ("group add", &["--group", NO_GROUP, "--member", &bob.inbox]),
        ("group remove", &["--group", &group, "--member", NOBODY]),
        ("group rename", &["--group", &group, "--name", &long]),
        ("group members", &["--group", NO_GROUP]),
        ("stream", &["--group", NO_GROUP]),
        ("history", &["--group", NO_GROUP]),
        ("replay", &["--from", &cursor]),
    ] {
        let ran = alice.run(command, more);
        ran.failed(1);
        assert_eq!(alice.run("status", &[]).one(), &before, "{command} {more:?} changed something");
    }
    let bobs = bob.run("group remove", &["--group", &group, "--member", &alice.inbox]);
    assert_eq!(bobs.code, Some(1), "{bobs:?}");
    alice.assert_clean();
}

/// Shows: PROC-036.
#[test]
fn a_damaged_home_is_reported_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let key = alice.dir.join("client.key");
    let right = std::fs::read(&key).unwrap();

    std::fs::write(&key, "not a key").unwrap();
    assert!(alice.run("status", &[]).failed(1).contains("client.key"));
    std::fs::write(&key, "0".repeat(64)).unwrap();
    let wrong = alice.run("status", &[]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("key"), "{wrong:?}");
    std::fs::remove_file(&key).unwrap();
    let init = run(&["init", "--home", alice.path(), "--backend", &backend.url]);
    assert!(init.failed(1).contains("client.key"));
    std::fs::write(&key, right).unwrap();
    assert_eq!(alice.run("whoami", &[]).one()["inbox_id"], alice.inbox.as_str());
    alice.assert_clean();
}

#[test]
fn secrets_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    for name in ["client.key", "wallet.key"] {
        let mode = std::fs::metadata(alice.dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let left: Vec<_> = std::fs::read_dir(&alice.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
