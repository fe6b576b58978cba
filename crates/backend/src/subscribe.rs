//! `SubscribeService`: the driver of a stream session, and the two forms its frames take.

use std::{pin::Pin, sync::Arc, time::Instant};

use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use highwater_wire::{
    Topic,
    proto::backend::{
        CatchupTarget, Ping, Pong, ServerEnvelope, SubscribeRequest, SubscribeResponse,
        SubscribeStaticRequest, SubscribeStaticResponse, subscribe_response as native,
        subscribe_service_server::SubscribeService, subscribe_static_response as fixed,
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    config::{Limits, Timing},
    handoff::{Handed, Handoff, Outlet, handoff},
    metrics::{Metrics, OpenSession, StreamKind},
    refusal::stream_status,
    registry::{Arrived, Registry, StreamHandle},
    session::{Action, Delivery, End, Event, Frame, Page, Session},
    store::{EnvelopeStore, ReadBounds, Source, StoreError, TopicRead},
};

/// Inbound frames looked at before a deadline is held against the reader.
const LAST_LOOK: usize = 256;

/// The stream services over one store.
pub(crate) struct Subscriptions {
    pub(crate) store: Arc<dyn EnvelopeStore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) timing: Arc<Timing>,
    pub(crate) stop: CancellationToken,
    pub(crate) sessions: TaskTracker,
    pub(crate) metrics: Metrics,
}

type Inbound = Pin<Box<dyn Stream<Item = Result<SubscribeRequest, Status>> + Send>>;

#[tonic::async_trait]
impl SubscribeService for Subscriptions {
    type SubscribeStream = Outlet<SubscribeResponse>;
    type SubscribeStaticStream = Outlet<SubscribeStaticResponse>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.refuse_when_stopping()?;
        let (limits, timing) = (Arc::clone(&self.limits), Arc::clone(&self.timing));
        let (session, actions) = Session::native(limits, timing, rand::random(), Instant::now());
        let inbound = request.into_inner().boxed();
        let open = self.metrics.session(StreamKind::Native);
        Ok(Response::new(self.start(open, session, actions, inbound, native_form)))
    }

    async fn subscribe_static(
        &self,
        request: Request<SubscribeStaticRequest>,
    ) -> Result<Response<Self::SubscribeStaticStream>, Status> {
        self.refuse_when_stopping()?;
        let (limits, timing) = (Arc::clone(&self.limits), Arc::clone(&self.timing));
        let topics = request.into_inner().topics;
        let (session, actions) = Session::fixed(limits, timing, &topics, Instant::now())?;
        // The end of a unary request is no half-close (STR-052).
        let inbound = futures::stream::pending().boxed();
        let open = self.metrics.session(StreamKind::Static);
        Ok(Response::new(self.start(open, session, actions, inbound, fixed_form)))
    }
}

impl Subscriptions {
    fn refuse_when_stopping(&self) -> Result<(), Status> {
        if self.stop.is_cancelled() { Err(shutting_down()) } else { Ok(()) }
    }

    fn start<M: 'static>(
        &self,
        open: OpenSession,
        session: Session,
        actions: Vec<Action>,
        inbound: Inbound,
        form: fn(Frame, u32) -> M,
    ) -> Outlet<M> {
        let (handoff, outlet) = handoff(form, self.timing.keepalive_ms(), self.metrics.clone());
        let driver = Driver {
            open,
            session,
            inbound: Some(inbound),
            handoff,
            offered: false,
            stream: self.registry.open(self.limits.fetched_unsent_bytes),
            reads: FuturesUnordered::new(),
            store: Arc::clone(&self.store),
            timing: Arc::clone(&self.timing),
            stop: self.stop.clone(),
            end: None,
        };
        self.sessions.spawn(driver.run(actions));
        outlet
    }
}

fn shutting_down() -> Status {
    Status::unavailable("the server is shutting down; reconnect with backoff")
}

/// Carries events to a session and its actions out. Dropping it, for whatever reason, leaves nothing
/// of the stream in the registry.
struct Driver {
    open: OpenSession,
    session: Session,
    /// `None` once it ended.
    inbound: Option<Inbound>,
    handoff: Handoff,
    /// The slot was filled and "taken" not yet reported.
    offered: bool,
    stream: StreamHandle,
    reads: FuturesUnordered<BoxFuture<'static, Event>>,
    store: Arc<dyn EnvelopeStore>,
    timing: Arc<Timing>,
    stop: CancellationToken,
    end: Option<End>,
}

/// What the driver waited for.
enum Happened {
    Inbound(Option<Result<SubscribeRequest, Status>>),
    Arrived(Arrived),
    Event(Event),
    Handed(Handed),
    Due,
}

impl Driver {
    async fn run(mut self, first: Vec<Action>) {
        self.perform(first);
        while self.end.is_none() {
            match self.wait().await {
                Happened::Handed(Handed::Dropped) => return,
                Happened::Handed(Handed::Taken) => {
                    self.offered = false;
                    self.tell(Event::Taken);
                }
                Happened::Event(event) => self.tell(event),
                Happened::Inbound(frame) => self.received(frame),
                Happened::Arrived(arrived) => self.arrived(arrived),
                Happened::Due => {
                    self.last_look();
                    self.tell(Event::Tick);
                }
            }
        }
        self.stream.clear();
        self.close().await;
    }

    async fn wait(&mut self) -> Happened {
        let due = self.session.deadline().map(tokio::time::Instant::from_std);
        let reads_inbound = self.session.reads() && self.inbound.is_some();
        tokio::select! {
            () = self.stop.cancelled() => Happened::Event(Event::Failed(shutting_down())),
            handed = self.handoff.handed(), if self.offered => Happened::Handed(handed),
            () = self.handoff.dropped() => Happened::Handed(Handed::Dropped),
            Some(event) = self.reads.next() => Happened::Event(event),
            frame = next_frame(&mut self.inbound), if reads_inbound => Happened::Inbound(frame),
            arrived = self.stream.mailbox.take() => Happened::Arrived(arrived),
            () = sleep_until(due) => Happened::Due,
        }
    }

    fn tell(&mut self, event: Event) {
        let actions = self.session.on(Instant::now(), event);
        self.perform(actions);
    }

    fn received(&mut self, frame: Option<Result<SubscribeRequest, Status>>) {
        match frame {
            Some(Ok(frame)) => self.tell(Event::Inbound(frame)),
            Some(Err(status)) => {
                self.inbound = None;
                self.tell(Event::Failed(status));
            }
            None => {
                self.inbound = None;
                self.tell(Event::HalfClosed);
            }
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        if let Some(status) = arrived.failed {
            return self.tell(Event::Failed(status));
        }
        for delivery in arrived.live {
            self.tell(Event::Live(delivery));
        }
        for (topic, id) in arrived.notices {
            self.tell(Event::Notice(topic, id));
        }
    }

    /// Looks once, without waiting, at what the reader has already sent (STR-034).
    fn last_look(&mut self) {
        for _ in 0..LAST_LOOK {
            let Some(frame) = next_frame(&mut self.inbound).now_or_never() else {
                return;
            };
            self.received(frame);
            if self.inbound.is_none() {
                return;
            }
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Register(topics) => self.stream.register(&topics),
                Action::Deregister(topics) => self.stream.deregister(&topics),
                Action::CaptureHeads(topics) => {
                    self.reads.push(capture(Arc::clone(&self.store), topics).boxed());
                }
                Action::Fetch { reads, rows_per_topic, bytes } => {
                    let bounds = ReadBounds { rows_per_topic, rows: usize::MAX, bytes };
                    self.reads.push(fetch(Arc::clone(&self.store), reads, bounds).boxed());
                }
                Action::Send(frame) => {
                    self.offered = true;
                    self.handoff.offer(frame);
                }
                Action::End(end) => self.end = Some(end),
            }
        }
    }

    /// Hands over what was queued when the session ended, as far as the reader takes it soon.
    async fn close(mut self) {
        let Some(End { status, flush }) = self.end.take() else {
            return;
        };
        self.open.ends(status.as_ref());
        let deadline = tokio::time::Instant::now() + self.timing.flush_wait;
        while flush && !self.session.is_flushed() {
            match tokio::time::timeout_at(deadline, self.handoff.handed()).await {
                Ok(Handed::Taken) => self.tell(Event::Taken),
                Ok(Handed::Dropped) | Err(_) => break,
            }
        }
        self.handoff.finish(status);
    }
}

async fn next_frame(inbound: &mut Option<Inbound>) -> Option<Result<SubscribeRequest, Status>> {
    match inbound {
        Some(inbound) => inbound.next().await,
        None => futures::future::pending().await,
    }
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => futures::future::pending().await,
    }
}

async fn capture(store: Arc<dyn EnvelopeStore>, topics: Vec<Topic>) -> Event {
    match store.heads(&topics).await {
        Ok(heads) => Event::Heads(heads),
        Err(error) => Event::Failed(stream_status(error)),
    }
}

async fn fetch(store: Arc<dyn EnvelopeStore>, reads: Vec<TopicRead>, bounds: ReadBounds) -> Event {
    match store.read_after(Source::Serving, &reads, bounds).await.and_then(pages) {
        Ok(pages) => Event::Fetched(pages),
        Err(error) => Event::Failed(stream_status(error)),
    }
}

fn pages(page: crate::store::ReadPage) -> Result<Vec<Page>, StoreError> {
    page.into_iter()
        .map(|topic| {
            let envelopes = topic
                .envelopes
                .iter()
                .map(|stored| Delivery::new(stored).map(Arc::new))
                .collect::<Result<_, _>>()?;
            Ok(Page { envelopes, has_more: topic.has_more })
        })
        .collect()
}

fn target((topic, through_sequence_id): (Topic, u64)) -> CatchupTarget {
    CatchupTarget { topic: Some(topic.to_proto()), through_sequence_id }
}

fn envelopes(deliveries: Vec<Arc<Delivery>>) -> Vec<ServerEnvelope> {
    deliveries
        .into_iter()
        .map(|delivery| match Arc::try_unwrap(delivery) {
            Ok(only) => only.envelope,
            Err(shared) => shared.envelope.clone(),
        })
        .collect()
}

fn native_form(frame: Frame, keepalive_interval_ms: u32) -> SubscribeResponse {
    use native::{Applied, Messages, Response, Started};
    let response = match frame {
        Frame::Started { .. } => Response::Started(Started { keepalive_interval_ms }),
        Frame::Applied { id, targets } => {
            Response::Applied(Applied { id, added_targets: targets.into_iter().map(target).collect() })
        }
        Frame::Messages(deliveries) => Response::Messages(Messages { envelopes: envelopes(deliveries) }),
        // Keepalive is a static stream's; a native one challenges instead.
        Frame::Ping(nonce) => Response::Ping(Ping { nonce }),
        Frame::Pong(nonce) => Response::Pong(Pong { nonce }),
        Frame::Keepalive => return SubscribeResponse { response: None },
    };
    SubscribeResponse { response: Some(response) }
}

fn fixed_form(frame: Frame, keepalive_interval_ms: u32) -> SubscribeStaticResponse {
    use fixed::{Keepalive, Messages, Response, Started};
    let response = match frame {
        Frame::Started { targets } | Frame::Applied { targets, .. } => Response::Started(Started {
            keepalive_interval_ms,
            targets: targets.into_iter().map(target).collect(),
        }),
        Frame::Messages(deliveries) => Response::Messages(Messages { envelopes: envelopes(deliveries) }),
        Frame::Keepalive | Frame::Ping(_) | Frame::Pong(_) => Response::Keepalive(Keepalive {}),
    };
    SubscribeStaticResponse { response: Some(response) }
}
