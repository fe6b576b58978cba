//! What an operation still owes, computed from durable state alone (PROC-016).

use highwater_processing::ProcessedPosition;
use highwater_receipt::ReceivedPosition;
use highwater_wire::{Cursor, SequenceId, Topic, TopicKind};

/// Why an obligation is unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Its target could not be captured.
    TargetMissing(String),
    /// Envelopes up to the target are not here yet.
    NotReceived,
    /// Received, but the processor hasn't come to it yet.
    NotProcessed,
    /// No room for it: the kind's or the topic's pending budget is full.
    Capacity,
    /// The envelope at the head can be neither applied nor rejected.
    Held {
        /// The envelope.
        sequence_id: SequenceId,
        /// The stable code of the cause.
        code: String,
        /// The cause for people.
        detail: String,
        /// Whether waiting can cure it.
        transient: bool,
    },
    /// The backend could not supply it.
    Connection(String),
}

/// One topic of an operation, with its fixed target and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obligation {
    /// The topic.
    pub topic: Topic,
    /// H; absent while it isn't captured.
    pub target: Option<Cursor>,
    /// F.
    pub received: ReceivedPosition,
    /// P, for a group or identity topic.
    pub processed: Option<ProcessedPosition>,
    /// For a Welcome topic, the unresolved Welcomes at or below the target.
    pub unresolved: Vec<SequenceId>,
    /// Why it is unfinished.
    pub cause: Cause,
}

/// What the database says about one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) received: ReceivedPosition,
    pub(crate) processed: Option<ProcessedPosition>,
    pub(crate) unresolved: Vec<SequenceId>,
    /// The group is known and inactive here.
    pub(crate) inactive: bool,
}

/// Whether a topic's target is reached.
pub(crate) fn is_complete(topic: Topic, target: Cursor, progress: &Progress) -> bool {
    match topic.kind() {
        TopicKind::Welcome => progress.received.cursor() >= target && progress.unresolved.is_empty(),
        _ => {
            progress.inactive
                || target == Cursor::ZERO
                || progress.processed.is_some_and(|processed| processed.cursor() >= target)
        }
    }
}
