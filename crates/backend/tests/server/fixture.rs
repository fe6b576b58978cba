//! A running server with its file, clients, and builders of envelopes.

use std::{future::Future, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use highwater_backend::{
    Activity, DatabaseConfig, EnvelopeStore, PostgresStore, ServeError, Server, ServerConfig, SqliteStore,
    Timing,
};
use highwater_testkit_postgres::Postgres;
use highwater_wire::{
    GroupId, InstallationKey, Topic,
    proto::{
        associations::IdentityUpdate,
        backend::{
            ClientEnvelope, CommitLogEntry, Cursor, EnvelopeMeta, GroupMessage, KeyPackage, PublishError,
            PublishRequest, QueryRequest, QueryResponse, ServerEnvelope, TopicQuery, WelcomeMessage,
            client_envelope::Payload, identity_service_client::IdentityServiceClient,
            publish_service_client::PublishServiceClient, query_service_client::QueryServiceClient,
            subscribe_service_client::SubscribeServiceClient, welcome_message,
        },
    },
};
use prost::Message as _;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use tonic::{Code, Status, transport::Channel};

/// Longer than anything that should happen takes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Fails the test instead of waiting for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(done) => done,
        Err(_) => panic!("not in time: {what}"),
    }
}

pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) activity: Activity,
    metrics: Option<SocketAddr>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    /// Starts on the file; `change` adapts the configuration.
    pub(crate) async fn start(file: &Home, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::new(file.database());
        change(&mut config);
        Self::serve(Server::bind(config).await.expect("the server starts"))
    }

    /// Starts over a store that is open already.
    pub(crate) async fn start_over(
        store: Arc<dyn EnvelopeStore>,
        home: &Home,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let mut config = ServerConfig::new(home.database());
        change(&mut config);
        Self::serve(Server::bind_with(config, store).await.expect("the server starts"))
    }

    pub(crate) fn serve(server: Server) -> Self {
        let url = format!("http://{}", server.local_addr());
        let activity = server.activity();
        let metrics = server.metrics_addr();
        let (shutdown, asked) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(async {
            // A dropped sender asks as well.
            let _ = asked.await;
        }));
        Self { url, activity, metrics, shutdown: Some(shutdown), serving }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url).await
    }

    /// What the second listener answers: status line and headers, then the body.
    pub(crate) async fn get(&self, path: &str) -> (String, String) {
        let address = self.metrics.expect("a metrics listener");
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("asked");
        let mut answer = String::new();
        soon("an answer", stream.read_to_string(&mut answer)).await.expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
        (head.to_owned(), body.to_owned())
    }

    /// Asks for the orderly end without waiting for it.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
    }

    pub(crate) async fn stop(mut self) {
        self.ask_to_stop();
        soon("the orderly end", self.serving).await.expect("no panic").expect("served");
    }

    /// Ends it without any order, as far as one process can.
    pub(crate) async fn kill(self) {
        self.serving.abort();
        assert!(self.serving.await.is_err_and(|error| error.is_cancelled()));
    }
}

/// What the tests of this binary store in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

/// A server's database, new and empty.
pub(crate) enum Home {
    File(TempDir),
    Postgres(String),
}

impl Home {
    pub(crate) fn new() -> Self {
        match crate::ENGINE {
            Engine::Sqlite => Self::File(TempDir::new().expect("a temporary folder")),
            Engine::Postgres => {
                let server = Postgres::shared();
                Self::Postgres(server.url(&server.create_database()))
            }
        }
    }

    /// Of a SQLite database.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::File(folder) => folder.path().join("backend.db"),
            Self::Postgres(_) => panic!("PostgreSQL's files are its own"),
        }
    }

    pub(crate) fn database(&self) -> DatabaseConfig {
        match self {
            Self::File(_) => format!("sqlite:{}", self.path().display()).parse().expect("a database"),
            // Many tests share the server.
            Self::Postgres(url) => {
                let database: DatabaseConfig = url.parse().expect("a database");
                database.with_max_connections(6).expect("a few")
            }
        }
    }

    pub(crate) async fn store(&self) -> Arc<dyn EnvelopeStore> {
        let timing = Timing::default();
        match self.database() {
            DatabaseConfig::Sqlite(path) => {
                Arc::new(SqliteStore::open(&path, timing.statement_timeout).await.expect("a store"))
            }
            DatabaseConfig::Postgres(config) => {
                Arc::new(PostgresStore::open(&config, &timing).await.expect("a store"))
            }
            other => panic!("{other:?} is tested nowhere"),
        }
    }
}

/// A listener for metrics.
pub(crate) fn with_metrics(config: &mut ServerConfig) {
    config.metrics_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
}

/// A server with its own file and the protocol's numbers.
pub(crate) async fn server() -> (Home, Running) {
    server_with(|_| {}).await
}

pub(crate) async fn server_with(change: impl FnOnce(&mut ServerConfig)) -> (Home, Running) {
    let home = Home::new();
    let running = Running::start(&home, change).await;
    (home, running)
}

/// An instance on a database that others may use too.
pub(crate) async fn start_on(url: &str) -> Running {
    let config = ServerConfig::new(url.parse().expect("a database"));
    Running::serve(Server::bind(config).await.expect("the server starts"))
}

/// So few topics a stream that small bounds can carry what is said of all of them.
pub(crate) fn few_topics(config: &mut ServerConfig) {
    config.limits.max_update_adds = 100;
    config.limits.max_static_topics = 100;
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) channel: Channel,
    pub(crate) query: QueryServiceClient<Channel>,
    pub(crate) publish: PublishServiceClient<Channel>,
    pub(crate) subscribe: SubscribeServiceClient<Channel>,
    pub(crate) identity: IdentityServiceClient<Channel>,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.expect("connected")
    }

    /// For a server that may be gone.
    pub(crate) async fn try_connect(url: &str) -> Result<Self, tonic::transport::Error> {
        let endpoint = Channel::from_shared(url.to_owned()).expect("a url");
        let channel = endpoint.connect().await?;
        let max = 64 * 1024 * 1024;
        Ok(Self {
            query: QueryServiceClient::new(channel.clone()).max_decoding_message_size(max),
            publish: PublishServiceClient::new(channel.clone()).max_decoding_message_size(max),
            subscribe: SubscribeServiceClient::new(channel.clone()).max_decoding_message_size(max),
            identity: IdentityServiceClient::new(channel.clone()),
            channel,
        })
    }

    pub(crate) async fn put(&self, envelopes: Vec<ClientEnvelope>) -> Result<Vec<EnvelopeMeta>, Status> {
        let request = PublishRequest { envelopes };
        Ok(self.publish.clone().publish(request).await?.into_inner().envelope_metas)
    }

    /// Publishes one envelope and gives its id.
    pub(crate) async fn put_one(&self, envelope: ClientEnvelope) -> u64 {
        let metas = self.put(vec![envelope]).await.expect("published");
        assert_eq!(metas.len(), 1);
        id(&metas[0])
    }

    pub(crate) async fn page(&self, queries: &[(Topic, u64)], limit: u32) -> Result<QueryResponse, Status> {
        let queries = queries.iter().map(|(topic, after)| at(*topic, *after)).collect();
        Ok(self.query.clone().query(QueryRequest { queries, limit }).await?.into_inner())
    }

    /// All ids of a topic, page by page.
    pub(crate) async fn all(&self, topic: Topic) -> Vec<u64> {
        let mut ids = Vec::new();
        loop {
            let after = ids.last().copied().unwrap_or(0);
            let page = self.page(&[(topic, after)], 0).await.expect("a page");
            ids.extend(page.envelopes.iter().map(envelope_id));
            if !has_more(&page) {
                return ids;
            }
        }
    }
}

pub(crate) fn has_more(page: &QueryResponse) -> bool {
    page.continuation.expect("a continuation").has_more
}

pub(crate) fn at(topic: Topic, after: u64) -> TopicQuery {
    let cursor = (after > 0).then_some(Cursor { sequence_id: after });
    TopicQuery { topic: Some(topic.to_proto()), cursor }
}

pub(crate) fn id(meta: &EnvelopeMeta) -> u64 {
    meta.cursor.expect("a cursor").sequence_id
}

pub(crate) fn envelope_id(envelope: &ServerEnvelope) -> u64 {
    id(envelope.meta.as_ref().expect("metadata"))
}

/// The PublishError in a status.
pub(crate) fn publish_error(status: &Status) -> PublishError {
    publish_error_in(status.details())
}

/// The PublishError in a `grpc-status-details-bin` header.
pub(crate) fn publish_error_of(header: &str) -> PublishError {
    publish_error_in(&STANDARD_NO_PAD.decode(header.trim_end_matches('=')).expect("base64"))
}

fn publish_error_in(details: &[u8]) -> PublishError {
    let rich = tonic_types::pb::Status::decode(details).expect("a google.rpc.Status");
    assert_eq!(rich.code, i32::from(Code::InvalidArgument));
    let detail = rich.details.first().expect("a detail");
    assert_eq!(detail.type_url, "type.googleapis.com/xmtp.backend.v1.PublishError");
    PublishError::decode(detail.value.as_slice()).expect("a PublishError")
}

pub(crate) fn envelope(payload: Payload) -> ClientEnvelope {
    ClientEnvelope { payload: Some(payload) }
}

pub(crate) fn installation(number: u8) -> InstallationKey {
    InstallationKey::from_bytes([number; 32])
}

/// A Welcome: the cheapest envelope there is. Its topic is `Topic::welcome(installation(number))`.
pub(crate) fn welcome(number: u8, data: &[u8]) -> ClientEnvelope {
    envelope(Payload::WelcomeMessage(WelcomeMessage {
        version: Some(welcome_message::Version::V1(welcome_message::V1 {
            installation_key: installation(number).as_bytes().to_vec(),
            data: data.to_vec(),
            hpke_public_key: vec![7; 32],
            wrapper_algorithm: 1,
            welcome_metadata: vec![8; 4],
        })),
    }))
}

pub(crate) fn welcome_topic(number: u8) -> Topic {
    Topic::welcome(installation(number))
}

pub(crate) fn group_message(data: Vec<u8>) -> ClientEnvelope {
    envelope(Payload::GroupMessage(GroupMessage { data, sender_hmac: vec![1, 2, 3], should_push: true }))
}

pub(crate) fn key_package(bytes: Vec<u8>) -> ClientEnvelope {
    envelope(Payload::KeyPackage(KeyPackage { key_package_tls_serialized: bytes }))
}

pub(crate) fn commit_log(group: GroupId) -> ClientEnvelope {
    let mut entry = vec![0x0a, 16];
    entry.extend_from_slice(group.as_bytes());
    envelope(Payload::CommitLogEntry(CommitLogEntry { serialized_commit_log_entry: entry, signature: None }))
}

pub(crate) fn identity(update: IdentityUpdate) -> ClientEnvelope {
    envelope(Payload::IdentityUpdate(update))
}
