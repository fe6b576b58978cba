//! The receiver's two halves: the handle that an engine holds, and the task that talks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_wire::limits::KEEPALIVE_INTERVAL;
use highwater_wire::proto::backend::{Pong, SubscribeRequest, SubscribeResponse, subscribe_request};
use highwater_wire::{Cursor, OrderedPrefix, Topic};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::fetched::{Budget, Buffered, room};
use crate::pace::Pace;
use crate::session::{Heard, Session, UpdateId};
use crate::{Connection, TransportError};

/// Silent intervals after which a session is given up.
pub(crate) const SILENT_INTERVALS: u32 = 3;
/// Requests that may wait for HTTP/2 flow control.
const REQUEST_QUEUE: usize = 16;
/// Answers that may wait behind those before reading stops.
const MAX_WAITING_REQUESTS: usize = 64;
/// For the reason to arrive after the call stopped taking requests.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What happened on a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiverEvent {
    /// The backend accepted the session. Comes first, and once (STR-001).
    Started {
        /// The longest time between two frames. An announced 0 is the default of 30 s.
        keepalive: Duration,
    },
    /// The backend applied an update. Updates are applied in the order made (STR-006).
    Applied {
        /// Which one.
        update: UpdateId,
        /// The head that each newly added topic had, in add order; zero for an empty topic. Says
        /// what there is to fetch, never what was received.
        targets: Vec<(Topic, Cursor)>,
    },
    /// Envelopes of active registrations, at most one prefix per topic. Each continues its
    /// registration's last one, or starts at the cursor that the topic was added with.
    Received(Vec<OrderedPrefix>),
    /// The session is over. Comes last; every later call returns it again.
    Ended(ReceiverEnd),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiverEnd {
    /// This side closed it.
    Closed,
    /// Nothing arrived for three keepalive intervals in which this side was able to read.
    Silent,
    /// The connection, the backend, or the peer's reading of the protocol failed.
    Failed(TransportError),
}

impl ReceiverEnd {
    fn why(&self) -> TransportError {
        match self {
            Self::Closed => TransportError::Closed,
            Self::Silent => TransportError::unavailable("the session fell silent"),
            Self::Failed(error) => error.clone(),
        }
    }
}

/// One bidirectional session. Dropping it cancels the session at once.
#[derive(Debug)]
pub struct Receiver {
    session: Arc<Mutex<Session>>,
    updates: mpsc::UnboundedSender<subscribe_request::Request>,
    events: mpsc::UnboundedReceiver<Buffered<ReceiverEvent>>,
    driver: JoinHandle<()>,
    ended: Option<ReceiverEnd>,
}

impl Connection {
    /// Opens a session. It has no topics until [`Receiver::update`] adds some, and stays open
    /// without any (STR-001).
    ///
    /// # Errors
    /// Why the backend didn't accept it, within the time for one request. Dropping the future
    /// cancels the attempt.
    pub async fn open_receiver(&self) -> Result<Receiver, TransportError> {
        let (requests, outgoing) = mpsc::channel(REQUEST_QUEUE);
        let mut subscriptions = self.subscriptions();
        let opening = subscriptions.subscribe(ReceiverStream::new(outgoing));
        let frames = self.answered(opening).await?;
        let session = Arc::new(Mutex::new(Session::default()));
        let (updates, waiting_updates) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let driver = Driver {
            session: Arc::clone(&session),
            frames,
            requests,
            outbox: VecDeque::new(),
            updates: waiting_updates,
            pace: Pace::default(),
            events: sender,
            budget: Budget::new(),
            held: None,
            silence_limit: KEEPALIVE_INTERVAL * SILENT_INTERVALS,
            last_heard: Instant::now(),
        };
        let driver = tokio::spawn(driver.run());
        Ok(Receiver { session, updates, events, driver, ended: None })
    }
}

impl Receiver {
    /// The next event. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> ReceiverEvent {
        if let Some(end) = &self.ended {
            return ReceiverEvent::Ended(end.clone());
        }
        let event = match self.events.recv().await {
            Some(buffered) => buffered.event,
            // The task always says how it ended, unless it panicked.
            None => ReceiverEvent::Ended(ReceiverEnd::Failed(TransportError::unavailable(
                "the session's task ended without a word",
            ))),
        };
        if let ReceiverEvent::Ended(end) = &event {
            self.ended = Some(end.clone());
        }
        event
    }

    /// Adds topics, each from an exclusive start, and removes others, at once and in the backend's
    /// order of updates. Adding a registered topic and removing an absent one change nothing
    /// (STR-005, STR-007). Returns without waiting; [`ReceiverEvent::Applied`] says when it is done,
    /// and until then messages of removed topics may still come. A burst of updates leaves at the
    /// pace that the backend allows.
    ///
    /// # Errors
    /// [`TransportError::InvalidArgument`] for an update that is empty, names a topic twice, names
    /// one without an ordered read, or exceeds the limits of an update or a session; the session
    /// then goes on unchanged. Once the session is over, the reason why.
    pub fn update(
        &mut self,
        adds: Vec<(Topic, Cursor)>,
        removes: Vec<Topic>,
    ) -> Result<UpdateId, TransportError> {
        let mut session = lock(&self.session);
        let (id, request) = session.update(adds, removes)?;
        // The driver may end right now; then the next event says so.
        let _ = self.updates.send(request);
        Ok(id)
    }

    /// Cancels the session at once. What arrived and wasn't taken is dropped; the next event is
    /// `Ended(Closed)`, unless another end was already returned.
    pub fn close(&mut self) {
        self.driver.abort();
        self.events.close();
        while self.events.try_recv().is_ok() {}
        let end = self.ended.get_or_insert(ReceiverEnd::Closed);
        lock(&self.session).end(end.why());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    // A panic inside can only have come from the driver, whose session is over then.
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that talks. Reads only while it holds no frame that has no room yet, so that pings are
/// answered however slow the owner is, as long as no more than one frame too many has arrived.
struct Driver {
    session: Arc<Mutex<Session>>,
    frames: Streaming<SubscribeResponse>,
    requests: mpsc::Sender<SubscribeRequest>,
    outbox: VecDeque<subscribe_request::Request>,
    updates: mpsc::UnboundedReceiver<subscribe_request::Request>,
    pace: Pace,
    events: mpsc::UnboundedSender<Buffered<ReceiverEvent>>,
    budget: Budget,
    held: Option<Vec<OrderedPrefix>>,
    silence_limit: Duration,
    last_heard: Instant,
}

impl Driver {
    async fn run(mut self) {
        let end = self.drive().await;
        tracing::debug!(?end, "receiver session ended");
        lock(&self.session).end(end.why());
        self.emit(ReceiverEvent::Ended(end));
    }

    async fn drive(&mut self) -> ReceiverEnd {
        let requests = self.requests.clone();
        loop {
            let silent_at = self.last_heard + self.silence_limit;
            // In this order: sending, updates and room are each used up at once or paced, so they
            // can't starve reading; and what has arrived counts before the clock does.
            tokio::select! {
                biased;
                slot = requests.reserve(), if !self.outbox.is_empty() => match slot {
                    Ok(slot) => {
                        let request = self.outbox.pop_front();
                        slot.send(SubscribeRequest { request });
                    }
                    Err(_) => return self.unheard().await,
                },
                update = paced(self.pace.ready_at(), &mut self.updates) => match update {
                    Some(update) => {
                        self.pace.left(Instant::now());
                        self.outbox.push_back(update);
                    }
                    None => return ReceiverEnd::Closed,
                },
                share = room(&self.budget, self.held.as_deref()), if self.held.is_some() => {
                    if let Some(prefixes) = self.held.take() {
                        let event = ReceiverEvent::Received(prefixes);
                        let _ = self.events.send(Buffered { event, _share: share });
                    }
                    // The time in which nothing could be read wasn't the wire's (PROC-021).
                    self.last_heard = Instant::now();
                },
                frame = self.frames.message(), if self.may_read() => match frame {
                    Ok(Some(frame)) => {
                        self.last_heard = Instant::now();
                        if let Err(error) = self.on(frame) {
                            return ReceiverEnd::Failed(error);
                        }
                    }
                    Ok(None) => return ReceiverEnd::Failed(TransportError::unavailable(
                        "the backend ended the session",
                    )),
                    Err(status) => return ReceiverEnd::Failed(status.into()),
                },
                () = tokio::time::sleep_until(silent_at), if self.held.is_none() => {
                    return ReceiverEnd::Silent;
                },
            }
        }
    }

    /// The call no longer takes requests, so it is over; what it still says tells why.
    async fn unheard(&mut self) -> ReceiverEnd {
        let last_words = async {
            loop {
                match self.frames.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(status) => return Some(TransportError::from(status)),
                }
            }
        };
        let error = tokio::time::timeout(LAST_WORDS, last_words).await.ok().flatten();
        ReceiverEnd::Failed(error.unwrap_or_else(|| {
            TransportError::unavailable("the backend no longer takes requests on the session")
        }))
    }

    fn may_read(&self) -> bool {
        self.held.is_none() && self.outbox.len() < MAX_WAITING_REQUESTS
    }

    fn on(&mut self, frame: SubscribeResponse) -> Result<(), TransportError> {
        let heard = lock(&self.session).on(frame)?;
        match heard {
            Heard::Event(ReceiverEvent::Received(prefixes)) => self.held = Some(prefixes),
            Heard::Event(event) => {
                if let ReceiverEvent::Started { keepalive } = event {
                    self.silence_limit = keepalive * SILENT_INTERVALS;
                }
                self.emit(event);
            }
            Heard::Ping(nonce) => {
                self.outbox.push_back(subscribe_request::Request::Pong(Pong { nonce }));
            }
            Heard::Nothing => {}
        }
        Ok(())
    }

    fn emit(&self, event: ReceiverEvent) {
        // Without an owner this task is being aborted.
        let _ = self.events.send(event.into());
    }
}

async fn paced(
    ready_at: Option<Instant>,
    updates: &mut mpsc::UnboundedReceiver<subscribe_request::Request>,
) -> Option<subscribe_request::Request> {
    if let Some(ready_at) = ready_at {
        tokio::time::sleep_until(ready_at).await;
    }
    updates.recv().await
}
