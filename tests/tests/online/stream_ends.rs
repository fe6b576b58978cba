//! What a stream says when its database fails under it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::{CloseReason, Content, Error, MessageStream};
use highwater_store::StoreError;
use highwater_testkit::{TestBackend, TestClient};
use highwater_tests::Inside;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(20);

/// Something else that has the database open does this to it.
async fn damage(bob: &TestClient, sql: &'static str) {
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let done: Result<(), StoreError> = inside
        .store
        .write("damage", move |tx| {
            Box::pin(async move {
                sqlx::query(sql).execute(tx.conn()).await?;
                Ok(())
            })
        })
        .await;
    done.unwrap();
    inside.close().await;
}

async fn bob_with_two() -> (TestBackend, TestClient) {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    for text in ["one", "two"] {
        group.send_text(text).await.unwrap();
    }
    bob.sync().await.unwrap();
    (backend, bob)
}

async fn next_text(stream: &mut MessageStream) -> String {
    loop {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Content::Text(text) = item.message.content {
            return text;
        }
    }
}

/// An acknowledgement, a local read and a check of ownership that the database fails: each ends the stream with its cause,
/// told once to the hook and once to the read, worth another try; and the next stream loses nothing.
///
/// Shows: STR-095, PROC-040, PROC-041, PROC-043.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_fails_ends_the_stream_once_with_its_cause_and_loses_nothing() {
    let failures = [
        ("ALTER TABLE delivery_positions RENAME TO away", "ALTER TABLE away RENAME TO delivery_positions"),
        ("ALTER TABLE delivery_counter RENAME TO away", "ALTER TABLE away RENAME TO delivery_counter"),
        ("ALTER TABLE delivery_consumer RENAME TO away", "ALTER TABLE away RENAME TO delivery_consumer"),
    ];
    for (breaks, mends) in failures {
        let (_backend, bob) = bob_with_two().await;
        let told = Arc::<Mutex<Vec<String>>>::default();
        let (errors, closes) = (Arc::clone(&told), Arc::clone(&told));
        let mut stream = bob
            .messages()
            .on_error(move |error| errors.lock().unwrap().push(format!("error {}", error.is_retryable())))
            .on_close(move |reason| closes.lock().unwrap().push(format!("close {}", reason.is_retryable())))
            .open()
            .await
            .unwrap();
        assert_eq!(next_text(&mut stream).await, "one");
        damage(&bob, breaks).await;
        let error = loop {
            match tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
                // What doesn't need the table goes on.
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::StreamStorage(_)) && error.is_retryable(), "{error:?}");
        assert!(stream.next().await.is_none(), "an error is reported once");
        stream.close().await;
        assert_eq!(*told.lock().unwrap(), ["error true", "close true"], "{breaks}");
        damage(&bob, mends).await;
        let mut stream = bob.messages().open().await.unwrap();
        // Only a failed look for more comes after the acknowledgement.
        if !breaks.contains("counter") {
            assert_eq!(next_text(&mut stream).await, "one", "{breaks}");
        }
        stream.close().await;
    }
}

/// Shows: STR-094, PROC-040, PROC-041, PROC-043.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_whose_acknowledgement_fails_is_told_why_and_gets_its_item_again() {
    let (_backend, bob) = bob_with_two().await;
    let (closed, mut reasons) = mpsc::unbounded_channel();
    let (seen, mut items) = mpsc::unbounded_channel();
    let (go_on, may_return) = tokio::sync::watch::channel(false);
    let subscription = bob
        .messages()
        .on_message(
            move |item| {
                let (seen, mut may_return) = (seen.clone(), may_return.clone());
                async move {
                    seen.send(item.message.id).unwrap();
                    may_return.wait_for(|may| *may).await?;
                    Ok(())
                }
            },
            move |reason| closed.send(reason).unwrap(),
        )
        .await
        .unwrap();
    let first = tokio::time::timeout(PATIENCE, items.recv()).await.unwrap().unwrap();
    damage(&bob, "ALTER TABLE delivery_positions RENAME TO away").await;
    go_on.send_replace(true);
    let reason = tokio::time::timeout(PATIENCE, reasons.recv()).await.unwrap().unwrap();
    assert!(
        matches!(reason, CloseReason::Failed(Error::StreamStorage(_))) && reason.is_retryable(),
        "{reason:?}"
    );
    subscription.close().await;
    assert!(reasons.recv().await.is_none() && items.recv().await.is_none(), "nothing outlives the end");
    damage(&bob, "ALTER TABLE away RENAME TO delivery_positions").await;
    let mut stream = bob.messages().open().await.unwrap();
    let again = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(again.message.id, first);
    stream.close().await;
}

/// The stream loses its ownership and is still giving it up, which takes the writer, when the app closes the subscription:
/// the hook and the close notification tell the same end.
///
/// Shows: PROC-041, PROC-031.
#[tokio::test(flavor = "multi_thread")]
async fn a_close_on_top_of_a_failure_is_told_as_the_failure() {
    let (_backend, bob) = bob_with_two().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let hook = tell.clone();
    let (handed, mut texts) = mpsc::unbounded_channel();
    let subscription = bob
        .messages()
        .on_close(move |reason| hook.send(format!("{reason:?}")).unwrap())
        .on_message(
            move |item| {
                handed.send(item.message.text().map(str::to_owned).ok()).unwrap();
                async { Ok(()) }
            },
            move |reason| tell.send(format!("{reason:?}")).unwrap(),
        )
        .await
        .unwrap();
    while texts.recv().await.unwrap().as_deref() != Some("two") {}
    let inside = Inside::open(&bob.path(), &bob.key()).await;
    let lock = File::open(PathBuf::from(format!("{}.consumer", bob.path().display()))).unwrap();
    let (released, release) = tokio::sync::oneshot::channel::<()>();
    let steal = inside.store.write("steal", |tx| {
        Box::pin(async move {
            sqlx::query("UPDATE delivery_consumer SET token = randomblob(16)").execute(tx.conn()).await?;
            Ok::<_, StoreError>(())
        })
    });
    steal.await.unwrap();
    let hold = inside.store.write("hold", |_| {
        Box::pin(async move {
            release.await.ok();
            Ok::<_, StoreError>(())
        })
    });
    let close = async {
        // The lock goes first.
        while lock.try_lock().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(told.try_recv().is_err(), "told while it still owns");
        subscription.close().await;
        released.send(()).unwrap();
        [told.recv().await.unwrap(), told.recv().await.unwrap()]
    };
    let (held, told) = tokio::join!(hold, tokio::time::timeout(PATIENCE, close));
    held.unwrap();
    let told = told.unwrap();
    assert!(told.iter().all(|reason| reason == "Failed(Consumer(OwnershipLost))"), "{told:?}");
    inside.close().await;
}
