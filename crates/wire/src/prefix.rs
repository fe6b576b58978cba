//! From what a read returned to what may be admitted (STR-060, PROC-001).

use std::fmt;

use bytes::Bytes;
use prost::Message as _;

use crate::{
    Cursor, MessageHash, SequenceId, Topic,
    error::PrefixError,
    proto::backend::{ClientEnvelope, ServerEnvelope},
};

/// One well-formed envelope as the backend delivered it. Says nothing about order: only an
/// [`OrderedPrefix`] can be admitted.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceivedEnvelope {
    topic: Topic,
    sequence_id: SequenceId,
    server_ns: i64,
    expiry_ns: u64,
    hash: MessageHash,
    is_commit_or_proposal: bool,
    payload: Bytes,
}

impl ReceivedEnvelope {
    /// What an envelope is counted with besides its payload: topic, id, two times, hash, flag.
    pub const METADATA_BYTES: u64 = 33 + 8 + 8 + 8 + 32 + 1;

    /// The topic it is stored on.
    pub fn topic(&self) -> Topic {
        self.topic
    }

    /// Its id.
    pub fn sequence_id(&self) -> SequenceId {
        self.sequence_id
    }

    /// When the backend stored it, nanoseconds since the Unix epoch; never negative.
    pub fn server_ns(&self) -> i64 {
        self.server_ns
    }

    /// When it may be dropped, nanoseconds since the Unix epoch; 0 for never. As it came: the whole
    /// range of `u64` can occur.
    pub fn expiry_ns(&self) -> u64 {
        self.expiry_ns
    }

    /// The backend's hash, as it came.
    pub fn hash(&self) -> MessageHash {
        self.hash
    }

    /// The backend's reading of the payload; no proof.
    pub fn is_commit_or_proposal(&self) -> bool {
        self.is_commit_or_proposal
    }

    /// The encoded `ClientEnvelope`.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Decodes [`ReceivedEnvelope::payload`].
    ///
    /// # Errors
    /// None in practice, as the bytes were encoded here; the decoder's own, if it has one.
    pub fn decode_payload(&self) -> Result<ClientEnvelope, prost::DecodeError> {
        ClientEnvelope::decode(self.payload.clone())
    }

    /// What it counts for in every byte budget: payload and metadata (STR-066).
    pub fn stored_bytes(&self) -> u64 {
        self.payload.len() as u64 + Self::METADATA_BYTES
    }
}

impl fmt::Debug for ReceivedEnvelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedEnvelope")
            .field("topic", &self.topic)
            .field("sequence_id", &self.sequence_id)
            .field("server_ns", &self.server_ns)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Checks one envelope alone, as QueryNewest returns it. The result can't be admitted: nothing is
/// known of what lies before it (STR-062).
///
/// # Errors
/// Every [`PrefixError`] but `WrongTopic` and `NotIncreasing`.
pub fn received(envelope: ServerEnvelope) -> Result<ReceivedEnvelope, PrefixError> {
    let meta = envelope.meta.ok_or(PrefixError::Missing { what: "metadata" })?;
    let payload = envelope.envelope.ok_or(PrefixError::Missing { what: "payload" })?;
    let topic = meta.topic.ok_or(PrefixError::Missing { what: "topic" })?;
    let cursor = meta.cursor.ok_or(PrefixError::Missing { what: "cursor" })?;
    let hash = meta.message_hash.ok_or(PrefixError::Missing { what: "message hash" })?;
    Ok(ReceivedEnvelope {
        topic: Topic::try_from(topic)?,
        sequence_id: SequenceId::try_from(cursor.sequence_id)?,
        server_ns: i64::try_from(meta.server_ns)
            .map_err(|_| PrefixError::ServerTime { found: meta.server_ns })?,
        expiry_ns: meta.expiry_ns,
        hash: MessageHash::try_from(&hash)?,
        is_commit_or_proposal: meta.is_commit_or_proposal,
        payload: payload.encode_to_vec().into(),
    })
}

/// Where one registration or query stands on one topic. Lives as long as the read does: a new read
/// needs a new one, built from the position that the read was asked to start at.
#[derive(Debug, PartialEq, Eq)]
pub struct PrefixCursor {
    topic: Topic,
    last: Cursor,
}

impl PrefixCursor {
    /// Starts a read of `topic` at the exclusive position `after`, as it was sent to the backend.
    pub fn new(topic: Topic, after: Cursor) -> Self {
        Self { topic, last: after }
    }

    /// The topic being read.
    pub fn topic(&self) -> Topic {
        self.topic
    }

    /// The last position checked. Never decreases.
    pub fn last(&self) -> Cursor {
        self.last
    }

    /// Takes the next batch of this read, whole or not at all.
    ///
    /// # Errors
    /// The first thing wrong with the batch; the cursor then stands where it stood.
    pub fn extend(&mut self, batch: Vec<ServerEnvelope>) -> Result<OrderedPrefix, PrefixError> {
        let mut last = self.last;
        let mut envelopes = Vec::with_capacity(batch.len());
        for envelope in batch {
            let envelope = received(envelope)?;
            if envelope.topic != self.topic {
                return Err(PrefixError::WrongTopic { expected: self.topic, found: envelope.topic });
            }
            if last.covers(envelope.sequence_id) {
                return Err(PrefixError::NotIncreasing { last, found: envelope.sequence_id });
            }
            last = envelope.sequence_id.into();
            envelopes.push(envelope);
        }
        let prefix = OrderedPrefix { topic: self.topic, after: self.last, envelopes };
        self.last = last;
        Ok(prefix)
    }
}

/// Consecutive envelopes of one topic, from a known exclusive start: the only admissible input.
/// Consecutive means that the backend left nothing out, not that the ids have no gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedPrefix {
    topic: Topic,
    after: Cursor,
    envelopes: Vec<ReceivedEnvelope>,
}

impl OrderedPrefix {
    /// The topic of all its envelopes.
    pub fn topic(&self) -> Topic {
        self.topic
    }

    /// The exclusive start.
    pub fn after(&self) -> Cursor {
        self.after
    }

    /// The envelopes, ids rising strictly, all above [`OrderedPrefix::after`].
    pub fn envelopes(&self) -> &[ReceivedEnvelope] {
        &self.envelopes
    }

    /// Where it ends: its highest id, or its start when it is empty.
    pub fn last(&self) -> Cursor {
        self.envelopes.last().map_or(self.after, |envelope| envelope.sequence_id.into())
    }

    /// Whether it has no envelope.
    pub fn is_empty(&self) -> bool {
        self.envelopes.is_empty()
    }

    /// How many envelopes it has.
    pub fn len(&self) -> usize {
        self.envelopes.len()
    }

    /// What all its envelopes count for in a byte budget.
    pub fn stored_bytes(&self) -> u64 {
        self.envelopes.iter().map(ReceivedEnvelope::stored_bytes).sum()
    }

    /// Takes off the longest leading part that fits both bounds and leaves the rest, which then
    /// starts where that part ends. The part is empty when the first envelope alone doesn't fit.
    pub fn split_off_front(&mut self, max_rows: usize, max_bytes: u64) -> Self {
        let mut bytes = 0_u64;
        let fitting = self
            .envelopes
            .iter()
            .take(max_rows)
            .take_while(|envelope| {
                bytes = bytes.saturating_add(envelope.stored_bytes());
                bytes <= max_bytes
            })
            .count();
        let rest = self.envelopes.split_off(fitting);
        let front = Self {
            topic: self.topic,
            after: self.after,
            envelopes: std::mem::replace(&mut self.envelopes, rest),
        };
        self.after = front.last();
        front
    }

    /// The envelopes, by value.
    pub fn into_envelopes(self) -> Vec<ReceivedEnvelope> {
        self.envelopes
    }
}
