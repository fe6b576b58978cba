//! Nothing secret is readable in a client's files, nor in any log, whatever `RUST_LOG` asks for.

mod search;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use highwater_wire::proto::backend::{
    ClientEnvelope, GroupMessage, PublishRequest, QueryRequest, TopicQuery, client_envelope::Payload,
    publish_service_client::PublishServiceClient, query_service_client::QueryServiceClient,
};
use highwater_wire::{GroupId, InstallationKey, Topic};
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _, TypeInfo as _, ValueRef as _};

use self::search::Secrets;
use crate::support::binary;

const TEXT: &str = "Vq8zJw3kTnXc5RgYpL0d meet me where the river bends Hb7sMf2uQe9i";
const NAME: &str = "Zk4xWt9aKj6vPh1m society Db3nGy8oSr5c";

/// A backend and clients, all of which log as much as they can, each into a file of its own.
struct Scene {
    folder: tempfile::TempDir,
    backend: Option<Child>,
    url: String,
    logs: std::cell::Cell<u32>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["logs", "temporary"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut scene = Self { folder, backend: None, url: String::new(), logs: 0.into() };
        let database = format!("sqlite:{}", scene.path("backend.db").display());
        let mut backend = scene.start(&["serve", "--listen", "127.0.0.1:0", "--database", &database]);
        let mut line = String::new();
        BufReader::new(backend.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).expect("serve says where it listens");
        scene.url = format!("http://{}", listening["address"].as_str().unwrap());
        scene.backend = Some(backend);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.logs.set(self.logs.get() + 1);
        let log = File::create(self.path(&format!("logs/{}", self.logs.get()))).unwrap();
        let mut command = binary();
        command.env("RUST_LOG", "trace").env("TMPDIR", self.path("temporary"));
        command.arg("--json").args(arguments).stderr(log);
        command
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command of a client to its end, and says what it printed and whether it succeeded.
    fn try_run(&self, who: &str, command: &str, more: &[&str]) -> (Vec<Value>, bool) {
        let output = self.command(&self.arguments(who, command, more)).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        (printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output.status.success())
    }

    fn run(&self, who: &str, command: &str, more: &[&str]) -> Vec<Value> {
        let (printed, succeeded) = self.try_run(who, command, more);
        assert!(succeeded, "{command}: {printed:?}");
        printed
    }

    fn arguments<'a>(&self, who: &'a str, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments: Vec<_> = command.split(' ').collect();
        let home = self.path(who).to_str().unwrap().to_owned().leak();
        arguments.extend(["--home", home]);
        arguments.extend(more);
        arguments
    }

    fn init(&self, who: &str) -> String {
        self.run(who, "init", &["--backend", &self.url])[0]["inbox_id"].as_str().unwrap().to_owned()
    }

    /// Runs a command until the client's WAL is growing, and kills it there.
    fn kill_while_writing(&self, who: &str, command: &str, more: &[&str]) {
        let wal = self.path(who).join("client.db-wal");
        let length = || fs::metadata(&wal).map_or(0, |metadata| metadata.len());
        let before = length();
        let mut child = self.start(&self.arguments(who, command, more));
        let started = Instant::now();
        while length() <= before && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30), "nothing was written");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Every envelope of a topic, as the backend stored it.
    async fn stored(&self, topic: Topic) -> Vec<ClientEnvelope> {
        let mut client = QueryServiceClient::connect(self.url.clone()).await.unwrap();
        let queries = vec![TopicQuery { topic: Some(topic.to_proto()), cursor: None }];
        let page = client.query(QueryRequest { queries, limit: 1_000 }).await.unwrap().into_inner();
        page.envelopes.into_iter().filter_map(|stored| stored.envelope).collect()
    }

    async fn publish(&self, data: Vec<u8>) {
        let mut client = PublishServiceClient::connect(self.url.clone()).await.unwrap();
        let payload = Some(Payload::GroupMessage(GroupMessage { data, ..GroupMessage::default() }));
        client.publish(PublishRequest { envelopes: vec![ClientEnvelope { payload }] }).await.unwrap();
    }

    fn logs(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.path("logs"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut backend) = self.backend.take() {
            let _ = backend.kill();
            let _ = backend.wait();
        }
    }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = BTreeMap::new();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

fn data_of(envelope: &ClientEnvelope) -> Option<&[u8]> {
    match envelope.payload.as_ref()? {
        Payload::GroupMessage(message) => Some(&message.data),
        _ => None,
    }
}

/// What an MLS message carries behind its header, which names group, epoch and kind: version, wire format, group id
/// with its length, epoch, kind.
fn body(data: &[u8]) -> &[u8] {
    &data[2 + 2 + 17 + 8 + 1..]
}

/// Everything that two clients do, with messages that are refused, and commands that are killed.
async fn everything(scene: &Scene) -> GroupId {
    scene.init("alice");
    let bob = scene.init("bob");
    let created = scene.run("alice", "group create", &["--member", &bob, "--name", NAME]);
    let group = created[0]["group_id"].as_str().unwrap();
    scene.run("bob", "sync", &[]);
    scene.run("alice", "send", &["--group", group, TEXT]);
    let streamed = scene.run("bob", "stream", &["--count", "1", "--timeout", "30"]);
    assert!(streamed.iter().any(|line| line["text"] == TEXT), "{streamed:?}");
    let again = format!("{NAME}, renamed");
    scene.run("alice", "group rename", &["--group", group, "--name", &again]);
    refused(scene, group.parse().unwrap()).await;
    scene.run("bob", "sync", &[]);
    assert_eq!(scene.run("bob", "group list", &[])[0]["name"], again.as_str());
    for command in ["history", "replay", "status", "audit", "whoami"] {
        scene.run("bob", command, &[]);
    }
    scene.run("bob", "group members", &["--group", group]);
    for n in 0..12 {
        scene.run("alice", "send", &["--group", group, &format!("{TEXT} {n}")]);
    }
    scene.kill_while_writing("bob", "sync", &[]);
    scene.kill_while_writing("alice", "send", &["--group", group, TEXT]);
    group.parse().unwrap()
}

/// A tampered copy, and one that was never a message.
async fn refused(scene: &Scene, group: GroupId) {
    let stored = scene.stored(Topic::group(group)).await;
    let mut data = stored.iter().rev().find_map(data_of).unwrap().to_vec();
    *data.last_mut().unwrap() ^= 1;
    scene.publish(data.clone()).await;
    // The same header, nothing authenticated, and then two vectors of what is no ciphertext.
    data.truncate(2 + 2 + 17 + 8 + 1);
    let noise: Vec<u8> = (0..32_u8).map(|n| n.wrapping_mul(73) ^ 0x5a).collect();
    for part in [&[0][..], &[32], &noise, &[32], &noise] {
        data.extend_from_slice(part);
    }
    scene.publish(data).await;
}

/// What no log may show.
async fn secrets(scene: &Scene, group: GroupId) -> Secrets {
    let mut secrets = Secrets::default();
    for who in ["alice", "bob"] {
        private_keys(scene, who, &mut secrets).await;
    }
    // The stored state has names of fields, which anybody may read; no key consists of letters.
    secrets.forget_words();
    secrets.add("a message", TEXT.as_bytes());
    secrets.add("a group's name", NAME.as_bytes());
    for envelope in scene.stored(Topic::group(group)).await {
        secrets.add("a payload", body(data_of(&envelope).unwrap()));
    }
    for who in ["alice", "bob"] {
        for key in ["client.key", "wallet.key"] {
            let key = hex::decode(fs::read_to_string(scene.path(who).join(key)).unwrap().trim()).unwrap();
            secrets.add("a key of the home", &key);
        }
        let whoami = &scene.run(who, "whoami", &[])[0];
        let installation = InstallationKey::from_hex(whoami["installation_id"].as_str().unwrap()).unwrap();
        secrets.add("an installation id", installation.as_bytes());
        for envelope in scene.stored(Topic::welcome(installation)).await {
            secrets.add("a Welcome", &prost::Message::encode_to_vec(&envelope));
        }
    }
    secrets
}

/// Every value that the MLS state of a client consists of: private keys, secrets, trees.
async fn private_keys(scene: &Scene, who: &str, secrets: &mut Secrets) {
    let key = fs::read_to_string(scene.path(who).join("client.key")).unwrap();
    let options = SqliteConnectOptions::new()
        .filename(scene.path(who).join("client.db"))
        .pragma("key", format!("\"x'{}'\"", key.trim()));
    let mut database = options.connect().await.unwrap();
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'mls_%'")
            .fetch_all(&mut database)
            .await
            .unwrap();
    assert!(!tables.is_empty());
    for table in tables {
        let all = sqlx::AssertSqlSafe(format!("SELECT * FROM {table}"));
        for row in sqlx::query(all).fetch_all(&mut database).await.unwrap() {
            for at in 0..row.len() {
                let value = row.try_get_raw(at).unwrap();
                if !value.is_null() && value.type_info().name() == "BLOB" {
                    secrets.add(&format!("{table} of {who}"), row.get::<&[u8], _>(at));
                }
            }
        }
    }
}

/// Shows: PROC-036, STR-064.
#[tokio::test]
async fn no_file_and_no_log_of_clients_that_did_everything_shows_a_secret() {
    let scene = Scene::new();
    let group = everything(&scene).await;
    let mut plain = Secrets::default();
    plain.add("a message", TEXT.as_bytes());
    plain.add("a group's name", NAME.as_bytes());
    plain.add("a plain database", b"SQLite format 3");
    plain.add("a schema", b"receipt_pending");
    for envelope in scene.stored(Topic::group(group)).await {
        plain.add("a payload", body(data_of(&envelope).unwrap()));
    }
    for who in ["alice", "bob"] {
        let home = files(&scene.path(who));
        let wal = home.iter().find(|(path, _)| path.ends_with("client.db-wal")).unwrap();
        assert!(!wal.1.is_empty(), "{who} was killed before it wrote");
        for (path, bytes) in home {
            let found = plain.in_bytes(&bytes);
            assert!(found.is_empty(), "{path} shows {found:?}");
        }
    }
    assert_eq!(files(&scene.path("temporary")).into_keys().collect::<Vec<_>>(), [""; 0]);

    let secrets = secrets(&scene, group).await;
    assert!(secrets.len() > 5_000, "{} pieces", secrets.len());
    let logs = scene.logs();
    assert!(logs.values().map(Vec::len).sum::<usize>() > 10_000, "the logs are written");
    let found = logs.iter().map(|(path, log)| (path, secrets.in_log(log)));
    let leaks: Vec<_> = found.filter(|(_, found)| !found.is_empty()).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}
