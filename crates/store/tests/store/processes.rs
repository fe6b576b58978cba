//! Several processes on one file: this test binary runs itself again, with one test as the other process's program.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use highwater_store::{DatabaseKey, OpenError, OpenOptions, Store, StoreError, audit};

use crate::support::{NOTES, Place, SOON, texts, write};

const DATABASE: &str = "HIGHWATER_STORE_TEST_DATABASE";
const PROGRAM: &str = "HIGHWATER_STORE_TEST_PROGRAM";

const TASKS: u32 = 4;

/// Increments of each task in each process: a moment's worth, or about a minute's.
fn increments() -> u32 {
    if std::env::var_os("HIGHWATER_SOAK").is_some() { 8_000 } else { 60 }
}

fn start(place: &Place, program: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::program_of_another_process", "--nocapture"])
        .env(DATABASE, place.path())
        .env(PROGRAM, program)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn succeeds(mut child: Child) {
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(ended.success(), "the other process failed: {ended}");
}

/// Not a test of its own: what the other processes run. Without its variables it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_of_another_process() {
    let (Ok(path), Ok(program)) = (std::env::var(DATABASE), std::env::var(PROGRAM)) else {
        return;
    };
    let holds = format!("{path}.held");
    let options = OpenOptions::new(path, DatabaseKey::from_bytes([7; 32]), vec![NOTES]);
    let store = Store::open(options).await.unwrap();
    match program.as_str() {
        "count" => count(&store).await,
        "note" => write(&store, "from elsewhere").await.unwrap(),
        "hold for 3 s" => {
            let held: Result<(), StoreError> = store
                .write("hold", move |tx| {
                    Box::pin(async move {
                        crate::support::insert(tx, "held").await?;
                        std::fs::write(holds, b"").unwrap();
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        Ok(())
                    })
                })
                .await;
            held.unwrap();
        }
        "write until killed" => loop {
            write(&store, "one of many").await.unwrap();
        },
        unknown => panic!("no such program: {unknown}"),
    }
    store.close().await;
}

/// Reads, then writes what it read plus one.
async fn count(store: &Store) {
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..increments() {
                increment(&store).await.unwrap();
            }
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.unwrap();
    }
}

async fn increment(store: &Store) -> Result<(), StoreError> {
    store
        .write("increment", |tx| {
            Box::pin(async move {
                let count: Option<String> = sqlx::query_scalar("SELECT text FROM notes_rows WHERE id = 1")
                    .fetch_optional(tx.conn())
                    .await?;
                let count = count.map_or(0, |count| count.parse::<u32>().unwrap()) + 1;
                sqlx::query("INSERT OR REPLACE INTO notes_rows (id, text) VALUES (1, ?)")
                    .bind(count.to_string())
                    .execute(tx.conn())
                    .await?;
                Ok(())
            })
        })
        .await
}

/// Case I3: all processes start at the same moment on a new file, and read before they write.
///
/// Shows: STR-070.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_read_and_then_write_lose_nothing_and_see_no_lock_error() {
    let place = Place::new();
    let children = [start(&place, "count"), start(&place, "count")];
    let store = place.open().await;
    count(&store).await;
    for child in children {
        succeeds(child).await;
    }
    assert_eq!(texts(&store).await, [(3 * TASKS * increments()).to_string()]);
}

/// Shows: STR-070.
#[tokio::test]
async fn a_writer_waits_for_another_process_that_holds_the_lock_for_3_seconds() {
    let place = Place::new();
    let store = place.open().await;
    let child = start(&place, "hold for 3 s");
    let holds = place.folder.path().join("notes.db.held");
    tokio::time::timeout(SOON, async {
        while !holds.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let impatient = Store::open(place.options().busy_timeout(Duration::ZERO)).await;
    assert!(matches!(impatient, Err(OpenError::Busy)), "{impatient:?}");
    write(&store, "waited").await.unwrap();
    assert_eq!(texts(&store).await, ["held", "waited"]);
    succeeds(child).await;
}

/// Shows: STR-078.
#[tokio::test]
async fn another_processs_commit_wakes() {
    let place = Place::new();
    let store = place.open().await;
    let mut wakes = store.wakes();
    let child = start(&place, "note");
    tokio::time::timeout(SOON, async {
        while texts(&store).await.is_empty() {
            wakes.changed().await.unwrap();
        }
    })
    .await
    .expect("a wake follows the commit, without any timer of the waiter");
    succeeds(child).await;
}

/// Case I6: killed during heavy writing; the WAL stays, unreadable, and nothing committed is lost.
///
/// Shows: STR-064.
#[tokio::test]
async fn a_killed_writer_leaves_a_whole_and_unreadable_database() {
    let place = Place::new();
    let mut child = start(&place, "write until killed");
    let wal = place.folder.path().join("notes.db-wal");
    tokio::time::timeout(SOON, async {
        while std::fs::metadata(&wal).map_or(0, |wal| wal.len()) < 500_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let files = place.files();
    assert!(!files["notes.db-wal"].is_empty());
    for (name, bytes) in files {
        let shows = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        assert!(!shows(b"one of many") && !shows(b"SQLite format 3"), "{name}");
    }
    let store = place.open().await;
    assert!(texts(&store).await.len() >= 50, "each commit takes at most two pages of the WAL");
    let found = store.read("audit", |tx| Box::pin(async move { audit(tx).await })).await.unwrap();
    assert!(found.is_clean(), "{found:?}");
}
