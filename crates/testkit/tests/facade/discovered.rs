//! Conversations as they become known, and how far a stream is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::{
    CatchUp, Client, CloseReason, ConnectionState, ConversationStream, Group, GroupId, RegistrationState,
    Topic,
};
use highwater_testkit::{Link, TestBackend, TestClient, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// Shows: STR-024, PROC-041, PROC-042.
#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_told_live_and_not_replayed_and_the_end_is_told_once() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    let ends = Arc::<Mutex<Vec<String>>>::default();
    let (closes, errors) = (Arc::clone(&ends), Arc::clone(&ends));
    let mut stream = bob
        .conversations()
        .only_groups()
        .on_error(move |error| errors.lock().unwrap().push(error.to_string()))
        .on_close(move |reason| closes.lock().unwrap().push(format!("{reason:?}")))
        .open()
        .await
        .unwrap();
    alice.create_dm(bob.inbox_id()).await.unwrap();
    let second = alice.create_group([bob.inbox_id()]).await.unwrap();
    let own = bob.create_group([alice.inbox_id()]).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..2 {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
        told.push(next.unwrap().unwrap().id());
    }
    told.sort();
    let mut expected = vec![second.id(), own.id()];
    expected.sort();
    assert_eq!(told, expected, "neither the group of before nor the DM");
    stream.close();
    assert_eq!(*ends.lock().unwrap(), ["Closed"]);
}

/// Shows: STR-024, PROC-041, PROC-042.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_gets_conversations_until_it_is_closed() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let told = Arc::<Mutex<Vec<String>>>::default();
    let (groups, closes) = (Arc::clone(&told), Arc::clone(&told));
    let subscription = bob
        .conversations()
        .on_conversation(
            move |group| {
                groups.lock().unwrap().push(group.id().to_string());
                async { Ok(()) }
            },
            move |reason| closes.lock().unwrap().push(format!("{reason:?}")),
        )
        .await
        .unwrap();
    let group = alice.create_group([bob.inbox_id()]).await.unwrap().id().to_string();
    eventually("the group to be told", async || !told.lock().unwrap().is_empty()).await;
    subscription.close().await;
    assert_eq!(*told.lock().unwrap(), [group, format!("{:?}", CloseReason::Closed)]);
}

async fn known(client: &Client) -> BTreeSet<GroupId> {
    client.groups().await.unwrap().iter().map(Group::id).collect()
}

/// What a stream tells until it was told all of `all`, by reads that are given up now and then.
async fn told(
    mut stream: ConversationStream,
    all: &BTreeSet<GroupId>,
    before: &BTreeSet<GroupId>,
) -> Vec<GroupId> {
    let mut told = Vec::new();
    let mut patience = 0;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while all.iter().any(|group| !before.contains(group) && !told.contains(group)) {
        patience = (patience + 137) % 4_000;
        if let Ok(next) = tokio::time::timeout(Duration::from_micros(patience), stream.next()).await {
            told.push(next.unwrap().unwrap().id());
        }
        assert!(tokio::time::Instant::now() < deadline, "{} of {} were told", told.len(), all.len());
    }
    let more = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
    assert!(more.is_err(), "told twice: {more:?}");
    stream.close();
    told
}

/// Streams that are opened at any moment, while conversations come from an inviter, from this process and from another
/// one of the database: each is told once to every stream that was open before it became known.
///
/// Shows: STR-024, STR-085.
#[tokio::test(flavor = "multi_thread")]
async fn each_conversation_is_told_once_to_every_stream_that_was_open() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let elsewhere = bob.open_another().await;
    let mut streams = Vec::new();
    for n in 0..12 {
        let open = async {
            if n % 2 == 1 {
                return None;
            }
            let before = known(&bob).await;
            let stream = bob.conversations().open().await.unwrap();
            Some((stream, before, known(&bob).await))
        };
        let create = async {
            let creator = [&*alice, &*bob, &elsewhere][n % 3];
            let other = if n % 3 == 0 { bob.inbox_id() } else { alice.inbox_id() };
            creator.create_group([other]).await.unwrap()
        };
        let (opened, _) = tokio::join!(open, create);
        streams.extend(opened);
    }
    eventually("every invitation", async || known(&bob).await.len() == 12).await;
    let all = known(&bob).await;
    let tellings = streams.into_iter().map(async |(stream, before, after)| {
        let told = told(stream, &all, &after).await;
        let set: BTreeSet<_> = told.iter().copied().collect();
        assert_eq!(set.len(), told.len(), "one was told twice");
        assert!(set.is_disjoint(&before), "one was told that was known before");
    });
    futures::future::join_all(tellings).await;
    elsewhere.close().await;
}

/// Over traffic and cuts, what is told of a topic never goes back, no state is told twice in a row, and in the end
/// everything is through.
///
/// Shows: STR-025.
#[tokio::test(flavor = "multi_thread")]
async fn progress_never_goes_back_over_cuts() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&link.url()).await;
    let first = alice.create_group([bob.inbox_id()]).await.unwrap();
    let stream = bob.messages().open().await.unwrap();
    let mut changes = stream.catch_up_changes().await.unwrap();
    let traffic = async {
        let second = alice.create_group([bob.inbox_id()]).await.unwrap();
        for n in 0..40 {
            let group = if n % 3 == 0 { &second } else { &first };
            group.send_text(&n.to_string()).await.unwrap();
            if n % 8 == 7 {
                link.cut();
            }
        }
        let heads = alice.status().await.unwrap().topics;
        [first.id(), second.id()].map(|group| {
            let topic = Topic::group(group);
            (topic, heads.iter().find(|found| found.topic == topic).unwrap().received)
        })
    };
    let watching = async {
        let mut states: Vec<CatchUp> = Vec::new();
        while let Some(now) = changes.next().await {
            let now = now.unwrap();
            if let Some(last) = states.last() {
                assert!(*last != now, "told twice");
                assert!(now.generation >= last.generation);
                for topic in &last.topics {
                    let Some(later) = now.topics.iter().find(|found| found.topic == topic.topic) else {
                        continue;
                    };
                    assert!(later.received.cursor() >= topic.received.cursor(), "F fell");
                    assert!(later.processed >= topic.processed, "P fell");
                }
            }
            states.push(now);
        }
        states
    };
    let through = async {
        let heads = traffic.await;
        eventually("everything to be through", async || {
            let status = bob.status().await.unwrap();
            let through = heads.iter().all(|(topic, head)| {
                status.topics.iter().any(|at| at.topic == *topic && at.processed >= Some(*head))
            });
            through && stream.catch_up().await.unwrap().is_caught_up()
        })
        .await;
        stream.close().await;
    };
    let (states, ()) = tokio::join!(tokio::time::timeout(PATIENCE, watching), through);
    let states = states.unwrap();
    assert!(states.iter().any(|state| state.connection == ConnectionState::Reconnecting), "no cut was told");
    assert_eq!(states.last().unwrap().connection, ConnectionState::Closed);
}

/// Shows: STR-025.
#[tokio::test(flavor = "multi_thread")]
async fn a_streams_progress_is_told_as_it_changes_and_ends_with_it() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let stream = bob.messages().open().await.unwrap();
    let mut changes = stream.catch_up_changes().await.unwrap();
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let now = tokio::time::timeout_at(deadline, changes.next()).await.unwrap().unwrap().unwrap();
        let of_group = now.topics.iter().find(|status| status.topic == highwater::Topic::group(group.id()));
        if now.is_caught_up() && of_group.is_some_and(|it| it.registration == RegistrationState::Active) {
            break;
        }
    }
    stream.close().await;
    let mut last = None;
    while let Some(now) = tokio::time::timeout_at(deadline, changes.next()).await.unwrap() {
        last = Some(now.unwrap());
    }
    let last = last.unwrap();
    assert_eq!(last.connection, ConnectionState::Closed);
    assert!(last.topics.iter().all(|status| status.registration == RegistrationState::Removed));
}

/// A scope may name a group that isn't known here: naming one is no membership. When it becomes known, it is read.
///
/// Shows: STR-021, PROC-046.
#[tokio::test(flavor = "multi_thread")]
async fn a_scope_may_name_a_group_that_becomes_known_later() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let named = alice.create_group([bob.inbox_id()]).await.unwrap();
    let other = alice.create_group([bob.inbox_id()]).await.unwrap();
    other.send_text("other").await.unwrap();
    named.send_text("named").await.unwrap();
    let mut stream = bob.messages().groups([named.id()]).open().await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let item = tokio::time::timeout_at(deadline, stream.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(item.message.group_id, named.id());
        if item.message.text() == Ok("named") {
            break;
        }
    }
    stream.close().await;
    assert!(bob.replay(bob.beginning()).groups([GroupId::from_bytes([9; 16])]).open_stored().await.is_err());
}

/// Shows: PROC-044.
#[tokio::test(flavor = "multi_thread")]
async fn every_stream_tells_the_state_of_the_connection() {
    let mut backend = TestBackend::start().await;
    let bob = TestClient::new(&backend.url()).await;
    let messages = bob.messages().open().await.unwrap();
    let replay = bob.replay(bob.beginning()).open().await.unwrap();
    let conversations = bob.conversations().open().await.unwrap();
    let mut states = [
        messages.connection_state().await.unwrap(),
        replay.connection_state().await.unwrap(),
        conversations.connection_state().await.unwrap(),
    ];
    for state in &mut states {
        let connected = state.wait_for(|state| *state == ConnectionState::Connected);
        tokio::time::timeout(PATIENCE, connected).await.unwrap().unwrap();
    }
    backend.stop().await;
    for state in &mut states {
        let lost = state.wait_for(|state| *state == ConnectionState::Reconnecting);
        tokio::time::timeout(PATIENCE, lost).await.unwrap().unwrap();
    }
    messages.close().await;
}
