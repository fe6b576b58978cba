use highwater_outbox::Outcome;
use highwater_wire::MessageId;

/// A message that was handed to the outbox, and what became of it by the time the call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message, the same on every client.
    pub message_id: MessageId,
    /// What became of it. [`Outcome::Queued`] means that it is durable and goes out with the next connection.
    pub outcome: Outcome,
}
