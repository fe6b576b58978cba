use std::time::Duration;

use highwater::{
    ConnectionState, Consent, Content, CursorError, Error, Group, Item, MessageStream, Outcome, ReplayStream,
    Topic,
};
use highwater_testkit::{Link, TestBackend, TestClient, assert_clean, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// The next message's text; news about groups are asked past.
pub(crate) async fn next_text(stream: &mut MessageStream) -> String {
    loop {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Some(text) = text(&item) {
            return text;
        }
    }
}

async fn next_replayed(stream: &mut ReplayStream) -> String {
    loop {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Some(text) = text(&item) {
            return text;
        }
    }
}

fn text(item: &Item) -> Option<String> {
    match &item.message.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    }
}

async fn two() -> (TestBackend, TestClient, TestClient, Group) {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    (backend, alice, bob, group)
}

/// Shows: STR-094, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn only_asking_for_the_next_item_acknowledges_the_last() {
    let (_backend, alice, mut bob, group) = two().await;
    for text in ["one", "two", "three"] {
        group.send_text(text).await.unwrap();
    }
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "one");
    assert_eq!(next_text(&mut stream).await, "two");
    drop(stream);
    bob.reopen().await;
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "two");
    stream.acknowledge().await.unwrap();
    stream.close().await;
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "three");
    stream.close().await;
    assert_clean(&alice).await;
    assert_clean(&bob).await;
}

/// Shows: PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_cancelled_at_any_moment_loses_and_repeats_nothing() {
    let (_backend, _alice, bob, group) = two().await;
    for n in 0..30 {
        group.queue_text(&n.to_string()).await.unwrap();
    }
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    let mut got = Vec::new();
    let mut patience = 0u64;
    while got.len() < 30 {
        // Every other read is given up after a moment, a little later each time.
        let moment = Duration::from_micros(137 * (patience % 40));
        patience += 1;
        if let Ok(item) = tokio::time::timeout(moment, stream.next()).await {
            got.extend(text(&item.unwrap().unwrap()));
        } else if patience.is_multiple_of(40) {
            got.push(next_text(&mut stream).await);
        }
    }
    assert_eq!(got, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
    stream.close().await;
}

/// Shows: STR-023, PROC-043.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_default_consumer_is_refused_until_the_first_closes() {
    let (_backend, _alice, bob, group) = two().await;
    group.send_text("one").await.unwrap();
    let stream = bob.messages().all_groups().open().await.unwrap();
    let refused = bob.messages().groups([group.id()]).open().await;
    // Bob doesn't know the group yet, or does: either way there is no second consumer.
    assert!(refused.is_err());
    let refused = bob.messages().all_groups().open().await.unwrap_err();
    assert!(refused.is_already_active() && !refused.is_retryable(), "{refused}");
    let elsewhere = bob.open_another().await;
    assert!(elsewhere.messages().open().await.unwrap_err().is_already_active());
    stream.close().await;
    let mut stream = elsewhere.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "one");
    stream.close().await;
    elsewhere.close().await;
}

/// Shows: STR-036, STR-061, PROC-021.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_over_cuts() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&link.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    for n in 0..6 {
        group.send_text(&n.to_string()).await.unwrap();
        if n % 2 == 1 {
            link.cut();
        }
        assert_eq!(next_text(&mut stream).await, n.to_string());
    }
    let state = stream.connection_state().await.unwrap();
    eventually("the connection to be back", async || *state.borrow() == ConnectionState::Connected).await;
    eventually("everything to be caught up", async || stream.catch_up().await.unwrap().is_caught_up()).await;
    stream.close().await;
    assert_clean(&bob).await;
}

/// Shows: STR-092, STR-093, PROC-047.
#[tokio::test(flavor = "multi_thread")]
async fn scope_keeps_a_backlog_and_a_filter_consumes_it() {
    let (_backend, alice, bob, wanted) = two().await;
    let other = alice.create_group([bob.inbox_id()]).await.unwrap();
    wanted.send_text("wanted").await.unwrap();
    other.send_text("other").await.unwrap();
    bob.sync().await.unwrap();
    let mut stream = bob.messages().groups([wanted.id()]).open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "wanted");
    stream.acknowledge().await.unwrap();
    stream.close().await;
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "other");
    stream.acknowledge().await.unwrap();
    stream.close().await;

    bob.group(other.id()).await.unwrap().set_consent(Consent::Denied).await.unwrap();
    other.send_text("denied").await.unwrap();
    wanted.send_text("after").await.unwrap();
    bob.sync().await.unwrap();
    let filter = [Consent::Unknown, Consent::Allowed];
    let mut stream = bob.messages().all_groups().consent(filter).open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "after");
    // Asking for more passes over whatever the filter excludes, on either side of what was handed out.
    let more = tokio::time::timeout(Duration::from_secs(1), stream.next()).await;
    assert!(more.is_err(), "{more:?}");
    stream.close().await;
    let mut stream = bob.messages().all_groups().open().await.unwrap();
    wanted.send_text("last").await.unwrap();
    assert_eq!(next_text(&mut stream).await, "last");
    stream.close().await;
}

/// Shows: STR-099, STR-100, PROC-034.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_history_goes_on_as_a_replay_without_a_gap() {
    let (_backend, _alice, bob, group) = two().await;
    for n in 0..5 {
        group.send_text(&n.to_string()).await.unwrap();
    }
    bob.sync().await.unwrap();
    let page = bob.history().limit(2).page().await.unwrap();
    let shown: Vec<_> = page.messages.iter().map(|one| one.text().unwrap()).collect();
    assert_eq!(shown, ["4", "3"]);
    let earlier = bob.history().limit(2).from(page.more.unwrap()).page().await.unwrap();
    assert_eq!(earlier.messages[0].text().unwrap(), "2");
    let mut replay = bob.replay(page.cursor).open().await.unwrap();
    group.send_text("5").await.unwrap();
    assert_eq!(next_replayed(&mut replay).await, "5");
    let mut all = bob.replay(bob.beginning()).open_stored().await.unwrap();
    let mut texts = Vec::new();
    while let Some(item) = all.next().await {
        texts.extend(text(&item.unwrap()));
    }
    assert_eq!(texts, ["0", "1", "2", "3", "4", "5"]);
    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "0", "a replay moved the default consumer");
    stream.close().await;
}

/// Shows: STR-099, STR-100, PROC-046.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_a_page_select_as_a_stream_does() {
    let (_backend, alice, bob, group) = two().await;
    let dm = alice.create_dm(bob.inbox_id()).await.unwrap();
    group.send_text("to the group").await.unwrap();
    dm.send_text("to bob").await.unwrap();
    bob.sync().await.unwrap();
    bob.group(group.id()).await.unwrap().set_consent(Consent::Denied).await.unwrap();
    let (all, page) = (bob.replay(bob.beginning()), bob.history());
    for (replay, page, expected) in [
        (all.clone().only_dms(), page.clone().only_dms(), "to bob"),
        (all.clone().only_groups(), page.clone().only_groups(), "to the group"),
        (all.clone().consent([Consent::Denied]), page.clone().consent([Consent::Denied]), "to the group"),
    ] {
        let shown = page.page().await.unwrap().messages;
        let shown: Vec<_> = shown.iter().filter_map(|one| one.content.text()).collect();
        assert_eq!(shown, [expected]);
        let mut replay = replay.open_stored().await.unwrap();
        let mut replayed = Vec::new();
        while let Some(item) = replay.next().await {
            replayed.extend(text(&item.unwrap()));
        }
        assert_eq!(replayed, [expected]);
    }
}

/// Shows: PROC-033.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_database_is_refused() {
    let (_backend, alice, bob, _group) = two().await;
    for refused in [
        bob.replay(alice.beginning()).open().await.err(),
        bob.history().from(alice.beginning()).page().await.err(),
    ] {
        let refused = refused.unwrap();
        assert!(matches!(refused, Error::Cursor(CursorError::OtherDatabase { .. })), "{refused}");
        assert!(!refused.is_retryable());
    }
}

/// Shows: PROC-026, STR-078.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_client_of_the_database_stored_is_handed_out_without_a_network() {
    let (mut backend, _alice, bob, group) = two().await;
    group.send_text("before").await.unwrap();
    let elsewhere = bob.open_another().await;
    elsewhere.sync().await.unwrap();
    elsewhere.close().await;
    backend.stop().await;
    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "before");
    stream.close().await;
}

/// Shows: PROC-040.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_failed_is_over() {
    let (_backend, _alice, mut bob, group) = two().await;
    group.send_text("kept").await.unwrap();
    bob.sync().await.unwrap();
    let mut replay = bob.replay(bob.beginning()).open_stored().await.unwrap();
    assert!(replay.next().await.unwrap().is_ok());
    bob.close().await;
    assert!(replay.next().await.unwrap().is_err());
    assert!(replay.next().await.is_none(), "an error is reported once");
}

/// F of a group's topic.
async fn received(client: &TestClient, group: &Group) -> u64 {
    let status = client.status().await.unwrap();
    let of_group = status.topics.iter().find(|found| found.topic == Topic::group(group.id()));
    of_group.map_or(0, |found| found.received)
}

async fn send(group: &Group) -> u64 {
    match group.send_text("sent").await.unwrap().outcome {
        Outcome::Confirmed { sequence_id: Some(sequence_id) } => sequence_id.get(),
        other => panic!("{other:?}"),
    }
}

/// Shows: STR-022, PROC-049.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_received_until_the_last_stream_that_selects_it_has_ended() {
    let (_backend, alice, bob, group) = two().await;
    let other = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    let others = bob.replay(bob.beginning()).groups([other.id()]).open().await.unwrap();
    let replay = bob.replay(bob.beginning()).groups([group.id()]).open().await.unwrap();
    let messages = bob.messages().groups([group.id()]).open().await.unwrap();

    messages.close().await;
    let sent = send(&group).await;
    eventually("the other stream's interest", async || received(&bob, &group).await >= sent).await;

    replay.close();
    let mut last = sent;
    eventually("nobody's interest", async || {
        last = send(&group).await;
        let of_other = send(&other).await;
        eventually("what is selected", async || received(&bob, &other).await >= of_other).await;
        received(&bob, &group).await < last
    })
    .await;

    let mut messages = bob.messages().groups([group.id()]).open().await.unwrap();
    eventually("a new interest", async || received(&bob, &group).await >= last).await;
    assert_eq!(next_text(&mut messages).await, "sent", "D is where it was");
    messages.close().await;
    others.close();
}
