//! The command line as a person types it.

use crate::support::{Backend, Home, run};

fn two(dir: &std::path::Path) -> (Backend, Home, Home) {
    let backend = Backend::start(dir);
    let alice = Home::init(dir.join("alice"), &backend);
    let bob = Home::init(dir.join("bob"), &backend);
    (backend, alice, bob)
}

fn is_hex(value: &serde_json::Value, digits: usize) -> bool {
    value.as_str().is_some_and(|text| {
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Shows: PROC-024, PROC-033, STR-098.
#[test]
fn a_message_goes_from_send_to_stream_with_the_documented_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (mut backend, alice, bob) = two(dir.path());
    let who = alice.run("whoami", &[]);
    assert!(is_hex(&who.one()["inbox_id"], 64) && is_hex(&who.one()["installation_id"], 64));

    let created = alice.run("group create", &["--member", &bob.inbox, "--name", "harbour"]);
    let group = created.one()["group_id"].as_str().unwrap().to_owned();
    assert!(is_hex(&created.one()["group_id"], 32));
    assert_eq!(created.one()["outcome"], "confirmed");

    let sent = alice.send(&group, "hello");
    assert_eq!(sent["outcome"], "confirmed");
    assert!(sent["sequence_id"].as_u64().unwrap() > 0);

    let streamed = bob.run("stream", &["--count", "1", "--timeout", "30"]);
    let line = streamed.all().iter().find(|line| line["event"] == "message").unwrap();
    assert_eq!(line["message_id"], sent["message_id"]);
    assert_eq!(line["group_id"], group.as_str());
    assert_eq!(line["sender_inbox_id"], alice.inbox.as_str());
    assert_eq!(line["text"], "hello");
    assert!(line["sent_ns"].as_i64().unwrap() > 0);
    let cursor = line["cursor"].as_str().unwrap();

    let history = bob.run("history", &[]);
    assert_eq!(history.texts(), ["hello"]);
    assert_eq!(history.all().last().unwrap()["cursor"], cursor);
    assert!(bob.run("replay", &["--from", cursor]).all().is_empty());
    assert_eq!(bob.run("replay", &[]).texts(), ["hello"]);

    let synced = bob.run("sync", &[]);
    assert_eq!(synced.one()["event"], "synced");
    let listed = bob.run("group list", &[]);
    assert_eq!(listed.one()["name"], "harbour");
    let members = bob.run("group members", &["--group", &group]);
    let mut found: Vec<_> =
        members.one()["members"].as_array().unwrap().iter().map(|one| one["inbox_id"].clone()).collect();
    found.sort_by_key(|inbox| inbox.to_string());
    let mut expected = [alice.inbox.clone(), bob.inbox.clone()];
    expected.sort();
    assert_eq!(found, expected);

    let status = bob.run("status", &[]);
    let status = status.one();
    assert!(is_hex(&status["database_id"], 32));
    let of_group = status["topics"].as_array().unwrap().iter().find(|one| one["kind"] == "group");
    let of_group = of_group.unwrap();
    assert_eq!(of_group["f"], of_group["p"]);
    assert_eq!((&of_group["pending"], &of_group["held"]), (&0.into(), &serde_json::Value::Null));
    let welcome = status["topics"].as_array().unwrap().iter().find(|one| one["kind"] == "welcome");
    assert!(welcome.unwrap()["p"].is_null());
    assert!(status["groups"][0]["d"].as_u64().unwrap() > 0);
    assert_eq!(status["groups"][0]["state"], "active");

    alice.assert_clean();
    bob.assert_clean();
    assert_eq!(backend.terminate(), Some(0));
}

/// Shows: STR-094, STR-097.
#[test]
fn a_stream_that_ended_by_itself_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, alice, bob) = two(dir.path());
    let group = alice.group_with(&[&bob]);
    for n in 0..5 {
        alice.send(&group, &n.to_string());
    }
    bob.run("sync", &[]).one();
    assert_eq!(bob.run("stream", &["--count", "2"]).texts(), ["0", "1"]);
    assert_eq!(bob.run("stream", &["--count", "1", "--static"]).texts(), ["2"]);
    assert_eq!(bob.run("stream", &["--timeout", "2"]).texts(), ["3", "4"]);
    assert!(bob.run("stream", &["--timeout", "1"]).texts().is_empty());
    // The sender's own messages are confirmed by the group like any other's.
    assert_eq!(alice.run("stream", &["--count", "5"]).texts(), ["0", "1", "2", "3", "4"]);
}

#[test]
fn members_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, alice, bob) = two(dir.path());
    let carol = Home::init(dir.path().join("carol"), &backend);
    let group = alice.group_with(&[&bob]);
    let added = bob.run("group add", &["--group", &group, "--member", &carol.inbox]);
    assert_eq!(added.one()["outcome"], "confirmed");
    carol.run("sync", &[]).one();
    carol.send(&group, "hello from carol");
    alice.run("sync", &[]).one();
    let removed = alice.run("group remove", &["--group", &group, "--member", &carol.inbox]);
    assert_eq!(removed.one()["group_id"], group.as_str());
    alice.send(&group, "after carol");
    carol.run("sync", &[]).one();
    bob.run("sync", &[]).one();
    assert_eq!(carol.run("group list", &[]).one()["state"], "inactive");
    assert_eq!(carol.run("history", &[]).texts(), ["hello from carol"]);
    assert_eq!(bob.run("history", &[]).texts(), ["hello from carol", "after carol"]);
    let refused = carol.run("send", &["--group", &group, "too late"]);
    assert!(refused.failed(1).contains("removed"));
    for home in [&alice, &bob, &carol] {
        home.assert_clean();
    }
}

#[test]
fn a_dm_is_between_two() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, alice, bob) = two(dir.path());
    let created = alice.run("group create", &["--dm", &bob.inbox]);
    let group = created.one()["group_id"].as_str().unwrap().to_owned();
    alice.send(&group, "just us");
    bob.run("sync", &[]).one();
    let listed = bob.run("group list", &[]);
    assert_eq!((&listed.one()["kind"], &listed.one()["peer"]), (&"dm".into(), &alice.inbox.as_str().into()));
    assert_eq!(bob.run("history", &[]).texts(), ["just us"]);
}

#[test]
fn the_same_key_and_text_are_one_message() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, alice, bob) = two(dir.path());
    let group = alice.group_with(&[&bob]);
    let once = |text| {
        alice.run("send", &["--group", &group, "--idempotency-key", "k", text]).one()["message_id"].clone()
    };
    assert_eq!(once("one"), once("one"));
    assert_ne!(once("one"), once("other"));
    bob.run("sync", &[]).one();
    assert_eq!(bob.run("history", &[]).texts(), ["one", "other"]);
}

/// Shows: STR-100, PROC-034.
#[test]
fn replay_leaves_what_the_stream_remembers_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, alice, bob) = two(dir.path());
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "one");
    alice.send(&group, "two");
    assert_eq!(bob.run("replay", &["--count", "2", "--timeout", "30"]).texts(), ["one", "two"]);
    assert_eq!(bob.run("stream", &["--count", "2", "--timeout", "30"]).texts(), ["one", "two"]);
}

#[test]
fn people_get_lines_they_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_backend, alice, bob) = two(dir.path());
    let group = alice.group_with(&[&bob]);
    alice.send(&group, "hello");
    let said = crate::support::binary().args(["history", "--home", alice.path()]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.lines().last().unwrap().ends_with(": hello"), "{said}");
    let help = crate::support::binary().arg("--help").output().unwrap();
    assert!(help.status.success() && !help.stdout.is_empty());
    assert_eq!(run(&[]).code, Some(2));
}
