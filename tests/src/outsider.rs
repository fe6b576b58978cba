//! Whoever can reach a backend: reads what is there, and publishes what no client would.

use highwater_transport::{ConnectOptions, Connection};
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, client_envelope};
use highwater_wire::{Cursor, GroupId, OrderedPrefix, Topic};
use prost::Message as _;

/// A connection that belongs to no client.
pub struct Outsider {
    connection: Connection,
}

impl Outsider {
    /// Connects to a backend.
    pub fn connect(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectOptions::default()).expect("an endpoint");
        Self { connection }
    }

    /// Publishes MLS bytes on the topic that they name. `mark` makes envelopes of the same bytes different ones.
    /// Returns their ids.
    pub async fn publish(&self, data: impl IntoIterator<Item = Vec<u8>>, mark: u64) -> Vec<u64> {
        let envelope = |data| {
            let message = GroupMessage { data, sender_hmac: mark.to_be_bytes().to_vec(), should_push: false };
            ClientEnvelope { payload: Some(client_envelope::Payload::GroupMessage(message)) }
        };
        let envelopes = data.into_iter().map(|data| envelope(data).encode_to_vec().into()).collect();
        let receipts = self.connection.publish(envelopes).await.expect("the backend stores it");
        receipts.into_iter().map(|receipt| receipt.sequence_id.get()).collect()
    }

    /// What a read of a topic after an id brings, as a client could admit it.
    pub async fn prefix(&self, topic: Topic, after: u64) -> OrderedPrefix {
        let after = Cursor::try_from(after).expect("a position");
        let page = self.connection.query(&[(topic, after)], 1000).await.expect("a page");
        page.prefixes.into_iter().next().expect("something above it")
    }

    /// The ids and the MLS bytes of everything on a group's topic.
    pub async fn stored(&self, group: GroupId) -> Vec<(u64, Vec<u8>)> {
        let topic = Topic::group(group);
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut after = Cursor::ZERO;
        loop {
            let page = self.connection.query(&[(topic, after)], 1000).await.expect("a page");
            for envelope in page.prefixes.iter().flat_map(|prefix| prefix.envelopes()) {
                after = envelope.sequence_id().into();
                let payload = envelope.decode_payload().ok().and_then(|payload| payload.payload);
                let data = match payload {
                    Some(client_envelope::Payload::GroupMessage(message)) => message.data,
                    _ => Vec::new(),
                };
                found.push((envelope.sequence_id().get(), data));
            }
            if !page.has_more {
                return found;
            }
        }
    }
}

/// An MLS private message of a group's epoch that nobody wrote: its header is right, and nothing behind it decrypts.
pub fn garbage(group: GroupId, epoch: u64, filling: &[u8]) -> Vec<u8> {
    let mut data = vec![0, 1, 0, 2, 16];
    data.extend(group.as_bytes());
    data.extend(epoch.to_be_bytes());
    data.push(1);
    // No authenticated data, then sender data and ciphertext, each with its length.
    data.push(0);
    for part in [&[7; 12][..], filling] {
        let length = u8::try_from(part.len()).ok().filter(|length| *length < 64).expect("a short part");
        data.push(length);
        data.extend(part);
    }
    data
}
