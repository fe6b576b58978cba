//! Without a backend: what was sent is kept, what is stored can be read.

use std::time::Duration;

use crate::support::{Backend, Home};

/// Shows: STR-111, PROC-048, STR-043.
#[test]
fn sending_without_a_backend_queues_and_the_next_send_brings_both_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "before");
    bob.run("sync", &[]).one();
    backend.kill();

    let queued = alice.run("send", &["--group", &group, "queued"]);
    assert_eq!(queued.one()["outcome"], "queued");
    assert!(queued.took < Duration::from_secs(8), "{queued:?}");
    assert_eq!(alice.run("status", &[]).one()["unsettled"], 1);
    assert_eq!(bob.run("history", &[]).texts(), ["before"]);
    assert_eq!(bob.run("stream", &["--count", "1"]).texts(), ["before"]);
    assert_eq!(bob.run("replay", &[]).texts(), ["before"]);
    assert_eq!(bob.run("group list", &[]).all().len(), 1);
    assert_eq!(bob.run("group members", &["--group", &group]).all().len(), 1);
    bob.assert_clean();
    let incomplete = bob.run("sync", &["--timeout", "5"]);
    assert_eq!(incomplete.code, Some(3), "{incomplete:?}");
    assert_eq!(incomplete.lines[0]["event"], "incomplete");
    let obligations = incomplete.lines[0]["obligations"].as_array().unwrap();
    assert!(obligations.iter().any(|one| one["kind"] == "group"), "{obligations:?}");

    backend.restart();
    let next = alice.send(&group, "after");
    assert_eq!(next["outcome"], "confirmed");
    bob.run("sync", &[]).one();
    assert_eq!(bob.run("history", &[]).texts(), ["before", "queued", "after"]);
    let history = bob.run("history", &[]);
    let of_queued = history.all().iter().find(|line| line["text"] == "queued").unwrap();
    assert_eq!(of_queued["message_id"], queued.one()["message_id"]);
    alice.assert_clean();
    bob.assert_clean();
}

#[test]
fn a_group_made_without_a_backend_comes_to_its_members_with_the_next_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    backend.kill();

    let created = alice.run("group create", &["--member", &bob.inbox, "--name", "later"]);
    assert_eq!(created.one()["outcome"], "queued");
    let group = created.one()["group_id"].as_str().unwrap().to_owned();
    assert_eq!(alice.run("send", &["--group", &group, "welcome"]).one()["outcome"], "queued");

    backend.restart();
    let synced = alice.run("sync", &[]);
    assert_eq!(synced.one()["unsettled"], 0);
    bob.run("sync", &[]).one();
    assert_eq!(bob.run("history", &[]).texts(), ["welcome"]);
    assert_eq!(bob.run("group list", &[]).one()["name"], "later");
}

/// Shows: STR-036, STR-061.
#[test]
fn two_who_lost_their_connection_for_the_whole_exchange_get_everything_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    backend.kill();
    for n in 0..5 {
        alice.run("send", &["--group", &group, &format!("a{n}")]).one();
        bob.run("send", &["--group", &group, &format!("b{n}")]).one();
    }
    backend.restart();
    alice.run("sync", &[]).one();
    bob.run("sync", &[]).one();
    alice.run("sync", &[]).one();
    let (to_alice, to_bob) = (alice.run("history", &[]), bob.run("history", &[]));
    assert_eq!(to_alice.texts(), to_bob.texts());
    for sender in ["a", "b"] {
        let mut own = to_bob.texts();
        own.retain(|text| text.starts_with(sender));
        assert_eq!(own, (0..5).map(|n| format!("{sender}{n}")).collect::<Vec<_>>());
    }
}

#[test]
fn another_backend_can_be_named_for_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Backend::start(dir.path());
    let alice = Home::init(dir.path().join("alice"), &backend);
    let bob = Home::init(dir.path().join("bob"), &backend);
    let group = alice.group_with(&[&bob]);
    let nowhere = ["--group", group.as_str(), "--backend", "http://127.0.0.1:9", "hello"];
    assert_eq!(alice.run("send", &nowhere).one()["outcome"], "queued");
    assert_eq!(alice.run("sync", &[]).one()["unsettled"], 0);
    assert_eq!(backend.terminate(), Some(0));
}
