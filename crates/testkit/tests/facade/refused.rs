//! A deployment that will not have this client any more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::{ConnectionState, Content, Item, ReceiverKind};
use highwater_testkit::{Relay, TestBackend, TestClient, assert_clean, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

fn text(item: &Item) -> Option<&str> {
    match &item.message.content {
        Content::Text(text) => Some(text),
        _ => None,
    }
}

/// Streams end once and not retryably, operations fail before any request, and what is stored stays and goes on being
/// handed out. Nothing is lost for a client that is let in again.
///
/// Shows: PROC-021, PROC-041, PROC-043, PROC-048.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_is_told_once_and_keeps_what_it_has() {
    for receiver in [ReceiverKind::Bidirectional, ReceiverKind::Static] {
        let backend = TestBackend::start().await;
        let relay = Relay::to(backend.address()).await;
        let alice = TestClient::new(&backend.url()).await;
        let mut bob = TestClient::new(&relay.url()).await;
        bob.set_receiver(receiver);
        bob.reopen().await;
        let group = alice.create_group([bob.inbox_id()]).await.unwrap();
        group.send_text("one").await.unwrap();
        bob.sync().await.unwrap();

        let told = Arc::<Mutex<Vec<String>>>::default();
        let (closes, errors) = (Arc::clone(&told), Arc::clone(&told));
        let mut messages = bob
            .messages()
            .on_error(move |error| errors.lock().unwrap().push(format!("error: {}", error.is_retryable())))
            .on_close(move |reason| closes.lock().unwrap().push(format!("close: {}", reason.is_retryable())))
            .open()
            .await
            .unwrap();
        let mut replay = bob.replay(bob.beginning()).open().await.unwrap();
        let mut conversations = bob.conversations().open().await.unwrap();
        let mut state = messages.connection_state().await.unwrap();
        tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == ConnectionState::Connected))
            .await
            .unwrap()
            .unwrap();

        relay.refuse();
        group.send_text("two").await.unwrap();
        // What is stored comes first.
        let mut last = None;
        let error = loop {
            match tokio::time::timeout(PATIENCE, messages.next()).await.unwrap().unwrap() {
                Ok(item) => last = text(&item).map(str::to_owned).or(last),
                Err(error) => break error,
            }
        };
        assert!(error.is_refused() && !error.is_retryable(), "{error:?}");
        assert_eq!(last.as_deref(), Some("one"));
        assert!(messages.next().await.is_none());
        let error = tokio::time::timeout(PATIENCE, conversations.next()).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_refused(), "{error:?}");
        let error = loop {
            if let Err(error) = tokio::time::timeout(PATIENCE, replay.next()).await.unwrap().unwrap() {
                break error;
            }
        };
        assert!(error.is_refused(), "{error:?}");
        assert_eq!(*state.borrow(), ConnectionState::Closed);
        drop(messages);
        assert_eq!(*told.lock().unwrap(), ["error: false", "close: false"]);

        // One of the same client's that is opened now is told as well.
        let mut late = bob.replay(bob.beginning()).open().await.unwrap();
        let error = loop {
            if let Err(error) = tokio::time::timeout(PATIENCE, late.next()).await.unwrap().unwrap() {
                break error;
            }
        };
        assert!(error.is_refused(), "{error:?}");
        let refused = relay.traffic().refused;
        let error = bob.sync().await.unwrap_err();
        assert!(error.is_refused() && !error.is_retryable(), "{error:?}");
        assert_eq!(relay.traffic().refused, refused, "something was sent");

        bob.close().await;
        bob.set_backend(&backend.url());
        bob.open().await;
        let mut messages = bob.messages().open().await.unwrap();
        let mut got = Vec::new();
        while got.last().is_none_or(|last| last != "two") {
            let item = tokio::time::timeout(PATIENCE, messages.next()).await.unwrap().unwrap().unwrap();
            got.extend(text(&item).map(str::to_owned));
        }
        assert_eq!(got, ["two"], "asking for more acknowledged what was out before the end");
        messages.close().await;
        eventually("nothing to be owed", async || bob.status().await.unwrap().unsettled == 0).await;
        assert_clean(&bob).await;
    }
}
