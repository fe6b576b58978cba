//! The servers that the Python tests talk to, one for each behaviour that excludes another.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use highwater_backend::ServerConfig;
use highwater_wire::Topic;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::task::JoinHandle;

use crate::fixture::{Home, Running, identity, server, server_with, soon, welcome, welcome_topic};
use crate::people::Person;

/// Between two looks at the file by which a test asks for a shutdown.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Servers {
    /// The protocol's numbers.
    plain: (Home, Running),
    /// Small ceilings.
    limited: (Home, Running),
    /// Short keepalive and Pong wait.
    impatient: (Home, Running),
    /// Two stored values are broken.
    corrupt: (Home, Running),
    doomed: Doomed,
}

/// A server that is shut down when a test makes a file.
struct Doomed {
    url: String,
    _home: Home,
    ending: JoinHandle<()>,
}

impl Servers {
    pub(crate) async fn start(signals: &Path) -> Self {
        Self {
            plain: server().await,
            limited: server_with(small).await,
            impatient: server_with(|config| {
                config.timing.keepalive = Duration::from_millis(300);
                config.timing.pong_wait = Duration::from_millis(1_500);
            })
            .await,
            corrupt: corrupt(signals).await,
            doomed: Doomed::start(signals.join("stop")).await,
        }
    }

    /// Environment variables that name them.
    pub(crate) fn addresses(&self) -> [(&'static str, &str); 5] {
        [
            ("HIGHWATER_PLAIN", address(&self.plain.1.url)),
            ("HIGHWATER_LIMITED", address(&self.limited.1.url)),
            ("HIGHWATER_IMPATIENT", address(&self.impatient.1.url)),
            ("HIGHWATER_CORRUPT", address(&self.corrupt.1.url)),
            ("HIGHWATER_DOOMED", address(&self.doomed.url)),
        ]
    }

    pub(crate) async fn stop(self) {
        for (_home, running) in [self.plain, self.limited, self.impatient, self.corrupt] {
            running.stop().await;
        }
        soon("the shutdown that a test asked for", self.doomed.ending).await.expect("no panic");
    }
}

fn address(url: &str) -> &str {
    url.strip_prefix("http://").expect("a plain url")
}

fn small(config: &mut ServerConfig) {
    let limits = &mut config.limits;
    limits.max_envelope_bytes = 64 * 1024;
    limits.max_request_bytes = 256 * 1024;
    limits.max_response_bytes = 256 * 1024;
    limits.delivery_frame_target_bytes = 128 * 1024;
    limits.max_publish_topics = 3;
    limits.max_query_topics = 3;
    limits.default_query_limit = 2;
    limits.max_query_limit = 4;
    limits.max_static_topics = 3;
    limits.max_update_adds = 3;
}

/// Stores a Welcome for installation 1 and a registration, breaks both behind the server's back, and
/// leaves an update of the broken log for the test to publish.
async fn corrupt(signals: &Path) -> (Home, Running) {
    let (home, running) = server().await;
    let client = running.client().await;
    let person = Person::new(4);
    client.put_one(welcome(1, b"to be broken")).await;
    client.put_one(identity(person.registration.clone())).await;
    running.stop().await;

    let file = SqliteConnectOptions::new().filename(home.path());
    let mut database = SqliteConnection::connect_with(&file).await.expect("the file opens");
    for topic in [welcome_topic(1), Topic::identity(person.inbox)] {
        let broken = sqlx::query("UPDATE backend_envelopes SET payload = x'ff' WHERE topic = ?")
            .bind(topic.to_proto().topic)
            .execute(&mut database)
            .await
            .expect("written");
        assert_eq!(broken.rows_affected(), 1);
    }
    database.close().await.expect("closed");
    let addition = prost::Message::encode_to_vec(&identity(person.add(5)));
    crate::write(&signals.join("addition_to_corrupt_log.bin"), addition);
    let running = Running::start(&home, |_| {}).await;
    (home, running)
}

impl Doomed {
    async fn start(signal: PathBuf) -> Self {
        let (home, running) = server_with(|config| {
            // A Watch stream of the health service doesn't end by itself.
            config.timing.drain = Duration::from_secs(1);
        })
        .await;
        let url = running.url.clone();
        let ending = tokio::spawn(async move {
            while !signal.exists() {
                tokio::time::sleep(LOOK).await;
            }
            running.stop().await;
        });
        Self { url, _home: home, ending }
    }
}
