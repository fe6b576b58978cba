//! A static session as a plain state machine: its topics are those of its request, for as long as it lasts.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::limits::MAX_STATIC_TOPICS;
use highwater_wire::proto::backend::{
    ServerEnvelope, SubscribeStaticRequest, SubscribeStaticResponse, subscribe_static_response,
};
use highwater_wire::{Cursor, PrefixCursor, Topic};

use crate::arrived::{by_topic, keepalive_of, targets_of};
use crate::query::topic_queries;
use crate::{StaticEvent, TransportError};

/// One session, from its request to its first broken rule.
#[derive(Debug)]
pub(crate) struct StaticSession {
    started: bool,
    /// In the order of the request, which is that of the targets (STR-051).
    topics: Vec<Topic>,
    registrations: BTreeMap<Topic, PrefixCursor>,
}

impl StaticSession {
    /// The session, and the request that opens it.
    ///
    /// # Errors
    /// [`TransportError::InvalidArgument`] for what the backend would refuse (STR-050).
    pub(crate) fn new(topics: &[(Topic, Cursor)]) -> Result<(Self, SubscribeStaticRequest), TransportError> {
        if topics.is_empty() || topics.len() > MAX_STATIC_TOPICS {
            return Err(TransportError::invalid(format!(
                "a static session has 1 to {MAX_STATIC_TOPICS} topics"
            )));
        }
        let mut named = BTreeSet::new();
        for (topic, _) in topics {
            if !topic.kind().is_ordered() {
                return Err(TransportError::invalid(format!("{topic:?} has no ordered read")));
            }
            if !named.insert(*topic) {
                return Err(TransportError::invalid(format!("a static session names {topic:?} twice")));
            }
        }
        let session = Self {
            started: false,
            topics: topics.iter().map(|(topic, _)| *topic).collect(),
            registrations: topics
                .iter()
                .map(|(topic, after)| (*topic, PrefixCursor::new(*topic, *after)))
                .collect(),
        };
        Ok((session, SubscribeStaticRequest { topics: topic_queries(topics) }))
    }

    /// Takes a frame in; `None` for a mere sign of life. After an error the session is over, and nothing of that frame
    /// may be used.
    pub(crate) fn on(
        &mut self,
        frame: SubscribeStaticResponse,
    ) -> Result<Option<StaticEvent>, TransportError> {
        use subscribe_static_response::Response;

        let frame = frame.response.ok_or_else(|| TransportError::protocol("a frame without content"))?;
        if !self.started && !matches!(frame, Response::Started(_)) {
            return Err(TransportError::protocol("a frame before Started"));
        }
        match frame {
            Response::Started(started) => self.on_started(started).map(Some),
            Response::Messages(messages) => self.on_messages(messages.envelopes),
            Response::Keepalive(_) => Ok(None),
        }
    }

    fn on_started(
        &mut self,
        started: subscribe_static_response::Started,
    ) -> Result<StaticEvent, TransportError> {
        if std::mem::replace(&mut self.started, true) {
            return Err(TransportError::protocol("a second Started"));
        }
        let targets = targets_of(self.topics.iter(), &started.targets)?;
        let keepalive = keepalive_of(started.keepalive_interval_ms);
        Ok(StaticEvent::Started { keepalive, targets })
    }

    fn on_messages(&mut self, envelopes: Vec<ServerEnvelope>) -> Result<Option<StaticEvent>, TransportError> {
        let mut prefixes = Vec::new();
        for (topic, envelopes) in by_topic(envelopes)? {
            let registration = self.registrations.get_mut(&topic).ok_or_else(|| {
                TransportError::protocol(format!("messages of {topic:?}, which wasn't asked for"))
            })?;
            let prefix = registration
                .extend(envelopes)
                .map_err(|error| TransportError::protocol(format!("{topic:?}: {error}")))?;
            prefixes.push(prefix);
        }
        Ok((!prefixes.is_empty()).then_some(StaticEvent::Received(prefixes)))
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::limits::KEEPALIVE_INTERVAL;
    use highwater_wire::proto::backend::subscribe_static_response::{Keepalive, Response, Started};
    use highwater_wire::proto::backend::{CatchupTarget, ServerEnvelope};
    use highwater_wire::{GroupId, InstallationKey};

    use super::*;

    fn topic(n: u8) -> Topic {
        Topic::group(GroupId::from_bytes([n; 16]))
    }

    fn frame(response: Response) -> SubscribeStaticResponse {
        SubscribeStaticResponse { response: Some(response) }
    }

    fn started(targets: &[(Topic, u64)]) -> SubscribeStaticResponse {
        let target = |(topic, through_sequence_id): &(Topic, u64)| CatchupTarget {
            topic: Some(topic.to_proto()),
            through_sequence_id: *through_sequence_id,
        };
        let targets = targets.iter().map(target).collect();
        frame(Response::Started(Started { keepalive_interval_ms: 0, targets }))
    }

    fn session() -> StaticSession {
        StaticSession::new(&[(topic(2), Cursor::ZERO), (topic(1), Cursor::ZERO)]).unwrap().0
    }

    #[track_caller]
    fn breaks(session: &mut StaticSession, frame: SubscribeStaticResponse) {
        let error = session.on(frame).unwrap_err();
        assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
    }

    /// Shows: STR-050.
    #[test]
    fn what_the_backend_would_refuse_is_not_sent() {
        let key_package = Topic::key_package(InstallationKey::from_bytes([1; 32]));
        let many: Vec<_> = (0..=MAX_STATIC_TOPICS as u128)
            .map(|n| (Topic::group(GroupId::from_bytes(n.to_be_bytes())), Cursor::ZERO))
            .collect();
        let twice = [(topic(1), Cursor::ZERO), (topic(1), Cursor::ZERO)];
        for topics in [&[][..], &twice, &[(key_package, Cursor::ZERO)], &many] {
            let error = StaticSession::new(topics).unwrap_err();
            assert!(matches!(error, TransportError::InvalidArgument { .. }), "{error:?}");
        }
        StaticSession::new(&many[1..]).unwrap();
    }

    /// Shows: STR-051.
    #[test]
    fn the_start_names_the_target_of_each_topic_in_the_order_asked_and_comes_before_everything() {
        let messages =
            |envelopes| frame(Response::Messages(subscribe_static_response::Messages { envelopes }));
        breaks(&mut session(), frame(Response::Keepalive(Keepalive {})));
        breaks(&mut session(), messages(Vec::new()));
        for wrong in
            [&[(topic(2), 5)][..], &[(topic(1), 5), (topic(2), 0)], &[(topic(2), u64::MAX), (topic(1), 0)]]
        {
            breaks(&mut session(), started(wrong));
        }
        let mut session = session();
        let event = session.on(started(&[(topic(2), 5), (topic(1), 0)])).unwrap().unwrap();
        let at = |through| Cursor::try_from(through).unwrap();
        let targets = vec![(topic(2), at(5_u64)), (topic(1), Cursor::ZERO)];
        assert_eq!(event, StaticEvent::Started { keepalive: KEEPALIVE_INTERVAL, targets });
        assert_eq!(session.on(frame(Response::Keepalive(Keepalive {}))).unwrap(), None);
        breaks(&mut session, messages(vec![ServerEnvelope::default()]));
        breaks(&mut session, started(&[(topic(2), 5), (topic(1), 0)]));
    }
}
