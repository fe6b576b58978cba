//! Readers of whole clients: opened before, during and after what they read arrives, with one scope and then another,
//! and hundreds of them over a connection that is cut.

use std::time::Duration;

use highwater::{Client, Consent, Content, Group, GroupId, Item, MessageStream, ReplayStream, Status};
use highwater_testkit::{Link, TestBackend, TestClient, assert_clean, eventually};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

use crate::process::PATIENCE;
use crate::{seed, size};

fn text(item: &Item) -> Option<String> {
    match &item.message.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// The next text; news about groups are asked past.
async fn next_text(stream: &mut MessageStream) -> String {
    loop {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Some(text) = text(&item) {
            return text;
        }
    }
}

async fn texts(stream: &mut MessageStream, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        found.push(next_text(stream).await);
    }
    found
}

/// Everything that is stored, from the beginning.
pub(crate) async fn replayed(client: &Client) -> Vec<String> {
    let mut replay = client.replay(client.beginning()).open_stored().await.unwrap();
    let mut found = Vec::new();
    while let Some(item) = replay.next().await {
        found.extend(text(&item.unwrap()));
    }
    found
}

pub(crate) async fn two() -> (TestBackend, TestClient, TestClient, Group) {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    (backend, alice, bob, group)
}

async fn say(group: &Group, said: impl IntoIterator<Item = usize>) {
    for n in said {
        group.send_text(&n.to_string()).await.unwrap();
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn delivered(status: &Status, group: GroupId) -> u64 {
    status.groups.iter().find(|found| found.group_id == group).unwrap().delivered
}

/// The example of the specification, between two processes of one database: all groups, then one of them while the
/// other process stores for both, then all groups again.
///
/// Shows: STR-091, STR-092, STR-097, PROC-026, PROC-047.
#[tokio::test(flavor = "multi_thread")]
async fn a_scope_leaves_the_backlog_of_what_it_leaves_out() {
    let (_backend, alice, bob, a) = two().await;
    let b = alice.create_group([bob.inbox_id()]).await.unwrap();
    a.send_text("A1").await.unwrap();
    b.send_text("B1").await.unwrap();
    let mut all = bob.messages().all_groups().open().await.unwrap();
    let mut first = texts(&mut all, 2).await;
    first.sort();
    assert_eq!(first, ["A1", "B1"]);
    all.acknowledge().await.unwrap();
    all.close().await;

    let mut only_a = bob.messages().groups([a.id()]).open().await.unwrap();
    a.send_text("A2").await.unwrap();
    b.send_text("B2").await.unwrap();
    let elsewhere = bob.open_another().await;
    elsewhere.sync().await.unwrap();
    elsewhere.close().await;
    assert_eq!(next_text(&mut only_a).await, "A2");
    only_a.acknowledge().await.unwrap();
    let of_b = delivered(&bob.status().await.unwrap(), b.id());
    only_a.close().await;

    let mut all = bob.messages().all_groups().open().await.unwrap();
    assert_eq!(next_text(&mut all).await, "B2");
    assert!(delivered(&bob.status().await.unwrap(), b.id()) == of_b, "handing out moved D");
    all.acknowledge().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), all.next()).await.is_err(), "something repeats");
    all.close().await;
    assert_clean(&bob).await;
}

/// A reader closed with an item out leaves it to whoever has its group in scope, and to nobody else.
///
/// Shows: STR-092, STR-094, STR-097, PROC-047, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_was_out_waits_for_a_reader_with_its_group_in_scope() {
    let (_backend, alice, bob, a) = two().await;
    let b = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    a.send_text("A1").await.unwrap();
    bob.sync().await.unwrap();
    b.send_text("B1").await.unwrap();
    bob.sync().await.unwrap();
    let mut all = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut all).await, "A1");
    let out = delivered(&bob.status().await.unwrap(), a.id());
    all.close().await;
    let mut only_b = bob.messages().groups([b.id()]).open().await.unwrap();
    assert_eq!(next_text(&mut only_b).await, "B1");
    only_b.acknowledge().await.unwrap();
    only_b.close().await;
    assert_eq!(delivered(&bob.status().await.unwrap(), a.id()), out);
    let mut only_a = bob.messages().groups([a.id()]).open().await.unwrap();
    assert_eq!(next_text(&mut only_a).await, "A1");
    only_a.close().await;
}

/// When a reader is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    During,
    After,
    /// After another process of the database did it.
    AfterAnother,
}

/// Shows: STR-023, STR-024, STR-091, STR-101, PROC-026, PROC-048.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_opened_before_during_or_after_a_sync_gets_everything_once() {
    for moment in [Moment::Before, Moment::During, Moment::After, Moment::AfterAnother] {
        let (_backend, _alice, bob, group) = two().await;
        let early = match moment {
            Moment::Before => Some(bob.messages().open().await.unwrap()),
            _ => None,
        };
        say(&group, 0..40).await;
        let (synced, during) = match moment {
            Moment::AfterAnother => {
                let elsewhere = bob.open_another().await;
                let synced = elsewhere.sync().await;
                elsewhere.close().await;
                (synced, None)
            }
            Moment::During => {
                let (synced, reader) = tokio::join!(bob.sync(), bob.messages().open());
                (synced, Some(reader.unwrap()))
            }
            Moment::Before | Moment::After => (bob.sync().await, None),
        };
        synced.unwrap();
        let mut stream = match early.or(during) {
            Some(stream) => stream,
            None => bob.messages().open().await.unwrap(),
        };
        say(&group, 40..50).await;
        assert_eq!(texts(&mut stream, 50).await, numbers(0..50), "{moment:?}");
        stream.acknowledge().await.unwrap();
        let more = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
        assert!(more.is_err(), "{moment:?}: {more:?}");
        stream.close().await;
        assert_clean(&bob).await;
    }
}

/// F and P of a client by topic.
fn received(status: &Status) -> Vec<(String, u64, Option<u64>)> {
    status.topics.iter().map(|at| (format!("{:?}", at.topic), at.received, at.processed)).collect()
}

/// Reported failure D4: what arrives with no reader is all there for one that is opened later, over a restart; what its
/// filter leaves out is not, and a replay has it without moving anything.
///
/// Shows: STR-023, STR-091, STR-093, STR-097, STR-100, PROC-026, PROC-034, PROC-046, PROC-047, PROC-048.
#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_reader_wait_for_one() {
    let (mut backend, alice, mut bob, wanted) = two().await;
    let denied = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    bob.group(denied.id()).await.unwrap().set_consent(Consent::Denied).await.unwrap();
    let mut expected = Vec::new();
    for n in 0..40 {
        if n == 30 {
            bob.sync().await.unwrap();
            let status = bob.status().await.unwrap();
            assert!(status.groups.iter().all(|group| group.delivered == 0), "a sync moved D");
            assert!(received(&status).iter().any(|(_, f, p)| *f > 30 && *p == Some(*f)));
            bob.reopen().await;
        }
        if n % 8 == 0 {
            say(&denied, [n]).await;
        } else {
            say(&wanted, [n]).await;
            expected.push(n.to_string());
        }
    }
    bob.sync().await.unwrap();
    // From here on there is nothing but what is stored.
    backend.stop().await;
    let before = bob.status().await.unwrap();
    let filter = [Consent::Unknown, Consent::Allowed];
    let mut stream = bob.messages().all_groups().consent(filter).open().await.unwrap();
    assert_eq!(expected.len(), 35);
    assert_eq!(texts(&mut stream, 35).await, expected);
    stream.acknowledge().await.unwrap();
    // Whatever is left is excluded.
    assert!(tokio::time::timeout(Duration::from_millis(300), stream.next()).await.is_err());
    stream.close().await;

    let after = bob.status().await.unwrap();
    assert_eq!(received(&before), received(&after), "reading moved F or P");
    assert_eq!(replayed(&bob).await.len(), 40, "consent kept something from being received");
    let unmoved = bob.status().await.unwrap();
    assert_eq!(after.groups, unmoved.groups, "a replay moved D");
    bob.reopen().await;
    let reopened = bob.status().await.unwrap();
    assert_eq!((received(&after), after.groups), (received(&reopened), reopened.groups));
    let mut stream = bob.messages().open().await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
    assert!(next.is_err(), "an excluded message came back: {next:?}");
    stream.close().await;
    assert_clean(&bob).await;
}

/// Consent filters what is handed out. It keeps nothing from being asked for, received and processed.
///
/// Shows: STR-021, STR-093, PROC-046, PROC-047.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_conversation_is_received_whatever_a_reader_leaves_out() {
    let (_backend, alice, bob, denied) = two().await;
    let allowed = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    for (group, consent) in [(&denied, Consent::Denied), (&allowed, Consent::Allowed)] {
        bob.group(group.id()).await.unwrap().set_consent(consent).await.unwrap();
    }
    // Nothing but the reader's own interest brings anything from here on.
    let mut filtered = bob.messages().all_groups().consent([Consent::Allowed]).open().await.unwrap();
    say(&denied, [1]).await;
    say(&allowed, [2]).await;
    assert_eq!(next_text(&mut filtered).await, "2");
    eventually("what is denied to be received", async || replayed(&bob).await.contains(&"1".to_owned()))
        .await;
    filtered.acknowledge().await.unwrap();
    filtered.close().await;
    let mut all = bob.messages().all_groups().open().await.unwrap();
    say(&denied, [3]).await;
    let next = next_text(&mut all).await;
    // The first was consumed by the filter if it was there in time.
    assert!(next == "3" || next == "1" && next_text(&mut all).await == "3", "{next}");
    all.close().await;
    assert_clean(&bob).await;
}

/// What one of many readers was handed.
struct Read {
    numbers: Vec<u64>,
    reached_the_end: bool,
}

/// One reader's life: opened after a while, ended after another, or once it has had the last message.
async fn live(bob: Client, seed: u64, last: String) -> Read {
    let mut random = StdRng::seed_from_u64(seed);
    tokio::time::sleep(Duration::from_millis(random.random_range(0..4_000))).await;
    let stays = random.random_bool(0.1);
    let lifetime = if stays { PATIENCE } else { Duration::from_millis(random.random_range(0..2_500)) };
    let mut read = Read { numbers: Vec::new(), reached_the_end: false };
    let mut stream = bob.replay(bob.beginning()).open().await.unwrap();
    let to_the_end = read_on(&mut stream, &mut read, &last);
    // Ended in the middle of a request, as an app's task is.
    let _ = tokio::time::timeout(lifetime, to_the_end).await;
    assert!(read.reached_the_end || !stays, "a reader that stayed saw only {:?}", read.numbers.last());
    read
}

async fn read_on(stream: &mut ReplayStream, read: &mut Read, last: &str) {
    while !read.reached_the_end {
        let item = stream.next().await.unwrap().unwrap();
        read.numbers.push(item.cursor.number().unwrap().get());
        read.reached_the_end = text(&item).is_some_and(|text| text == last);
    }
}

/// Two hundred readers come and go while the connection is cut: each gets each message once and in order, and when they
/// are gone nothing of them is left running.
///
/// Shows: STR-036, STR-100, PROC-034, PROC-049.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_readers_that_come_and_go_over_cuts_get_each_message_once_and_leave_nothing_behind() {
    let mut random = StdRng::seed_from_u64(seed());
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&link.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();
    // What a client with no reader runs, once it has had one.
    bob.messages().open().await.unwrap().close().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (tasks_before, connections_before) = settled(&link, tasks).await;

    let messages = size(40, 400);
    let last = (messages - 1).to_string();
    let readers: Vec<_> =
        (0..200).map(|_| tokio::spawn(live((*bob).clone(), random.random(), last.clone()))).collect();
    for n in 0..messages {
        say(&group, [n]).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(20..120))).await;
        if n % (messages / 5) == 3 {
            link.cut();
        }
    }
    let mut to_the_end = 0;
    for reader in readers {
        let read = reader.await.unwrap();
        assert!(read.numbers.iter().copied().eq(1..=read.numbers.len() as u64), "{:?}", read.numbers);
        to_the_end += usize::from(read.reached_the_end);
    }
    assert!(to_the_end > 0, "no reader stayed");
    eventually("what the readers had started to end", async || {
        tasks() <= tasks_before && link.open_connections() <= connections_before
    })
    .await;
    assert_clean(&bob).await;
}

/// The number of tasks and connections, once it has stayed the same for a while.
async fn settled(link: &Link, tasks: impl Fn() -> usize) -> (usize, u64) {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = (tasks(), link.open_connections());
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        assert!(Instant::now() < deadline, "it never comes to rest");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = (tasks(), link.open_connections());
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    seen
}
