//! One session over static streams: as many as the topics need, replaced when the topics change.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::select_all;
use highwater_transport::{ReceiverEnd, StaticEvent, StaticReceiver, TransportError};
use highwater_wire::limits::MAX_STATIC_TOPICS;
use highwater_wire::{Cursor, OrderedPrefix, Topic};
use tokio::task::{JoinError, JoinSet};

use crate::admission::{Admitted, admit};
use crate::desired::Desired;
use crate::engine::Shared;
use crate::fetch::fetch;
use crate::receiver::{Ended, Health, from_received, has_room, ticks};
use crate::static_streams::{Action, StaticStreams, StreamId};
use crate::{Backoff, ConnectionState, SyncError};

/// Any stream's failure ends the session: what is left of it is opened anew together, after one wait.
pub(crate) async fn session(shared: &Shared, backoff: &mut Backoff) -> Ended {
    let mut session = Session {
        shared,
        desired: Desired::default(),
        streams: StaticStreams::new(MAX_STATIC_TOPICS),
        opening: JoinSet::new(),
        open: BTreeMap::new(),
        served: None,
        queries: JoinSet::new(),
        queried: BTreeSet::new(),
        health: Health::default(),
    };
    match session.run(backoff).await {
        Ok(()) => Ended::Unneeded,
        Err(ended) => ended,
    }
}

type Opened = (StreamId, Result<StaticReceiver, TransportError>);
type Queried = (Topic, Result<Cursor, SyncError>);

struct Session<'a> {
    shared: &'a Shared,
    desired: Desired,
    streams: StaticStreams,
    opening: JoinSet<Opened>,
    open: BTreeMap<StreamId, StaticReceiver>,
    /// The stream whose event came last: the others come first next time.
    served: Option<StreamId>,
    queries: JoinSet<Queried>,
    queried: BTreeSet<Topic>,
    health: Health,
}

impl Session<'_> {
    async fn run(&mut self, backoff: &mut Backoff) -> Result<(), Ended> {
        let mut tick = ticks();
        loop {
            tokio::select! {
                _ = self.shared.cancel.cancelled() => return Ok(()),
                Some(opened) = self.opening.join_next() => self.opened(opened)?,
                Some(queried) = self.queries.join_next() => self.queried(queried).await?,
                (id, event) = next_event(&mut self.open, self.served) => self.on(id, event).await?,
                _ = tick.tick() => {
                    if self.shared.interests.scopes().is_empty() {
                        return Ok(());
                    }
                    self.reconcile().await?;
                    let all_active = !self.open.is_empty() && self.streams.all_active();
                    self.health.observe(self.shared, all_active, backoff);
                }
            }
        }
    }

    /// Makes the streams' topics those that are desired now, each from its durable F (STR-054), and has queried what
    /// they don't cover.
    async fn reconcile(&mut self) -> Result<(), Ended> {
        let actions = self.streams.reconcile(self.desired.now(self.shared).await?);
        let changed = !actions.is_empty();
        for action in actions {
            self.act(action).await?;
        }
        if changed {
            self.publish();
        }
        let uncovered: Vec<_> = self.streams.uncovered().keys().copied().collect();
        for topic in uncovered {
            self.query(topic).await?;
        }
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<(), Ended> {
        match action {
            Action::Open(id, topics) => {
                let topics = from_received(self.shared, topics).await?;
                let connection = self.shared.connection.clone();
                self.opening.spawn(async move { (id, connection.open_static_receiver(&topics).await) });
            }
            Action::Close(id) => drop(self.open.remove(&id)),
        }
        Ok(())
    }

    fn opened(&mut self, opened: Result<Opened, JoinError>) -> Result<(), Ended> {
        let (id, receiver) = opened.map_err(panicked)?;
        self.open.insert(id, receiver?);
        Ok(())
    }

    async fn on(&mut self, id: StreamId, event: StaticEvent) -> Result<(), Ended> {
        self.served = Some(id);
        match event {
            StaticEvent::Started { targets, .. } => {
                self.shared.connection_state(ConnectionState::Connected);
                if let Some(replaced) = self.streams.started(id, targets) {
                    self.act(replaced).await?;
                }
                self.publish();
                Ok(())
            }
            StaticEvent::Received(prefixes) => {
                for prefix in prefixes {
                    self.admit(prefix).await?;
                }
                Ok(())
            }
            StaticEvent::Ended(ReceiverEnd::Failed(error)) => Err(error.into()),
            StaticEvent::Ended(_) => Err(Ended::Failed { error: None }),
            // An event of a later transport that this driver has no use for.
            _ => Ok(()),
        }
    }

    async fn admit(&mut self, prefix: OrderedPrefix) -> Result<(), Ended> {
        let (topic, last) = (prefix.topic(), prefix.last());
        if !self.streams.admits(topic, last) {
            return Ok(());
        }
        match admit(&self.shared.store, prefix).await? {
            Admitted::All(_) => {}
            Admitted::Paused(_) | Admitted::Gap(_) => {
                self.streams.dropped(topic, last);
                self.publish();
            }
        }
        Ok(())
    }

    /// Has an uncovered topic queried from F, as far as envelopes of it were dropped, if there is room for some.
    async fn query(&mut self, topic: Topic) -> Result<(), Ended> {
        let Some(through) = self.streams.uncovered().get(&topic).copied() else {
            return Ok(());
        };
        if self.queried.contains(&topic) || !has_room(self.shared, topic).await? {
            return Ok(());
        }
        self.queried.insert(topic);
        let shared = Shared::clone(self.shared);
        self.queries.spawn(async move { (topic, query(&shared, topic, through).await) });
        Ok(())
    }

    async fn queried(&mut self, queried: Result<Queried, JoinError>) -> Result<(), Ended> {
        let (topic, received) = queried.map_err(panicked)?;
        self.queried.remove(&topic);
        self.streams.received(topic, received?);
        // What was dropped while it ran is queried at once: each time there is less of it.
        self.query(topic).await?;
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        self.shared.set_registrations(self.streams.registrations());
    }
}

/// Queries a topic as far as there is room. Says how far F is then.
async fn query(shared: &Shared, topic: Topic, through: Cursor) -> Result<Cursor, SyncError> {
    let _turn = shared.dependency_requests.acquire().await.map_err(|_| SyncError::Closed)?;
    fetch(&shared.store, &shared.connection, &BTreeMap::from([(topic, through)])).await?;
    let received = from_received(shared, vec![topic]).await?;
    Ok(received.first().map_or(Cursor::ZERO, |(_, received)| *received))
}

/// The next event of any stream, those after the last served one first. Cancel-safe as each stream's is.
async fn next_event(
    open: &mut BTreeMap<StreamId, StaticReceiver>,
    served: Option<StreamId>,
) -> (StreamId, StaticEvent) {
    if open.is_empty() {
        return std::future::pending().await;
    }
    let mut turns: Vec<_> = open.iter_mut().collect();
    let first = turns.iter().position(|(id, _)| Some(**id) > served).unwrap_or(0);
    turns.rotate_left(first);
    let next = turns.into_iter().map(|(id, receiver)| Box::pin(async move { (*id, receiver.next().await) }));
    select_all(next).await.0
}

fn panicked(error: JoinError) -> Ended {
    SyncError::from(TransportError::unavailable(format!("a task of the receiver failed: {error}"))).into()
}
