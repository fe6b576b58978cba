//! Closing a client that is in the middle of everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater::{Client, Content, Database, DatabaseKey, Group, Item};
use highwater_testkit::{TestBackend, TestClient, eventually};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::process::PATIENCE;
use crate::{seed, size};

/// In which `close` must return, with everything that waits answered: the time to finish what is being written.
const CLOSES_WITHIN: Duration = Duration::from_secs(10);

/// Case I4: whenever `close` comes, afterwards nothing of the client runs, no file is open, and nothing is lost.
///
/// Shows: STR-097, PROC-026, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_closed_under_load_leaves_nothing_behind_and_loses_nothing() {
    let mut random = StdRng::seed_from_u64(seed());
    let backend = TestBackend::start().await;
    let alice = Arc::new(TestClient::new(&backend.url()).await);
    for _ in 0..size(6, 100) {
        let moment = Duration::from_millis(random.random_range(0..400));
        close_at(moment, &backend, &alice).await;
    }
}

async fn close_at(moment: Duration, backend: &TestBackend, alice: &Arc<TestClient>) {
    // A runtime of bob's own shows what of him is left.
    let own = Runtime::new().unwrap();
    let url = backend.url();
    let bob = own.spawn(async move { TestClient::new(&url).await }).await.unwrap();
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    group.send_text("first").await.unwrap();
    let client = Client::clone(&bob);
    let syncing = client.clone();
    own.spawn(async move { syncing.sync().await }).await.unwrap().unwrap();
    let talking = tokio::spawn(talk(group.clone()));
    let closed = Arc::new(Notify::new());
    let (reached, is_out) = oneshot::channel();
    let out = own.spawn(hold_an_item(client.clone(), reached, Arc::clone(&closed)));
    is_out.await.unwrap();
    let busy = load(&own, &client, group.id()).await;
    tokio::time::sleep(moment).await;

    let closing = client.clone();
    let started = Instant::now();
    own.spawn(async move { closing.close().await }).await.unwrap();
    assert!(started.elapsed() < CLOSES_WITHIN, "{:?}", started.elapsed());
    // The reader that holds an item lets go of the consumer's lock file in a task of its own.
    let released = Instant::now();
    while !open_files(&bob.path()).is_empty() && released.elapsed() < Duration::from_secs(1) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(open_files(&bob.path()), Vec::<PathBuf>::new());
    closed.notify_one();
    for waiting in busy {
        tokio::time::timeout(CLOSES_WITHIN, waiting).await.expect("every caller gets an answer").unwrap();
    }
    let out = tokio::time::timeout(CLOSES_WITHIN, out).await.expect("the reader gets an answer").unwrap();
    refuses_everything(&client).await;
    client.close().await;
    drop(client);
    eventually("every task of the client to be gone", async || own.metrics().num_alive_tasks() == 0).await;
    let said = talking.await.unwrap();

    let (folder, key) = (tempfile::tempdir().unwrap(), bob.key());
    let moved = move_to(&bob.path(), folder.path());
    own.shutdown_background();
    reopened(&moved, key, backend, group, out, said).await;
}

/// The messages come, 200 a second.
async fn talk(group: Group) -> usize {
    let started = Instant::now();
    let mut said = 0;
    while started.elapsed() < Duration::from_millis(500) {
        group.queue_text(&format!("message {said}")).await.unwrap();
        said += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    said
}

/// The item that is out when the client closes.
async fn hold_an_item(client: Client, reached: oneshot::Sender<()>, closed: Arc<Notify>) -> Item {
    let mut stream = client.messages().open().await.unwrap();
    let item = stream.next().await.unwrap().unwrap();
    reached.send(()).unwrap();
    closed.notified().await;
    assert!(stream.next().await.unwrap().is_err());
    assert!(stream.next().await.is_none());
    item
}

/// Everything else that a client can be in the middle of. Each ends when it is refused.
async fn load(own: &Runtime, client: &Client, group: highwater::GroupId) -> Vec<JoinHandle<()>> {
    let (sending, syncing, reading) = (client.clone(), client.clone(), client.clone());
    let sending = own.spawn(async move {
        let Ok(group) = sending.group(group).await else { return };
        while group.send_text("from bob").await.is_ok() {}
    });
    let syncing = own.spawn(async move { while syncing.sync().await.is_ok() {} });
    let reading = own.spawn(async move {
        let Ok(mut replay) = reading.replay(reading.beginning()).open().await else { return };
        while let Some(Ok(_)) = replay.next().await {}
    });
    vec![sending, syncing, reading]
}

async fn refuses_everything(client: &Client) {
    assert!(client.groups().await.is_err());
    assert!(client.sync().await.is_err());
    assert!(client.status().await.is_err());
    assert!(client.audit().await.is_err());
    assert!(client.catch_up().await.is_err());
    assert!(client.register().await.is_err());
    assert!(client.unsettled().await.is_err());
    assert!(client.create_group([]).await.is_err());
    assert!(client.history().page().await.is_err());
    assert!(client.messages().open().await.is_err());
    assert!(client.replay(client.beginning()).open().await.is_err());
}

/// What this process has open of a database, the files beside it included.
fn open_files(database: &Path) -> Vec<PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|open| open.to_string_lossy().starts_with(&*database.to_string_lossy())).collect()
}

fn move_to(database: &Path, folder: &Path) -> PathBuf {
    for file in std::fs::read_dir(database.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        std::fs::rename(file.path(), folder.join(file.file_name())).unwrap();
    }
    folder.join(database.file_name().unwrap())
}

async fn reopened(
    moved: &Path,
    key: DatabaseKey,
    backend: &TestBackend,
    group: Group,
    out: Item,
    said: usize,
) {
    let database = Database::file(moved, key);
    let client = Client::builder().database(database).backend(backend.url()).open().await.unwrap();
    let mut stream = client.messages().open().await.unwrap();
    let again = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((again.cursor, again.message.id), (out.cursor, out.message.id), "the item that was out");
    let mut heard = 0;
    while heard < said {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        if let Content::Text(text) = item.message.content
            && text.starts_with("message")
        {
            assert_eq!(text, format!("message {heard}"));
            heard += 1;
        }
    }
    eventually("what bob had queued to be sent", async || client.unsettled().await.unwrap() == 0).await;
    assert!(client.audit().await.unwrap().is_clean());
    assert_eq!(client.groups().await.unwrap()[0].id(), group.id());
    stream.close().await;
    client.close().await;
}
