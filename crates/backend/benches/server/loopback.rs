//! A server on loopback with a SQLite file, clients of it, and envelopes for it.

use std::{net::SocketAddr, time::Duration};

use highwater_backend::{Server, ServerConfig};
use highwater_testkit_postgres::Postgres;
use highwater_wire::{
    InstallationKey, Topic,
    proto::backend::{
        ClientEnvelope, Cursor, EnvelopeMeta, PublishRequest, SubscribeStaticRequest,
        SubscribeStaticResponse, TopicQuery, WelcomeMessage, client_envelope::Payload,
        publish_service_client::PublishServiceClient, subscribe_service_client::SubscribeServiceClient,
        subscribe_static_response::Response, welcome_message,
    },
};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{Streaming, transport::Channel};

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _folder: Option<TempDir>,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("backend.db");
        Self::over(&format!("sqlite:{}", path.display()), Some(folder)).await
    }

    pub(crate) async fn on_postgres(server: &Postgres) -> Self {
        Self::over(&server.url(&server.create_database()), None).await
    }

    async fn over(database: &str, folder: Option<TempDir>) -> Self {
        let mut config = ServerConfig::new(database.parse().expect("a database"));
        config.timing.drain = Duration::from_millis(200);
        let server = Server::bind(config).await.expect("bound");
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let ended = server.serve(async { stopped.await.unwrap_or_default() }).await;
            ended.expect("served");
        });
        Self { address, stop, serving, _folder: folder }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("running");
        self.serving.await.expect("served");
    }
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("a url");
    // Windows as wide as the server's, so that flow control is not what is measured.
    let endpoint =
        endpoint.initial_stream_window_size(4 * 1024 * 1024).initial_connection_window_size(64 * 1024 * 1024);
    endpoint.connect().await.expect("connected")
}

/// The topic of the Welcomes numbered so.
pub(crate) fn topic(number: u32) -> Topic {
    Topic::welcome(installation(number))
}

fn installation(number: u32) -> InstallationKey {
    let mut bytes = [7; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    InstallationKey::from_bytes(bytes)
}

/// A Welcome: the envelope that is cheapest to check, so that storing and moving it is what is measured.
/// `serial` makes it unlike any other.
pub(crate) fn welcome(number: u32, serial: u64, bytes: usize) -> ClientEnvelope {
    let mut data = serial.to_be_bytes().to_vec();
    data.resize(bytes.max(8), 5);
    ClientEnvelope {
        payload: Some(Payload::WelcomeMessage(WelcomeMessage {
            version: Some(welcome_message::Version::V1(welcome_message::V1 {
                installation_key: installation(number).as_bytes().to_vec(),
                data,
                hpke_public_key: vec![7; 32],
                wrapper_algorithm: 1,
                welcome_metadata: vec![8; 4],
            })),
        })),
    }
}

pub(crate) async fn put(channel: &Channel, envelopes: Vec<ClientEnvelope>) -> Vec<EnvelopeMeta> {
    let mut client = PublishServiceClient::new(channel.clone()).max_encoding_message_size(usize::MAX);
    client.publish(PublishRequest { envelopes }).await.expect("published").into_inner().envelope_metas
}

/// A static stream over topics from the beginning, with its Started taken.
pub(crate) async fn subscribe(channel: &Channel, topics: &[Topic]) -> Streaming<SubscribeStaticResponse> {
    let topics = topics
        .iter()
        .map(|topic| TopicQuery { topic: Some(topic.to_proto()), cursor: Some(Cursor { sequence_id: 0 }) })
        .collect();
    let mut client = SubscribeServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let request = SubscribeStaticRequest { topics };
    let mut stream = client.subscribe_static(request).await.expect("subscribed").into_inner();
    let first = stream.message().await.expect("a frame").expect("a frame");
    assert!(matches!(first.response, Some(Response::Started(_))), "Started comes first");
    stream
}

/// Takes frames until so many envelopes came; how many frames it took.
pub(crate) async fn receive(stream: &mut Streaming<SubscribeStaticResponse>, envelopes: usize) -> usize {
    let (mut received, mut frames) = (0, 0);
    while received < envelopes {
        let frame = stream.message().await.expect("a frame").expect("a frame");
        if let Some(Response::Messages(messages)) = frame.response {
            received += messages.envelopes.len();
            frames += 1;
        }
    }
    assert_eq!(received, envelopes, "every envelope once");
    frames
}
