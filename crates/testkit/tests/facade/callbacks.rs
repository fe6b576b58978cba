use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::{CloseReason, Content, Item};
use highwater_testkit::{TestBackend, TestClient, eventually};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

type Seen = Arc<Mutex<Vec<String>>>;

fn text(item: &Item) -> Option<String> {
    match &item.message.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    }
}

pub(crate) async fn bob_with(messages: &[&str]) -> (TestBackend, TestClient) {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    for message in messages {
        group.send_text(message).await.unwrap();
    }
    bob.sync().await.unwrap();
    (backend, bob)
}

/// Runs a callback that notes each text and then does what `then` says, until it closes by itself.
async fn until_closed(bob: &TestClient, then: fn(&str) -> Result<(), String>) -> (Vec<String>, CloseReason) {
    let (seen, (closed, mut reasons)) = (Seen::default(), mpsc::unbounded_channel());
    let noted = Arc::clone(&seen);
    let subscription = bob
        .messages()
        .all_groups()
        .on_message(
            move |item| {
                let noted = Arc::clone(&noted);
                async move {
                    match text(&item) {
                        Some(text) => {
                            noted.lock().unwrap().push(text.clone());
                            Ok(then(&text)?)
                        }
                        None => Ok(()),
                    }
                }
            },
            move |reason| closed.send(reason).unwrap(),
        )
        .await
        .unwrap();
    let reason = tokio::time::timeout(PATIENCE, reasons.recv()).await.unwrap().unwrap();
    subscription.close().await;
    assert!(reasons.recv().await.is_none(), "two close notifications");
    let seen = seen.lock().unwrap().clone();
    (seen, reason)
}

/// Shows: STR-094, PROC-041.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_ends_the_stream_and_its_item_comes_again() {
    let (_backend, bob) = bob_with(&["one", "two", "three"]).await;
    let fail = |text: &str| {
        if text == "two" { Err("no room".to_owned()) } else { Ok(()) }
    };
    let (seen, reason) = until_closed(&bob, fail).await;
    assert_eq!(seen, ["one", "two"]);
    assert!(matches!(&reason, CloseReason::Callback(error) if error.to_string() == "no room"));
    assert!(!reason.is_retryable());
    let (seen, _) =
        until_closed(&bob, |text| if text == "three" { Err("stop".into()) } else { Ok(()) }).await;
    assert_eq!(seen, ["two", "three"]);
}

/// Shows: PROC-041, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_the_stream_and_its_item_comes_again() {
    let (_backend, bob) = bob_with(&["one", "two"]).await;
    let (seen, reason) = until_closed(&bob, |text| match text {
        "two" => panic!("a callback of a test panics"),
        _ => Ok(()),
    })
    .await;
    assert_eq!(seen, ["one", "two"]);
    assert!(matches!(reason, CloseReason::Panicked));
    let (seen, _) = until_closed(&bob, |_| Err("stop".into())).await;
    assert_eq!(seen, ["two"]);
}

/// Shows: PROC-041, PROC-042.
#[tokio::test(flavor = "multi_thread")]
async fn closing_it_is_no_error_and_what_was_handled_stays_handled() {
    let (_backend, bob) = bob_with(&["one", "two"]).await;
    let (seen, (closed, mut reasons)) = (Seen::default(), mpsc::unbounded_channel());
    let noted = Arc::clone(&seen);
    let subscription = bob
        .messages()
        .on_message(
            move |item| {
                noted.lock().unwrap().extend(text(&item));
                std::future::ready(Ok(()))
            },
            move |reason| closed.send(reason).unwrap(),
        )
        .await
        .unwrap();
    eventually("both to be handled", async || seen.lock().unwrap().len() == 2).await;
    subscription.close().await;
    assert!(matches!(reasons.recv().await, Some(CloseReason::Closed)));
    assert!(reasons.recv().await.is_none(), "two close notifications");
    let mut stream = bob.messages().open().await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(500), stream.next()).await;
    assert!(next.is_err(), "{next:?}");
    stream.close().await;
}
