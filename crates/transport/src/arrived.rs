//! Sorting what arrived, before each topic's part is checked on its own.

use std::collections::HashMap;

use highwater_wire::proto::backend::{EnvelopeMeta, ServerEnvelope};
use highwater_wire::{MessageHash, SequenceId, Topic};

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
