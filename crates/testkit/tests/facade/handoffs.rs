//! A wrapper for another language, as far as acknowledging goes: the library's items go through a queue and another
//! thread to an app that can't call Rust, and its answers come back the same way.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use highwater::{Content, Error, Handoff, HandoffError, MessageStream};
use highwater_testkit::{TestBackend, TestClient, assert_clean};

const PATIENCE: Duration = Duration::from_secs(20);

async fn bob_with(texts: &[&str]) -> (TestBackend, TestClient, TestClient) {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    for text in texts {
        group.send_text(text).await.unwrap();
    }
    bob.sync().await.unwrap();
    // The transcript of joining comes first.
    let mut stream = bob.messages().open().await.unwrap();
    assert!(matches!(stream.next().await.unwrap().unwrap().message.content, Content::Membership(_)));
    stream.acknowledge().await.unwrap();
    stream.close().await;
    (backend, alice, bob)
}

async fn hand_out(stream: &mut MessageStream) -> (String, Handoff) {
    let handed = tokio::time::timeout(PATIENCE, stream.hand_out()).await.unwrap();
    let (item, handoff) = handed.unwrap().unwrap();
    (item.message.text().unwrap().to_owned(), handoff)
}

/// What the host's app does with one item.
#[derive(Clone, Copy, PartialEq)]
enum Host {
    /// Asks for the next one: the boundary.
    AsksAgain,
    /// Lets go of its iterator.
    Drops,
    /// Its callback throws.
    Throws,
}

/// Runs an app on a thread of its own until it stops. Returns what it was given.
async fn through_a_queue(bob: &TestClient, app: Vec<Host>) -> Vec<String> {
    let mut stream = bob.messages().open().await.unwrap();
    let (enqueue, queue) = mpsc::sync_channel::<(String, Handoff)>(8);
    let (answer, mut answers) = tokio::sync::mpsc::unbounded_channel::<Option<Handoff>>();
    let host = std::thread::spawn(move || {
        let mut app = VecDeque::from(app);
        let mut given = Vec::new();
        while let (Ok((text, handoff)), Some(does)) = (queue.recv(), app.pop_front()) {
            given.push(text);
            let _ = answer.send((does == Host::AsksAgain).then_some(handoff));
            if does != Host::AsksAgain {
                break;
            }
        }
        given
    });
    for _ in 0..2 {
        let (text, handoff) = hand_out(&mut stream).await;
        // In the queue, and taken from it: neither has acknowledged anything.
        enqueue.send((text, handoff)).unwrap();
        match tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap() {
            Some(Some(given_back)) => stream.acknowledge_handoff(given_back).await.unwrap(),
            Some(None) | None => break,
        }
    }
    stream.close().await;
    drop(enqueue);
    host.join().unwrap()
}

/// Shows: STR-094, STR-104, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_in_between_acknowledges_only_what_the_app_gives_back() {
    let (_backend, _alice, bob) = bob_with(&["one", "two", "three"]).await;
    assert_eq!(through_a_queue(&bob, vec![Host::Drops]).await, ["one"]);
    assert_eq!(through_a_queue(&bob, vec![Host::Throws]).await, ["one"]);
    assert_eq!(through_a_queue(&bob, vec![Host::AsksAgain, Host::Drops]).await, ["one", "two"]);
    assert_eq!(through_a_queue(&bob, vec![Host::AsksAgain, Host::AsksAgain]).await, ["two", "three"]);
    assert_clean(&bob).await;
}

/// A queue that still holds an item when its worker is gone has acknowledged nothing either.
///
/// Shows: STR-104, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_that_is_lost_in_a_queue_comes_again_as_the_same_item() {
    let (_backend, _alice, bob) = bob_with(&["one"]).await;
    let mut stream = bob.messages().open().await.unwrap();
    let queue = VecDeque::from([stream.hand_out().await.unwrap().unwrap()]);
    let (lost, _) = queue.front().unwrap().clone();
    drop(queue);
    stream.close().await;
    let mut stream = bob.messages().open().await.unwrap();
    let (again, _) = stream.hand_out().await.unwrap().unwrap();
    assert_eq!((again.message.id, again.cursor), (lost.message.id, lost.cursor));
    stream.close().await;
}

/// Shows: STR-104, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_or_foreign_handoff_changes_nothing_and_ends_nothing() {
    let (_backend, _alice, bob) = bob_with(&["one", "two", "three"]).await;
    let mut stream = bob.messages().open().await.unwrap();
    let (_, before) = hand_out(&mut stream).await;
    stream.close().await;

    let mut stream = bob.messages().open().await.unwrap();
    let (text, first) = hand_out(&mut stream).await;
    assert_eq!(text, "one");
    let refused = |error: Result<(), Error>| match error {
        Err(Error::Handoff(error)) => error,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(refused(stream.acknowledge_handoff(before).await), HandoffError::Foreign);
    let early = stream.hand_out().await.unwrap().unwrap_err();
    assert!(matches!(early, Error::Handoff(HandoffError::Unacknowledged)), "{early:?}");
    stream.acknowledge_handoff(first).await.unwrap();
    assert_eq!(refused(stream.acknowledge_handoff(first).await), HandoffError::Stale);
    let (text, second) = hand_out(&mut stream).await;
    assert_eq!(text, "two");
    // An answer that comes twice doesn't settle the item after it.
    assert_eq!(refused(stream.acknowledge_handoff(first).await), HandoffError::Stale);
    stream.close().await;

    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(hand_out(&mut stream).await.0, "two");
    assert_eq!(refused(stream.acknowledge_handoff(second).await), HandoffError::Foreign);
    stream.close().await;
    assert_clean(&bob).await;
}
