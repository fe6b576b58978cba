//! A backend that does what a test tells it, and a link to it that can be cut.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use highwater_transport::{ConnectOptions, Connection};
use highwater_wire::limits::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
use highwater_wire::proto::backend::{
    self, CatchupTarget, ClientEnvelope, EnvelopeMeta, GetInboxIdsRequest, GetInboxIdsResponse, GroupMessage,
    PublishResponse, QueryNewestRequest, QueryNewestResponse, QueryRequest, QueryResponse, ServerEnvelope,
    SubscribeRequest, SubscribeResponse, SubscribeStaticRequest, SubscribeStaticResponse,
    VerifySmartContractWalletSignaturesRequest, VerifySmartContractWalletSignaturesResponse,
    client_envelope::Payload,
    identity_service_server::{IdentityService, IdentityServiceServer},
    query_response::Continuation,
    query_service_server::{QueryService, QueryServiceServer},
    subscribe_request::Request as Asked,
    subscribe_response::{Applied, Messages, Response as Frame, Started},
    subscribe_service_server::{SubscribeService, SubscribeServiceServer},
};
use highwater_wire::{Cursor, GroupId, MessageHash, Topic};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::scripted_static::StaticCall;

/// Long enough that only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Answer<Q, A> = Arc<dyn Fn(Q) -> Boxed<Result<A, Status>> + Send + Sync>;

/// What the backend answers. Everything not scripted is unimplemented.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) query: Answer<QueryRequest, QueryResponse>,
    pub(crate) query_newest: Answer<QueryNewestRequest, QueryNewestResponse>,
    pub(crate) publish: Answer<Vec<Bytes>, PublishResponse>,
    pub(crate) get_inbox_ids: Answer<GetInboxIdsRequest, GetInboxIdsResponse>,
    pub(crate) verify:
        Answer<VerifySmartContractWalletSignaturesRequest, VerifySmartContractWalletSignaturesResponse>,
    pub(crate) session: Arc<dyn Fn(Call) -> Boxed<()> + Send + Sync>,
    pub(crate) static_session: Arc<dyn Fn(StaticCall) -> Boxed<()> + Send + Sync>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            query: unscripted(),
            query_newest: unscripted(),
            publish: unscripted(),
            get_inbox_ids: unscripted(),
            verify: unscripted(),
            session: Arc::new(|call| Box::pin(async move { call.fail(Code::Unimplemented).await })),
            static_session: Arc::new(|call| {
                Box::pin(async move { call.fail_with(Status::unimplemented("not scripted")).await })
            }),
        }
    }
}

fn unscripted<Q: Send + 'static, A: 'static>() -> Answer<Q, A> {
    answer(|_| Err(Status::unimplemented("not scripted")))
}

/// An answer that is at hand.
pub(crate) fn answer<Q: Send + 'static, A: 'static>(
    answer: impl Fn(Q) -> Result<A, Status> + Clone + Send + Sync + 'static,
) -> Answer<Q, A> {
    Arc::new(move |request| {
        let answer = answer.clone();
        Box::pin(async move { answer(request) })
    })
}

/// What a session does once it is accepted.
pub(crate) fn session<F: Future<Output = ()> + Send + 'static>(
    session: impl Fn(Call) -> F + Send + Sync + 'static,
) -> Script {
    let session: Arc<dyn Fn(Call) -> Boxed<()> + Send + Sync> = Arc::new(move |call| Box::pin(session(call)));
    Script { session, ..Script::default() }
}

/// The backend's side of one Subscribe.
pub(crate) struct Call {
    requests: Streaming<SubscribeRequest>,
    frames: mpsc::Sender<Result<SubscribeResponse, Status>>,
}

impl Call {
    /// The next request, or `None` once the client half-closed or cancelled.
    pub(crate) async fn asked(&mut self) -> Option<Asked> {
        match self.requests.message().await {
            Ok(Some(request)) => Some(request.request.expect("a request without content")),
            Ok(None) | Err(_) => None,
        }
    }

    pub(crate) async fn asked_update(&mut self) -> backend::subscribe_request::Update {
        match self.asked().await {
            Some(Asked::Update(update)) => update,
            other => panic!("not an update: {other:?}"),
        }
    }

    pub(crate) async fn send(&self, frame: Frame) {
        // The client may be gone; the test looks at that through `asked`.
        let _ = self.frames.send(Ok(SubscribeResponse { response: Some(frame) })).await;
    }

    pub(crate) async fn start(&self, keepalive_interval_ms: u32) {
        self.send(Frame::Started(Started { keepalive_interval_ms })).await;
    }

    /// Starts, and applies the first update with targets of zero.
    pub(crate) async fn start_and_apply(&mut self, keepalive_interval_ms: u32) {
        self.start(keepalive_interval_ms).await;
        let update = self.asked_update().await;
        self.apply(&update).await;
    }

    pub(crate) async fn apply(&self, update: &backend::subscribe_request::Update) {
        let target =
            |add: &backend::TopicQuery| CatchupTarget { topic: add.topic.clone(), through_sequence_id: 0 };
        let added_targets = update.adds.iter().map(target).collect();
        self.send(Frame::Applied(Applied { id: update.id, added_targets })).await;
    }

    pub(crate) async fn messages(&self, envelopes: Vec<ServerEnvelope>) {
        self.send(Frame::Messages(Messages { envelopes })).await;
    }

    pub(crate) async fn fail_with(self, status: Status) {
        let _ = self.frames.send(Err(status)).await;
    }

    pub(crate) async fn fail(self, code: Code) {
        self.fail_with(Status::new(code, "scripted")).await;
    }

    /// Stays open and silent until the client goes.
    pub(crate) async fn idle(mut self) {
        while self.asked().await.is_some() {}
    }
}

struct Services(Script);

#[tonic::async_trait]
impl QueryService for Services {
    async fn query(&self, request: Request<QueryRequest>) -> Result<Response<QueryResponse>, Status> {
        (self.0.query)(request.into_inner()).await.map(Response::new)
    }

    async fn query_newest(
        &self,
        request: Request<QueryNewestRequest>,
    ) -> Result<Response<QueryNewestResponse>, Status> {
        (self.0.query_newest)(request.into_inner()).await.map(Response::new)
    }
}

#[tonic::async_trait]
impl IdentityService for Services {
    async fn get_inbox_ids(
        &self,
        request: Request<GetInboxIdsRequest>,
    ) -> Result<Response<GetInboxIdsResponse>, Status> {
        (self.0.get_inbox_ids)(request.into_inner()).await.map(Response::new)
    }

    async fn verify_smart_contract_wallet_signatures(
        &self,
        request: Request<VerifySmartContractWalletSignaturesRequest>,
    ) -> Result<Response<VerifySmartContractWalletSignaturesResponse>, Status> {
        (self.0.verify)(request.into_inner()).await.map(Response::new)
    }
}

#[tonic::async_trait]
impl SubscribeService for Services {
    type SubscribeStream = ReceiverStream<Result<SubscribeResponse, Status>>;
    type SubscribeStaticStream = ReceiverStream<Result<SubscribeStaticResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (frames, outgoing) = mpsc::channel(1);
        tokio::spawn((self.0.session)(Call { requests: request.into_inner(), frames }));
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn subscribe_static(
        &self,
        request: Request<SubscribeStaticRequest>,
    ) -> Result<Response<Self::SubscribeStaticStream>, Status> {
        let (frames, outgoing) = mpsc::channel(1);
        tokio::spawn((self.0.static_session)(StaticCall::new(request.into_inner().topics, frames)));
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

/// PublishService, reading each envelope as the bytes it came in.
#[derive(Clone)]
struct RawPublish(Script);

#[derive(Clone, PartialEq, prost::Message)]
struct RawRequest {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    envelopes: Vec<Bytes>,
}

impl UnaryService<RawRequest> for RawPublish {
    type Response = PublishResponse;
    type Future = Boxed<Result<Response<PublishResponse>, Status>>;

    fn call(&mut self, request: Request<RawRequest>) -> Self::Future {
        let answer = (self.0.publish)(request.into_inner().envelopes);
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

impl NamedService for RawPublish {
    const NAME: &'static str = "xmtp.backend.v1.PublishService";
}

impl Service<http::Request<Body>> for RawPublish {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        assert_eq!(request.uri().path(), "/xmtp.backend.v1.PublishService/Publish");
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<PublishResponse, RawRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MAX_REQUEST_BYTES);
            Ok(grpc.unary(service, request).await)
        })
    }
}

/// A running backend. Dropping it stops it.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Scripted {
    pub(crate) async fn start(script: Script) -> Self {
        Self::serve(tonic::transport::Server::builder(), script).await
    }

    pub(crate) async fn start_tls(script: Script, identity: tonic::transport::Identity) -> Self {
        let config = tonic::transport::ServerTlsConfig::new().identity(identity);
        Self::serve(tonic::transport::Server::builder().tls_config(config).unwrap(), script).await
    }

    async fn serve(mut server: tonic::transport::Server, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = server
            .add_service(
                QueryServiceServer::new(Services(script.clone()))
                    .max_encoding_message_size(MAX_RESPONSE_BYTES),
            )
            .add_service(IdentityServiceServer::new(Services(script.clone())))
            .add_service(
                SubscribeServiceServer::new(Services(script.clone()))
                    .max_decoding_message_size(MAX_REQUEST_BYTES),
            )
            .add_service(RawPublish(script))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { server.await.unwrap() });
        Self { address, server }
    }

    pub(crate) fn connect(&self) -> Connection {
        connect(self.address, ConnectOptions::default())
    }
}

pub(crate) fn connect(address: SocketAddr, options: ConnectOptions) -> Connection {
    Connection::connect(&format!("http://{address}"), options).unwrap()
}

/// A TCP link to a backend. Cutting it resets every connection made through it.
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Link {
    pub(crate) async fn to(backend: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    let mut far = TcpStream::connect(backend).await.unwrap();
                    // However it ends, both sockets close.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { address, task }
    }

    pub(crate) fn cut(&self) {
        self.task.abort();
    }
}

pub(crate) fn topic(n: u8) -> Topic {
    Topic::group(GroupId::from_bytes([n; 16]))
}

pub(crate) fn meta(topic: Topic, sequence_id: u64) -> EnvelopeMeta {
    EnvelopeMeta {
        cursor: Some(backend::Cursor { sequence_id }),
        server_ns: 1_000,
        message_hash: Some(MessageHash::from_bytes([9; 32]).into()),
        topic: Some(topic.to_proto()),
        expiry_ns: 0,
        is_commit_or_proposal: false,
    }
}

pub(crate) fn client_envelope(data: Vec<u8>) -> ClientEnvelope {
    let message = GroupMessage { data, ..Default::default() };
    ClientEnvelope { payload: Some(Payload::GroupMessage(message)) }
}

pub(crate) fn envelope(topic: Topic, sequence_id: u64) -> ServerEnvelope {
    ServerEnvelope {
        meta: Some(meta(topic, sequence_id)),
        envelope: Some(client_envelope(vec![sequence_id as u8])),
    }
}

pub(crate) fn at(position: u64) -> Cursor {
    Cursor::try_from(position).unwrap()
}

pub(crate) fn numbered(n: u32) -> Topic {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    Topic::group(GroupId::from_bytes(id))
}

pub(crate) fn queries(envelopes: Vec<ServerEnvelope>, has_more: bool) -> Script {
    let page = QueryResponse { envelopes, continuation: Some(Continuation { has_more }) };
    Script { query: answer(move |_| Ok(page.clone())), ..Script::default() }
}

pub(crate) fn publishes(response: Result<PublishResponse, Status>) -> Script {
    Script { publish: answer(move |_| response.clone()), ..Script::default() }
}
