//! Reading what arrived: sorting it, before each topic's part is checked on its own, and what every session says of itself.

use std::collections::HashMap;
use std::time::Duration;

use highwater_wire::limits::KEEPALIVE_INTERVAL;
use highwater_wire::proto::backend::{CatchupTarget, EnvelopeMeta, ServerEnvelope};
use highwater_wire::{Cursor, MessageHash, SequenceId, Topic};

use crate::TransportError;

/// The envelopes by topic, topics in order of first appearance, each topic's envelopes in order of
/// arrival.
pub(crate) fn by_topic(
    envelopes: Vec<ServerEnvelope>,
) -> Result<Vec<(Topic, Vec<ServerEnvelope>)>, TransportError> {
    let mut parts: Vec<(Topic, Vec<ServerEnvelope>)> = Vec::new();
    let mut places = HashMap::new();
    for envelope in envelopes {
        let topic = envelope.meta.as_ref().and_then(|meta| meta.topic.as_ref());
        let topic = topic.ok_or_else(|| TransportError::protocol("an envelope names no topic"))?;
        let topic = Topic::try_from(topic)
            .map_err(|error| TransportError::protocol(format!("an envelope's topic: {error}")))?;
        let place = *places.entry(topic).or_insert_with(|| {
            parts.push((topic, Vec::new()));
            parts.len() - 1
        });
        parts[place].1.push(envelope);
    }
    Ok(parts)
}

/// The targets that a session was told, which must be those of `topics`, in that order (STR-006, STR-051).
pub(crate) fn targets_of<'t>(
    topics: impl ExactSizeIterator<Item = &'t Topic>,
    told: &[CatchupTarget],
) -> Result<Vec<(Topic, Cursor)>, TransportError> {
    if told.len() != topics.len() {
        return Err(TransportError::protocol(format!("{} targets for {} topics", told.len(), topics.len())));
    }
    let target = |(told, topic): (&CatchupTarget, &Topic)| {
        let named = told.topic.as_ref().map(Topic::try_from);
        if !matches!(named, Some(Ok(named)) if named == *topic) {
            return Err(TransportError::protocol(format!("another target than that of {topic:?}")));
        }
        let through = Cursor::try_from(told.through_sequence_id)
            .map_err(|error| TransportError::protocol(format!("a target: {error}")))?;
        Ok((*topic, through))
    };
    told.iter().zip(topics).map(target).collect()
}

/// The longest time between two frames, as a session announces it; 0 is the default (STR-053).
pub(crate) fn keepalive_of(interval_ms: u32) -> Duration {
    match interval_ms {
        0 => KEEPALIVE_INTERVAL,
        ms => Duration::from_millis(ms.into()),
    }
}

/// Metadata that came without its envelope.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) topic: Topic,
    pub(crate) sequence_id: SequenceId,
    pub(crate) server_ns: i64,
    pub(crate) hash: MessageHash,
}

/// Checks the shape of metadata.
pub(crate) fn stored(meta: EnvelopeMeta) -> Result<Stored, TransportError> {
    let missing = |what: &str| TransportError::protocol(format!("metadata without a {what}"));
    let malformed = |what: &str, error: &dyn std::fmt::Display| {
        TransportError::protocol(format!("metadata with a malformed {what}: {error}"))
    };
    let topic = meta.topic.ok_or_else(|| missing("topic"))?;
    let cursor = meta.cursor.ok_or_else(|| missing("cursor"))?;
    let hash = meta.message_hash.ok_or_else(|| missing("message hash"))?;
    Ok(Stored {
        topic: Topic::try_from(topic).map_err(|error| malformed("topic", &error))?,
        sequence_id: SequenceId::try_from(cursor.sequence_id).map_err(|error| malformed("cursor", &error))?,
        server_ns: i64::try_from(meta.server_ns).map_err(|error| malformed("server time", &error))?,
        hash: MessageHash::try_from(&hash).map_err(|error| malformed("hash", &error))?,
    })
}
