//! A backend in between: passes everything on to the real one, counts it, and holds back what a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt as _};
use highwater_wire::Topic;
use highwater_wire::limits::{MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};
use highwater_wire::proto::backend::{
    GetInboxIdsRequest, GetInboxIdsResponse, PublishRequest, PublishResponse, QueryNewestRequest,
    QueryNewestResponse, QueryRequest, QueryResponse, ServerEnvelope, SubscribeRequest, SubscribeResponse,
    SubscribeStaticRequest, SubscribeStaticResponse, TopicQuery, VerifySmartContractWalletSignaturesRequest,
    VerifySmartContractWalletSignaturesResponse,
    identity_service_client::IdentityServiceClient,
    identity_service_server::{IdentityService, IdentityServiceServer},
    publish_service_client::PublishServiceClient,
    publish_service_server::{PublishService, PublishServiceServer},
    query_service_client::QueryServiceClient,
    query_service_server::{QueryService, QueryServiceServer},
    subscribe_request, subscribe_response,
    subscribe_service_client::SubscribeServiceClient,
    subscribe_service_server::{SubscribeService, SubscribeServiceServer},
    subscribe_static_response,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

/// What went over a [`Relay`] since it was last asked to forget.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Topics that sessions were asked to add, in order, each with the cursor it was asked for after.
    pub registered: Vec<(Topic, u64)>,
    /// The envelopes handed to the client, by sessions and queries, by topic.
    pub envelopes: BTreeMap<Topic, Vec<u64>>,
    /// How many bidirectional sessions were opened.
    pub sessions: u64,
    /// How many static sessions were opened.
    pub static_sessions: u64,
    /// How many `Query` calls were made.
    pub queries: u64,
    /// How many `Publish` calls were made.
    pub publishes: u64,
    /// How many calls of any kind were refused.
    pub refused: u64,
}

impl Traffic {
    /// The envelopes handed to the client, all topics together.
    pub fn total(&self) -> usize {
        self.envelopes.values().map(Vec::len).sum()
    }

    fn count(&mut self, envelopes: &[ServerEnvelope]) {
        for meta in envelopes.iter().filter_map(|envelope| envelope.meta.as_ref()) {
            let id = meta.cursor.as_ref().map_or(0, |cursor| cursor.sequence_id);
            if let Some(topic) = meta.topic.as_ref().and_then(|topic| Topic::from_bytes(&topic.topic).ok()) {
                self.envelopes.entry(topic).or_default().push(id);
            }
        }
    }
}

/// Speaks the backend's protocol to clients, and forwards each call to a real backend.
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    backend: Channel,
    traffic: Mutex<Traffic>,
    hidden: Mutex<BTreeSet<Topic>>,
    replies: watch::Sender<Replies>,
    refuses: watch::Sender<bool>,
}

/// Replies to publishes that are held.
#[derive(Clone, Copy, Debug, Default)]
struct Replies {
    /// Whether one that comes is held.
    held: bool,
    /// Those held before the last change of this number are let go.
    generation: u64,
    /// How many were held, those let go included.
    so_far: u64,
}

impl Relay {
    /// A relay to `backend` on a free loopback port.
    pub async fn to(backend: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let endpoint = Endpoint::from_shared(format!("http://{backend}")).expect("an address is an endpoint");
        let state = Arc::new(State {
            backend: endpoint.tcp_nodelay(true).connect_lazy(),
            traffic: Mutex::default(),
            hidden: Mutex::default(),
            replies: watch::Sender::new(Replies::default()),
            refuses: watch::Sender::new(false),
        });
        let server = tonic::transport::Server::builder()
            .add_service(
                PublishServiceServer::new(Forward(Arc::clone(&state)))
                    .max_decoding_message_size(MAX_REQUEST_BYTES),
            )
            .add_service(
                QueryServiceServer::new(Forward(Arc::clone(&state)))
                    .max_encoding_message_size(MAX_RESPONSE_BYTES),
            )
            .add_service(IdentityServiceServer::new(Forward(Arc::clone(&state))))
            .add_service(
                SubscribeServiceServer::new(Forward(Arc::clone(&state)))
                    .max_decoding_message_size(MAX_REQUEST_BYTES)
                    .max_encoding_message_size(MAX_RESPONSE_BYTES),
            )
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { server.await.expect("the relay serves") });
        Self { address, state, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients connect to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What went over it since it was made or last asked to forget.
    pub fn traffic(&self) -> Traffic {
        self.state.traffic(|traffic| traffic.clone())
    }

    /// Starts counting anew.
    pub fn forget(&self) {
        self.state.traffic(|traffic| *traffic = Traffic::default());
    }

    /// Answers reads as if nothing were stored on the topic, as a replica does that lags behind. For topics that are
    /// queried: a session that skipped what is hidden now could not show it later.
    pub fn hide(&self, topic: Topic) {
        self.state.hidden(|hidden| hidden.insert(topic));
    }

    /// Ends [`hide`](Self::hide).
    pub fn show(&self, topic: Topic) {
        self.state.hidden(|hidden| hidden.remove(&topic));
    }

    /// Ends every session and answers every call with PERMISSION_DENIED from now on, as a deployment does that will not
    /// have this client.
    pub fn refuse(&self) {
        self.state.refuses.send_replace(true);
    }

    /// Publishes reach the backend from now on, and their replies are held.
    pub fn hold_replies(&self) {
        self.state.replies.send_modify(|replies| replies.held = true);
    }

    /// How many publishes were stored whose replies were held, those let go since included.
    pub fn held_replies(&self) -> u64 {
        self.state.replies.borrow().so_far
    }

    /// Lets the replies go that are held now.
    pub fn let_replies_go(&self) {
        self.state.replies.send_modify(|replies| replies.generation += 1);
    }

    /// Lets every reply go, now and from now on.
    pub fn release_replies(&self) {
        self.state.replies.send_modify(|replies| {
            replies.held = false;
            replies.generation += 1;
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn traffic<T>(&self, look: impl FnOnce(&mut Traffic) -> T) -> T {
        look(&mut self.traffic.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hidden<T>(&self, look: impl FnOnce(&mut BTreeSet<Topic>) -> T) -> T {
        look(&mut self.hidden.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn shows(&self, topic: Option<&highwater_wire::proto::backend::Topic>) -> bool {
        let topic = topic.and_then(|topic| Topic::from_bytes(&topic.topic).ok());
        topic.is_none_or(|topic| self.hidden(|hidden| !hidden.contains(&topic)))
    }

    fn asked(&self, request: &SubscribeRequest) {
        let Some(subscribe_request::Request::Update(update)) = &request.request else {
            return;
        };
        self.registered(&update.adds);
    }

    fn registered(&self, adds: &[TopicQuery]) {
        for add in adds {
            let cursor = add.cursor.as_ref().map_or(0, |cursor| cursor.sequence_id);
            if let Some(topic) = add.topic.as_ref().and_then(|topic| Topic::from_bytes(&topic.topic).ok()) {
                self.traffic(|traffic| traffic.registered.push((topic, cursor)));
            }
        }
    }

    fn answered(&self, frame: &SubscribeResponse) {
        if let Some(subscribe_response::Response::Messages(messages)) = &frame.response {
            self.traffic(|traffic| traffic.count(&messages.envelopes));
        }
    }

    fn admits(&self) -> Result<(), Status> {
        if !*self.refuses.borrow() {
            return Ok(());
        }
        self.traffic(|traffic| traffic.refused += 1);
        Err(refusal())
    }

    /// The frames of a session, until clients are refused.
    fn admitted<T: Send + 'static>(
        &self,
        frames: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Frames<T> {
        let mut refuses = self.refuses.subscribe();
        let refused = async move {
            // The sender lives as long as the state.
            let _ = refuses.wait_for(|refuses| *refuses).await;
        };
        let refusal = futures::stream::once(async { Err(refusal()) });
        Box::pin(frames.take_until(Box::pin(refused)).chain(refusal))
    }

    /// Waits while replies are held.
    async fn reply(&self) {
        let mut replies = self.replies.subscribe();
        let Replies { held, generation, .. } = *replies.borrow_and_update();
        if held {
            self.replies.send_modify(|replies| replies.so_far += 1);
            // The sender lives as long as the state.
            let _ = replies.wait_for(|now| now.generation != generation).await;
        }
    }
}

fn refusal() -> Status {
    Status::permission_denied("this deployment does not know this client")
}

struct Forward(Arc<State>);

#[tonic::async_trait]
impl PublishService for Forward {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        self.0.traffic(|traffic| traffic.publishes += 1);
        self.0.admits()?;
        let mut backend =
            PublishServiceClient::new(self.0.backend.clone()).max_encoding_message_size(MAX_REQUEST_BYTES);
        let answer = backend.publish(request.into_inner()).await;
        self.0.reply().await;
        answer
    }
}

#[tonic::async_trait]
impl QueryService for Forward {
    async fn query(&self, request: Request<QueryRequest>) -> Result<Response<QueryResponse>, Status> {
        let mut backend =
            QueryServiceClient::new(self.0.backend.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let mut request = request.into_inner();
        request.queries.retain(|query| self.0.shows(query.topic.as_ref()));
        self.0.traffic(|traffic| traffic.queries += 1);
        self.0.admits()?;
        if request.queries.is_empty() {
            return Ok(Response::new(QueryResponse {
                envelopes: Vec::new(),
                continuation: Some(highwater_wire::proto::backend::query_response::Continuation {
                    has_more: false,
                }),
            }));
        }
        let answer = backend.query(request).await?;
        self.0.traffic(|traffic| traffic.count(&answer.get_ref().envelopes));
        Ok(answer)
    }

    async fn query_newest(
        &self,
        request: Request<QueryNewestRequest>,
    ) -> Result<Response<QueryNewestResponse>, Status> {
        self.0.admits()?;
        let mut backend =
            QueryServiceClient::new(self.0.backend.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES);
        let mut answer = backend.query_newest(request.into_inner()).await?;
        answer.get_mut().results.retain(|result| self.0.shows(result.topic.as_ref()));
        Ok(answer)
    }
}

#[tonic::async_trait]
impl IdentityService for Forward {
    async fn get_inbox_ids(
        &self,
        request: Request<GetInboxIdsRequest>,
    ) -> Result<Response<GetInboxIdsResponse>, Status> {
        self.0.admits()?;
        IdentityServiceClient::new(self.0.backend.clone()).get_inbox_ids(request.into_inner()).await
    }

    async fn verify_smart_contract_wallet_signatures(
        &self,
        request: Request<VerifySmartContractWalletSignaturesRequest>,
    ) -> Result<Response<VerifySmartContractWalletSignaturesResponse>, Status> {
        IdentityServiceClient::new(self.0.backend.clone())
            .verify_smart_contract_wallet_signatures(request.into_inner())
            .await
    }
}

type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl SubscribeService for Forward {
    type SubscribeStream = Frames<SubscribeResponse>;
    type SubscribeStaticStream = Frames<SubscribeStaticResponse>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.0.traffic(|traffic| traffic.sessions += 1);
        self.0.admits()?;
        let mut asked = request.into_inner();
        let (requests, outgoing) = mpsc::channel(16);
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(request)) = asked.message().await {
                state.asked(&request);
                if requests.send(request).await.is_err() {
                    return;
                }
            }
        });
        let mut backend = SubscribeServiceClient::new(self.0.backend.clone())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let frames = backend.subscribe(ReceiverStream::new(outgoing)).await?.into_inner();
        let state = Arc::clone(&self.0);
        let frames = frames.map(move |frame| frame.inspect(|frame| state.answered(frame)));
        Ok(Response::new(self.0.admitted(frames)))
    }

    async fn subscribe_static(
        &self,
        request: Request<SubscribeStaticRequest>,
    ) -> Result<Response<Self::SubscribeStaticStream>, Status> {
        let request = request.into_inner();
        self.0.traffic(|traffic| traffic.static_sessions += 1);
        self.0.admits()?;
        self.0.registered(&request.topics);
        let frames = SubscribeServiceClient::new(self.0.backend.clone())
            .max_encoding_message_size(MAX_REQUEST_BYTES)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            .subscribe_static(request)
            .await?
            .into_inner();
        let state = Arc::clone(&self.0);
        let frames = frames.map(move |frame| {
            frame.inspect(|frame| {
                if let Some(subscribe_static_response::Response::Messages(messages)) = &frame.response {
                    state.traffic(|traffic| traffic.count(&messages.envelopes));
                }
            })
        });
        Ok(Response::new(self.0.admitted(frames)))
    }
}
