//! One stream session: which topics it follows, what it owes each, and what its reader owes it.
//!
//! A plain state machine. The driver tells it what happened and does what it answers. Invariants:
//! - A topic's floor only moves with an envelope admitted to the outbound queue, and only upwards;
//!   every envelope between the registration's cursor and the floor was admitted (STR-010).
//! - A live envelope is admitted directly only to a registration that owes nothing from the store;
//!   otherwise it is a notice that there is more to fetch. Notices coalesce to one id per topic.
//! - Results of a fetch count only for the generation of the registration they were asked for
//!   (STR-008).

mod bucket;
mod liveness;
mod outbound;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod turn;
mod update;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use highwater_wire::{
    Cursor, SequenceId, Topic,
    proto::backend::{self, subscribe_request},
};
use tonic::Status;

pub(crate) use self::outbound::{Delivery, Frame};
use self::{bucket::Bucket, outbound::Outbound};
use crate::{
    config::{Limits, Timing},
    store::TopicRead,
};

/// Something the session must know of.
#[derive(Debug)]
pub(crate) enum Event {
    /// The reader sent a frame. Only while [`Session::reads`], except just before a deadline.
    Inbound(backend::SubscribeRequest),
    /// The reader will send no more.
    HalfClosed,
    /// The heads asked for by [`Action::CaptureHeads`].
    Heads(HashMap<Topic, SequenceId>),
    /// The tailer saw a new envelope on a registered topic.
    Live(Arc<Delivery>),
    /// As `Live`, without the envelope.
    Notice(Topic, SequenceId),
    /// What [`Action::Fetch`] brought, one page for each topic that was reached, in the order asked.
    Fetched(Vec<Page>),
    /// The transport took the frame of the last [`Action::Send`].
    Taken,
    /// The session's deadline passed.
    Tick,
    /// Something the session depends on failed, or the server shuts down.
    Failed(Status),
}

/// What a fetch found on one topic.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// Ascending, without a hole above the start asked for.
    pub(crate) envelopes: Vec<Arc<Delivery>>,
    /// Whether there was more.
    pub(crate) has_more: bool,
}

/// Something the driver must do, in order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Make arrivals on these topics known to the session from now on. Takes effect before anything
    /// that follows.
    Register(Vec<Topic>),
    /// Stop that.
    Deregister(Vec<Topic>),
    /// Read the heads of these topics.
    CaptureHeads(Vec<Topic>),
    /// Read on, at most so many rows of a topic and bytes in all.
    Fetch {
        /// Where.
        reads: Vec<TopicRead>,
        /// Rows of one topic.
        rows_per_topic: usize,
        /// Bytes in all.
        bytes: usize,
    },
    /// Give the transport a frame; it holds none.
    Send(Frame),
    /// The session is over.
    End(End),
}

/// How a session ends.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// `None` ends the stream with OK.
    pub(crate) status: Option<Status>,
    /// Whether frames already queued may still go out first.
    pub(crate) flush: bool,
}

/// One topic of the session.
#[derive(Debug)]
struct Registration {
    generation: u64,
    /// Everything at or below was admitted, or lies below the cursor.
    floor: Cursor,
    /// The greatest id known to be visible.
    known: Cursor,
    /// The heads of its update aren't known yet.
    capturing: bool,
    /// It stands in the ready queue or in the turn in flight.
    queued: bool,
}

impl Registration {
    fn is_current(&self) -> bool {
        !self.capturing && !self.queued && self.floor >= self.known
    }
}

/// Topics whose heads are being read.
#[derive(Debug)]
struct Capture {
    /// The update to acknowledge; `None` for a static stream's start.
    update: Option<u64>,
    added: Vec<Topic>,
}

/// A fetch in flight.
#[derive(Debug)]
struct Turn {
    topics: Vec<Asked>,
    reserved: usize,
}

/// A topic of a fetch.
#[derive(Debug)]
struct Asked {
    topic: Topic,
    generation: u64,
    /// What was known to be visible when the fetch began.
    known: Cursor,
}

/// A Ping that the reader has not answered.
#[derive(Debug)]
struct Challenge {
    nonce: u64,
    /// Set when the transport took the Ping (STR-034).
    deadline: Option<Instant>,
}

/// The frame the transport holds.
#[derive(Debug)]
struct Held {
    ping: Option<u64>,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Native,
    Static,
}

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Session {
    kind: Kind,
    limits: Arc<Limits>,
    timing: Arc<Timing>,
    topics: HashMap<Topic, Registration>,
    generations: u64,
    last_update: u64,
    capture: Option<Capture>,
    /// Updates that came while heads were being read.
    deferred: VecDeque<subscribe_request::Request>,
    ready: VecDeque<(Topic, u64)>,
    turn: Option<Turn>,
    outbound: Outbound,
    held: Option<Held>,
    last_admission: Instant,
    challenge: Option<Challenge>,
    next_nonce: u64,
    updates: Bucket,
    pings: Bucket,
    ended: bool,
}

impl Session {
    /// A bidirectional stream. `nonce` is where its challenges start counting.
    pub(crate) fn native(
        limits: Arc<Limits>,
        timing: Arc<Timing>,
        nonce: u64,
        now: Instant,
    ) -> (Self, Vec<Action>) {
        let mut session = Self::new(Kind::Native, limits, timing, nonce, now);
        let mut actions = Vec::new();
        session.admit(Frame::Started { targets: Vec::new() }, now, &mut actions);
        session.pump(now, &mut actions);
        (session, actions)
    }

    /// A stream over fixed topics. Its Started follows when their heads are known (STR-051).
    pub(crate) fn fixed(
        limits: Arc<Limits>,
        timing: Arc<Timing>,
        topics: &[backend::TopicQuery],
        now: Instant,
    ) -> Result<(Self, Vec<Action>), Status> {
        let reads = update::fixed_topics(topics, &limits)?;
        let mut session = Self::new(Kind::Static, limits, timing, 0, now);
        let mut actions = Vec::new();
        session.register(None, &reads, &mut actions);
        Ok((session, actions))
    }

    fn new(kind: Kind, limits: Arc<Limits>, timing: Arc<Timing>, nonce: u64, now: Instant) -> Self {
        Self {
            kind,
            topics: HashMap::new(),
            generations: 0,
            last_update: 0,
            capture: None,
            deferred: VecDeque::new(),
            ready: VecDeque::new(),
            turn: None,
            outbound: Outbound::new(&limits),
            held: None,
            last_admission: now,
            challenge: None,
            next_nonce: nonce,
            updates: Bucket::full(limits.updates_per_second, limits.update_burst, now),
            pings: Bucket::full(limits.pings_per_second, limits.ping_burst, now),
            ended: false,
            limits,
            timing,
        }
    }

    /// Takes one event and says what to do. After [`Action::End`] only [`Event::Taken`] has an effect:
    /// it sends what is still queued.
    pub(crate) fn on(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Taken => self.taken(now),
            _ if self.ended => {}
            Event::Inbound(frame) => self.inbound(frame, now, &mut actions),
            Event::HalfClosed => self.end(None, true, &mut actions),
            Event::Heads(heads) => self.heads(&heads, now, &mut actions),
            Event::Live(delivery) => self.live(&delivery, now),
            Event::Notice(topic, id) => self.notice(topic, id),
            Event::Fetched(pages) => self.fetched(&pages, now, &mut actions),
            Event::Tick => self.tick(now, &mut actions),
            Event::Failed(status) => self.end(Some(status), true, &mut actions),
        }
        self.pump(now, &mut actions);
        actions
    }

    /// Whether the next inbound frame should be read now. Not while heads are being read: updates
    /// take effect one after the other (STR-002), and the transport holds back what waits.
    pub(crate) fn reads(&self) -> bool {
        self.capture.is_none() && !self.ended
    }

    /// Whether nothing waits for the transport.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outbound.is_empty() && self.held.is_none()
    }

    fn inbound(&mut self, frame: backend::SubscribeRequest, now: Instant, actions: &mut Vec<Action>) {
        use subscribe_request::Request;
        match frame.request {
            None => {
                let status = Status::invalid_argument("the frame holds no request");
                self.end(Some(status), true, actions);
            }
            Some(Request::Ping(ping)) => {
                if self.pings.take(now) {
                    self.admit(Frame::Pong(ping.nonce), now, actions);
                } else {
                    self.exhausted("too many Ping frames", actions);
                }
            }
            Some(Request::Pong(pong)) => {
                // Any other frame leaves the challenge standing (STR-033).
                if self.challenge.as_ref().is_some_and(|challenge| challenge.nonce == pong.nonce) {
                    self.challenge = None;
                }
            }
            Some(Request::Update(_)) if !self.updates.take(now) => {
                self.exhausted("too many Update frames", actions);
            }
            Some(request) => {
                self.deferred.push_back(request);
                self.updates_in_order(now, actions);
            }
        }
    }

    fn updates_in_order(&mut self, now: Instant, actions: &mut Vec<Action>) {
        while self.capture.is_none() && !self.ended {
            let Some(subscribe_request::Request::Update(update)) = self.deferred.pop_front() else {
                return;
            };
            if let Err(status) = self.update(&update, now, actions) {
                self.end(Some(status), true, actions);
            }
        }
    }

    /// Registers topics that are absent now, and only then asks for their heads, so that what is
    /// published in between is seen as an arrival, as part of the head, or as both (STR-004).
    fn register(&mut self, update: Option<u64>, reads: &[TopicRead], actions: &mut Vec<Action>) {
        for read in reads {
            self.generations += 1;
            self.topics.insert(
                read.topic,
                Registration {
                    generation: self.generations,
                    floor: read.after,
                    known: Cursor::ZERO,
                    capturing: true,
                    queued: false,
                },
            );
        }
        let added: Vec<Topic> = reads.iter().map(|read| read.topic).collect();
        actions.push(Action::Register(added.clone()));
        actions.push(Action::CaptureHeads(added.clone()));
        self.capture = Some(Capture { update, added });
    }

    fn heads(&mut self, heads: &HashMap<Topic, SequenceId>, now: Instant, actions: &mut Vec<Action>) {
        let Some(Capture { update, added }) = self.capture.take() else {
            return;
        };
        let head = |topic: &Topic| heads.get(topic).map_or(Cursor::ZERO, |id| Cursor::from(*id));
        let targets = added.iter().map(|topic| (*topic, head(topic).get())).collect();
        // Before anything of these registrations can be queued (STR-004, STR-051).
        let frame = match update {
            Some(id) => Frame::Applied { id, targets },
            None => Frame::Started { targets },
        };
        self.admit(frame, now, actions);
        for topic in added {
            if let Some(registration) = self.topics.get_mut(&topic) {
                registration.capturing = false;
                registration.known = registration.known.max(head(&topic));
                self.enqueue_if_behind(topic);
            }
        }
        self.updates_in_order(now, actions);
    }

    /// Queues a frame that isn't envelopes.
    fn admit(&mut self, frame: Frame, now: Instant, actions: &mut Vec<Action>) {
        if self.outbound.push(frame).is_ok() {
            self.last_admission = now;
        } else {
            self.exhausted("too many frames wait for a slow reader", actions);
        }
    }

    fn exhausted(&mut self, message: &'static str, actions: &mut Vec<Action>) {
        self.end(Some(Status::resource_exhausted(message)), true, actions);
    }

    fn end(&mut self, status: Option<Status>, flush: bool, actions: &mut Vec<Action>) {
        if !self.ended {
            self.ended = true;
            actions.push(Action::End(End { status, flush }));
        }
    }

    /// Starts what can start now: the next fetch turn, the next handoff.
    fn pump(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.ended {
            self.next_turn(actions);
        }
        if self.held.is_none()
            && let Some(frame) = self.outbound.pop()
        {
            let ping = if let Frame::Ping(nonce) = &frame { Some(*nonce) } else { None };
            self.held = Some(Held { ping, since: now });
            actions.push(Action::Send(frame));
        }
    }
}
