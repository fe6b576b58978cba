//! A server that is killed under load, again and again.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use highwater_backend::{Server, ServerConfig};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tempfile::TempDir;

use crate::{
    fixture::{Client, id, soon, welcome, welcome_topic},
    follower::Follower,
    size,
};

/// Set in the child: the database and the address.
const CHILD: &str = "HIGHWATER_TEST_SERVER";
const TOPICS: u8 = 4;
const WHOLE: Duration = Duration::from_secs(300);

/// Not a test of its own: what the tests here start as another process, so that killing it is real.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_process() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (database, address) = told.split_once(' ').expect("a database and an address");
    let mut config = ServerConfig::new(database.parse().expect("a database"));
    config.listen = address.parse().expect("an address");
    // The port of one that was just killed may be taken a moment longer.
    let server = soon("the address", async {
        loop {
            match Server::bind(config.clone()).await {
                Ok(server) => return server,
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    server.await.serve(std::future::pending()).await.expect("served");
}

struct Process(Child);

impl Process {
    fn start(database: &Path, address: SocketAddr) -> Self {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "killed::server_process"])
            .env(CHILD, format!("sqlite:{} {address}", database.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("started"))
    }
}

impl Drop for Process {
    /// SIGKILL.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn connect(address: SocketAddr) -> Client {
    let url = format!("http://{address}");
    soon("a server", async {
        loop {
            match Client::try_connect(&url).await {
                Ok(client) => return client,
                // Killed a moment ago.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
}

/// An address that nobody is given by chance while a killed server's successor isn't there yet: below the
/// ports that systems hand out.
fn address() -> SocketAddr {
    let mut random = rand::rng();
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], random.random_range(20_000..30_000)));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Publishes, each envelope until it is answered as stored. What was answered, in order.
async fn publish(address: SocketAddr, topic: u8, messages: usize) -> Vec<u64> {
    let mut client = connect(address).await;
    let mut stored = Vec::new();
    for number in 0..messages {
        let envelope = welcome(topic, format!("{number}").as_bytes());
        loop {
            match client.put(vec![envelope.clone()]).await {
                Ok(metas) => {
                    stored.push(id(&metas[0]));
                    break;
                }
                Err(_) => client = connect(address).await,
            }
        }
    }
    stored
}

/// Shows: STR-010, STR-036.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_and_is_seen_once() {
    let (kills, messages) = (size(5, 100), size(400, 10_000));
    let folder = TempDir::new().expect("a folder");
    let database = folder.path().join("backend.db");
    let address = address();
    let mut process = Some(Process::start(&database, address));
    let publishers: Vec<_> =
        (0..TOPICS).map(|topic| tokio::spawn(publish(address, topic, messages))).collect();
    let total = usize::from(TOPICS) * messages;
    let readers = futures::future::join_all((0..3).map(async |_| {
        let mut follower = Follower::of(0..TOPICS);
        follower.receive(async || connect(address).await, total).await;
        follower
    }));
    let killing = async {
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..kills {
            tokio::time::sleep(Duration::from_millis(random.random_range(100..500))).await;
            drop(process.take());
            process = Some(Process::start(&database, address));
        }
    };
    let whole = tokio::time::timeout(WHOLE, async { tokio::join!(readers, killing) });
    let (followers, ()) = whole.await.expect("in time");
    let mut stored = Vec::new();
    for publisher in publishers {
        stored.push(tokio::time::timeout(WHOLE, publisher).await.expect("in time").expect("published"));
    }
    for follower in followers {
        for (topic, ids) in (0..TOPICS).zip(&stored) {
            assert_eq!(follower.received()[&welcome_topic(topic)], *ids);
        }
    }
    let client = connect(address).await;
    for (topic, ids) in (0..TOPICS).zip(&stored) {
        assert_eq!(client.all(welcome_topic(topic)).await, *ids);
    }
    drop(process);
}
