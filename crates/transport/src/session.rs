//! The receiver session as a plain state machine: which frames may come next, and what they mean.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwater_wire::limits::{MAX_STREAM_TOPICS, MAX_UPDATE_ADDS, MAX_UPDATE_REMOVES};
use highwater_wire::proto::backend::{
    ServerEnvelope, SubscribeResponse, subscribe_request, subscribe_response,
};
use highwater_wire::{Cursor, PrefixCursor, Topic};

use crate::arrived::{by_topic, keepalive_of, targets_of};
use crate::query::topic_queries;
use crate::{ReceiverEvent, TransportError};

#[cfg(test)]
mod tests;

/// Names one update of one session; rises with each (STR-003).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpdateId(u64);

impl UpdateId {
    /// The id as it goes over the wire; never 0.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a frame means.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Something for whoever owns the receiver.
    Event(ReceiverEvent),
    /// To be answered with the same nonce (STR-033).
    Ping(u64),
    /// A sign of life, nothing more.
    Nothing,
}

/// An update that the backend hasn't acknowledged yet.
#[derive(Debug)]
struct Outstanding {
    id: UpdateId,
    /// What it adds and wasn't registered before, in add order: exactly what gets a target (STR-006).
    added: Vec<(Topic, Cursor)>,
    removed: Vec<Topic>,
}

/// One session, from its opening to its first broken rule.
#[derive(Debug, Default)]
pub(crate) struct Session {
    started: bool,
    last_update: u64,
    outstanding: VecDeque<Outstanding>,
    /// The registered topics once all outstanding updates are applied.
    projected: BTreeSet<Topic>,
    /// The registrations that the backend has acknowledged, each with where it stands.
    active: BTreeMap<Topic, PrefixCursor>,
    ended: Option<TransportError>,
}

impl Session {
    /// Takes an update on, and says what to send. Nothing changes when it is refused.
    pub(crate) fn update(
        &mut self,
        adds: Vec<(Topic, Cursor)>,
        removes: Vec<Topic>,
    ) -> Result<(UpdateId, subscribe_request::Request), TransportError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        check_update(&adds, &removes)?;
        let added: Vec<_> =
            adds.iter().filter(|(topic, _)| !self.projected.contains(topic)).copied().collect();
        let removed: Vec<_> =
            removes.iter().filter(|topic| self.projected.contains(topic)).copied().collect();
        if self.projected.len() + added.len() - removed.len() > MAX_STREAM_TOPICS {
            return Err(TransportError::invalid(format!(
                "a session holds at most {MAX_STREAM_TOPICS} topics"
            )));
        }
        self.projected.extend(added.iter().map(|(topic, _)| *topic));
        removed.iter().for_each(|topic| {
            self.projected.remove(topic);
        });
        self.last_update += 1;
        let id = UpdateId(self.last_update);
        self.outstanding.push_back(Outstanding { id, added, removed });
        let update = subscribe_request::Update {
            id: id.get(),
            adds: topic_queries(&adds),
            removes: removes.iter().map(Topic::to_proto).collect(),
        };
        Ok((id, subscribe_request::Request::Update(update)))
    }

    /// Takes a frame in. After an error the session is over; nothing of that frame may be used.
    pub(crate) fn on(&mut self, frame: SubscribeResponse) -> Result<Heard, TransportError> {
        use subscribe_response::Response;

        let frame = frame.response.ok_or_else(|| broken("a frame without content"))?;
        if !self.started && !matches!(frame, Response::Started(_)) {
            return Err(broken("a frame before Started"));
        }
        match frame {
            Response::Started(started) => self.on_started(started.keepalive_interval_ms),
            Response::Applied(applied) => self.on_applied(applied),
            Response::Messages(messages) => self.on_messages(messages.envelopes),
            Response::Ping(ping) => Ok(Heard::Ping(ping.nonce)),
            Response::Pong(_) => Ok(Heard::Nothing),
        }
    }

    /// Refuses later updates with the reason why the session is over.
    pub(crate) fn end(&mut self, why: TransportError) {
        self.ended.get_or_insert(why);
    }

    fn on_started(&mut self, keepalive_interval_ms: u32) -> Result<Heard, TransportError> {
        if std::mem::replace(&mut self.started, true) {
            return Err(broken("a second Started"));
        }
        let keepalive = keepalive_of(keepalive_interval_ms);
        Ok(Heard::Event(ReceiverEvent::Started { keepalive }))
    }

    fn on_applied(&mut self, applied: subscribe_response::Applied) -> Result<Heard, TransportError> {
        let update = self.outstanding.pop_front();
        let update = update.ok_or_else(|| broken("Applied, with no update outstanding"))?;
        if applied.id != update.id.get() {
            return Err(broken(format!(
                "Applied for update {}, with {} outstanding first",
                applied.id,
                update.id.get()
            )));
        }
        let targets = targets_of(update.added.iter().map(|(topic, _)| topic), &applied.added_targets)?;
        for topic in update.removed {
            self.active.remove(&topic);
        }
        for (topic, after) in update.added {
            self.active.insert(topic, PrefixCursor::new(topic, after));
        }
        Ok(Heard::Event(ReceiverEvent::Applied { update: update.id, targets }))
    }

    fn on_messages(&mut self, envelopes: Vec<ServerEnvelope>) -> Result<Heard, TransportError> {
        let mut prefixes = Vec::new();
        for (topic, envelopes) in by_topic(envelopes)? {
            let registration = self
                .active
                .get_mut(&topic)
                .ok_or_else(|| broken(format!("messages of {topic:?}, which isn't active")))?;
            let prefix =
                registration.extend(envelopes).map_err(|error| broken(format!("{topic:?}: {error}")))?;
            prefixes.push(prefix);
        }
        Ok(if prefixes.is_empty() { Heard::Nothing } else { Heard::Event(ReceiverEvent::Received(prefixes)) })
    }
}

/// What the backend would refuse, and with it the whole session (STR-002, STR-009).
fn check_update(adds: &[(Topic, Cursor)], removes: &[Topic]) -> Result<(), TransportError> {
    if adds.is_empty() && removes.is_empty() {
        return Err(TransportError::invalid("an update must add or remove something"));
    }
    if adds.len() > MAX_UPDATE_ADDS || removes.len() > MAX_UPDATE_REMOVES {
        return Err(TransportError::invalid(format!(
            "an update adds at most {MAX_UPDATE_ADDS} topics and removes at most {MAX_UPDATE_REMOVES}"
        )));
    }
    if let Some((topic, _)) = adds.iter().find(|(topic, _)| !topic.kind().is_ordered()) {
        return Err(TransportError::invalid(format!("{topic:?} has no ordered read")));
    }
    let mut named = BTreeSet::new();
    for topic in adds.iter().map(|(topic, _)| topic).chain(removes) {
        if !named.insert(topic) {
            return Err(TransportError::invalid(format!("an update names {topic:?} twice")));
        }
    }
    Ok(())
}

fn broken(rule: impl Into<String>) -> TransportError {
    TransportError::protocol(rule)
}
