//! Ends of streams and clients, as an app is told of them.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use highwater::{Client, Database, Error, HandoffError};
use tokio::sync::mpsc;

use crate::callbacks::bob_with;
use crate::streams::next_text;

const PATIENCE: Duration = Duration::from_secs(20);

/// Shows: STR-094, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_after_the_end_is_refused_and_its_item_comes_again() {
    let (_backend, mut bob) = bob_with(&["one"]).await;
    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "one");
    bob.close().await;
    assert!(matches!(stream.next().await, Some(Err(Error::Closed))));
    for _ in 0..2 {
        assert!(matches!(stream.acknowledge().await, Err(Error::Handoff(HandoffError::Stale))));
    }
    assert!(stream.next().await.is_none());
    bob.open().await;
    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "one");
    // The end that the acknowledgement itself met.
    bob.close().await;
    assert!(matches!(stream.acknowledge().await, Err(Error::Closed)));
    assert!(matches!(stream.acknowledge().await, Err(Error::Handoff(HandoffError::Stale))));
    bob.open().await;
    let mut stream = bob.messages().open().await.unwrap();
    assert_eq!(next_text(&mut stream).await, "one");
    stream.close().await;
}

/// The notification is what an app opens the next stream on.
///
/// Shows: PROC-041, PROC-031.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn once_the_end_is_told_the_next_stream_can_be_opened() {
    let (_backend, mut bob) = bob_with(&[]).await;
    for end in ["close", "drop", "fail"] {
        let (told, reopened) = std_mpsc::channel();
        let (client, runtime) = ((*bob).clone(), tokio::runtime::Handle::current());
        let reopen = move |_: &highwater::CloseReason| {
            let (client, told) = (client.clone(), told.clone());
            let runtime = runtime.clone();
            // While it is being told, and not once the hook has returned.
            let opening =
                std::thread::spawn(move || runtime.block_on(async { client.messages().open().await.err() }));
            told.send(opening.join().unwrap()).unwrap();
        };
        let mut stream = bob.messages().on_close(reopen).open().await.unwrap();
        match end {
            "close" => stream.close().await,
            "drop" => drop(stream),
            _ => {
                bob.close().await;
                assert!(matches!(stream.next().await, Some(Err(Error::Closed))));
            }
        }
        let opened: Option<Error> = reopened.recv_timeout(PATIENCE).unwrap();
        match end {
            "fail" => assert!(matches!(opened, Some(Error::Closed)), "{opened:?}"),
            _ => assert!(opened.is_none(), "{end}: {opened:?}"),
        }
    }
    bob.open().await;
}

/// What a callback captured panics when it is dropped, as the stream ends.
///
/// Shows: PROC-041.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_panics_as_it_is_dropped_keeps_no_close_notification_back() {
    struct Captured;
    impl Drop for Captured {
        fn drop(&mut self) {
            panic!("what a callback captured panics");
        }
    }
    let (_backend, bob) = bob_with(&[]).await;
    let (closed, mut reasons) = mpsc::unbounded_channel();
    let hook = closed.clone();
    let captured = Captured;
    let callback = move |_| {
        let _captured = &captured;
        async { Ok(()) }
    };
    let subscription = bob
        .messages()
        .on_close(move |reason| hook.send(format!("{reason:?}")).unwrap())
        .on_message(callback, move |reason| closed.send(format!("{reason:?}")).unwrap())
        .await
        .unwrap();
    subscription.close().await;
    let mut told = Vec::new();
    while let Some(reason) = reasons.recv().await {
        told.push(reason);
    }
    assert_eq!(told, ["Closed", "Closed"]);
}

/// Shows: PROC-041.
#[test]
fn the_end_of_the_runtime_is_told_too() {
    let start = || tokio::runtime::Runtime::new().unwrap();
    let around = start();
    let (_backend, mut bob) = around.block_on(bob_with(&[]));
    around.block_on(bob.close());
    let (closed, reasons) = std_mpsc::channel();
    let hook = closed.clone();
    let runtime = start();
    let subscription = runtime.block_on(async {
        let database = Database::file(bob.path(), bob.key());
        let client = Client::builder().database(database).open().await.unwrap();
        client
            .messages()
            .on_close(move |reason| hook.send(format!("{reason:?}")).unwrap())
            .on_message(|_| async { Ok(()) }, move |reason| closed.send(format!("{reason:?}")).unwrap())
            .await
            .unwrap()
    });
    drop(runtime);
    drop(subscription);
    assert_eq!(reasons.iter().collect::<Vec<_>>(), ["Closed", "Closed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_says_so_in_one_way() {
    let (_backend, mut bob) = bob_with(&[]).await;
    let client: Client = (*bob).clone();
    let group = client.groups().await.unwrap().remove(0);
    bob.close().await;
    let elsewhere = bob.path().with_extension("elsewhere");
    // No lock is held afterwards, and the file can be moved.
    std::fs::rename(bob.path(), &elsewhere).unwrap();
    let told = [
        client.messages().open().await.err(),
        client.replay(client.beginning()).open().await.err(),
        client.conversations().open().await.err(),
        client.history().page().await.err(),
        client.groups().await.err(),
        client.status().await.err(),
        client.sync().await.err(),
        group.members().await.err(),
        group.send_text("late").await.err(),
    ];
    assert!(told.iter().all(|told| matches!(told, Some(Error::Closed))), "{told:?}");
    std::fs::rename(elsewhere, bob.path()).unwrap();
    bob.open().await;
}
