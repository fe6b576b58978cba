//! A static session's two halves: the handle that an engine holds, and the task that listens.

use std::time::Duration;

use highwater_wire::limits::KEEPALIVE_INTERVAL;
use highwater_wire::proto::backend::SubscribeStaticResponse;
use highwater_wire::{Cursor, OrderedPrefix, Topic};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Streaming;

use crate::fetched::{Budget, Buffered, room};
use crate::receiver::SILENT_INTERVALS;
use crate::static_session::StaticSession;
use crate::{Connection, ReceiverEnd, TransportError};

/// What happened on a static session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaticEvent {
    /// The backend accepted the session. Comes first, and once (STR-051).
    Started {
        /// The longest time between two frames. An announced 0 is the default of 30 s.
        keepalive: Duration,
        /// The head that each topic had, in the order asked; zero for an empty topic. Says what there is to fetch,
        /// never what was received.
        targets: Vec<(Topic, Cursor)>,
    },
    /// Envelopes, at most one prefix per topic. Each continues its topic's last one, or starts at the cursor that the
    /// session was opened with.
    Received(Vec<OrderedPrefix>),
    /// The session is over. Comes last; every later call returns it again.
    Ended(ReceiverEnd),
}

/// One session whose topics never change: a single request, and a stream of answers, which passes where a stream in both
/// directions doesn't. Dropping it cancels the session at once.
#[derive(Debug)]
pub struct StaticReceiver {
    events: mpsc::UnboundedReceiver<Buffered<StaticEvent>>,
    driver: JoinHandle<()>,
    ended: Option<ReceiverEnd>,
}

impl Connection {
    /// Opens a session for these topics, each from an exclusive start.
    ///
    /// # Errors
    /// [`TransportError::InvalidArgument`], unsent, without any topic, with more than 10,000, with one named twice, or
    /// with one that has no ordered read (STR-050); why the backend didn't accept it, within the time for one request.
    /// Dropping the future cancels the attempt.
    pub async fn open_static_receiver(
        &self,
        topics: &[(Topic, Cursor)],
    ) -> Result<StaticReceiver, TransportError> {
        let (session, request) = StaticSession::new(topics)?;
        let mut subscriptions = self.subscriptions();
        let frames = self.answered(subscriptions.subscribe_static(request)).await?;
        let (sender, events) = mpsc::unbounded_channel();
        let driver = Driver {
            session,
            frames,
            events: sender,
            budget: Budget::new(),
            held: None,
            silence_limit: KEEPALIVE_INTERVAL * SILENT_INTERVALS,
            last_heard: Instant::now(),
        };
        Ok(StaticReceiver { events, driver: tokio::spawn(driver.run()), ended: None })
    }
}

impl StaticReceiver {
    /// The next event. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> StaticEvent {
        if let Some(end) = &self.ended {
            return StaticEvent::Ended(end.clone());
        }
        let event = match self.events.recv().await {
            Some(buffered) => buffered.event,
            // The task always says how it ended, unless it panicked.
            None => StaticEvent::Ended(ReceiverEnd::Failed(TransportError::unavailable(
                "the session's task ended without a word",
            ))),
        };
        if let StaticEvent::Ended(end) = &event {
            self.ended = Some(end.clone());
        }
        event
    }
}

impl Drop for StaticReceiver {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The task that listens. Reads only while it holds no frame that has no room yet.
struct Driver {
    session: StaticSession,
    frames: Streaming<SubscribeStaticResponse>,
    events: mpsc::UnboundedSender<Buffered<StaticEvent>>,
    budget: Budget,
    held: Option<Vec<OrderedPrefix>>,
    silence_limit: Duration,
    last_heard: Instant,
}

impl Driver {
    async fn run(mut self) {
        let end = self.drive().await;
        tracing::debug!(?end, "static session ended");
        self.emit(StaticEvent::Ended(end));
    }

    async fn drive(&mut self) -> ReceiverEnd {
        loop {
            let silent_at = self.last_heard + self.silence_limit;
            // What has arrived counts before the clock does (STR-053).
            tokio::select! {
                biased;
                share = room(&self.budget, self.held.as_deref()), if self.held.is_some() => {
                    if let Some(prefixes) = self.held.take() {
                        let event = StaticEvent::Received(prefixes);
                        let _ = self.events.send(Buffered { event, _share: share });
                    }
                    // The time in which nothing could be read wasn't the wire's (PROC-021).
                    self.last_heard = Instant::now();
                },
                frame = self.frames.message(), if self.held.is_none() => match frame {
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

    fn on(&mut self, frame: SubscribeStaticResponse) -> Result<(), TransportError> {
        match self.session.on(frame)? {
            Some(StaticEvent::Received(prefixes)) => self.held = Some(prefixes),
            Some(event) => {
                if let StaticEvent::Started { keepalive, .. } = event {
                    self.silence_limit = keepalive * SILENT_INTERVALS;
                }
                self.emit(event);
            }
            None => {}
        }
        Ok(())
    }

    fn emit(&self, event: StaticEvent) {
        // Without an owner this task is being aborted.
        let _ = self.events.send(event.into());
    }
}
