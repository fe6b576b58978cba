//! A backend reduced to its order: every envelope gets the next id, on the topic its payload names.

use std::collections::BTreeMap;

use highwater_wire::proto::backend::{
    ClientEnvelope, Cursor as WireCursor, EnvelopeMeta, GroupMessage, MessageHash, ServerEnvelope,
    WelcomeMessage, client_envelope, message_hash, welcome_message,
};
use highwater_wire::{Cursor, GroupId, InstallationKey, OrderedPrefix, PrefixCursor, SequenceId, Topic};
use prost::Message as _;

/// The stored envelopes.
#[derive(Clone, Debug, Default)]
pub struct World {
    topics: BTreeMap<Topic, Vec<ServerEnvelope>>,
    last: u64,
}

impl World {
    /// An empty world.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores an encoded `ClientEnvelope` on the topic its payload names.
    ///
    /// # Panics
    /// If the bytes aren't an envelope that names a topic.
    pub fn publish(&mut self, envelope: &[u8]) -> SequenceId {
        let envelope = ClientEnvelope::decode(envelope).expect("an envelope");
        let topic = topic_of(&envelope);
        self.publish_on(topic, envelope)
    }

    /// Stores anything on any topic: what no honest client would publish, too.
    pub fn publish_on(&mut self, topic: Topic, envelope: ClientEnvelope) -> SequenceId {
        self.last += 1;
        let stored = ServerEnvelope {
            meta: Some(EnvelopeMeta {
                cursor: Some(WireCursor { sequence_id: self.last }),
                server_ns: 1_700_000_000_000_000_000 + self.last,
                message_hash: Some(MessageHash {
                    hash: Some(message_hash::Hash::Sha256(vec![self.last as u8; 32])),
                }),
                topic: Some(topic.to_proto()),
                expiry_ns: 0,
                is_commit_or_proposal: false,
            }),
            envelope: Some(envelope),
        };
        self.topics.entry(topic).or_default().push(stored);
        SequenceId::try_from(self.last).expect("ids stay small here")
    }

    /// Stores a group message of any bytes on a group's topic.
    pub fn publish_data(&mut self, group: GroupId, data: Vec<u8>) -> SequenceId {
        let payload =
            client_envelope::Payload::GroupMessage(GroupMessage { data, ..GroupMessage::default() });
        self.publish_on(Topic::group(group), ClientEnvelope { payload: Some(payload) })
    }

    /// The id of the next envelope.
    pub fn next_id(&self) -> u64 {
        self.last + 1
    }

    /// Takes ids out of every topic's reach, as other topics' traffic does.
    pub fn skip_ids(&mut self, count: u64) {
        self.last += count;
    }

    /// What a query after `after` would return.
    pub fn prefix(&self, topic: Topic, after: Cursor) -> OrderedPrefix {
        self.prefix_through(topic, after, Cursor::from(SequenceId::MAX))
    }

    /// The same, but nothing above `through`.
    pub fn prefix_through(&self, topic: Topic, after: Cursor, through: Cursor) -> OrderedPrefix {
        let envelopes = self
            .topics
            .get(&topic)
            .into_iter()
            .flatten()
            .filter(|stored| id(stored) > after.get() && id(stored) <= through.get())
            .cloned()
            .collect();
        PrefixCursor::new(topic, after).extend(envelopes).expect("a well-formed prefix")
    }

    /// An envelope as it is sent to a subscriber.
    pub fn stored(&self, topic: Topic, at: SequenceId) -> Option<ServerEnvelope> {
        let envelopes = self.topics.get(&topic)?;
        let index = envelopes.binary_search_by_key(&at.get(), id).ok()?;
        envelopes.get(index).cloned()
    }

    /// The first Welcome on a pointer's destination.
    pub fn first_welcome(&self, destination: [u8; 32]) -> Option<&WelcomeMessage> {
        let stored = self.topics.get(&Topic::welcome_destination(destination))?.first()?;
        match stored.envelope.as_ref()?.payload.as_ref()? {
            client_envelope::Payload::WelcomeMessage(body) => Some(body),
            _ => None,
        }
    }

    /// The newest envelope of a topic.
    pub fn newest(&self, topic: Topic) -> Option<&ClientEnvelope> {
        self.topics.get(&topic)?.last()?.envelope.as_ref()
    }
}

fn id(stored: &ServerEnvelope) -> u64 {
    stored.meta.as_ref().and_then(|meta| meta.cursor.as_ref()).map_or(0, |at| at.sequence_id)
}

fn topic_of(envelope: &ClientEnvelope) -> Topic {
    use client_envelope::Payload;
    match envelope.payload.as_ref().expect("a payload") {
        Payload::GroupMessage(message) => Topic::group(group_of(&message.data)),
        Payload::WelcomeMessage(welcome) => match welcome.version.as_ref().expect("a version") {
            highwater_wire::proto::backend::welcome_message::Version::V1(welcome_message::V1 {
                installation_key,
                ..
            }) => Topic::welcome(installation(installation_key)),
            highwater_wire::proto::backend::welcome_message::Version::WelcomePointer(pointer) => {
                Topic::welcome(installation(&pointer.installation_key))
            }
        },
        Payload::IdentityUpdate(update) => Topic::identity(update.inbox_id.parse().expect("an inbox id")),
        Payload::KeyPackage(_) | Payload::CommitLogEntry(_) => {
            panic!("publish_on takes what doesn't name its topic")
        }
    }
}

/// `MLSMessage`: version, wire format, then the group id with its length.
fn group_of(data: &[u8]) -> GroupId {
    assert_eq!(data[4], 16, "a group id of 16 bytes");
    GroupId::from_bytes(data[5..21].try_into().expect("16 bytes"))
}

fn installation(bytes: &[u8]) -> InstallationKey {
    InstallationKey::from_bytes(bytes.try_into().expect("32 bytes"))
}
