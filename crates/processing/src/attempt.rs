//! One bounded attempt at one topic.

use highwater_mls::{Need, Resolutions};
use highwater_store::Store;
use highwater_wire::{SequenceId, Topic, TopicKind};

use crate::{HoldCause, ProcessingError, group, identity};

/// How many envelopes one attempt handles at most: one load, one commit.
pub const MAX_ATTEMPT_ROWS: u32 = 128;
/// How many bytes of envelopes one attempt reads at most.
pub(crate) const MAX_ATTEMPT_BYTES: u64 = 32 * 1024 * 1024;

/// What an attempt did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Envelopes applied.
    pub applied: u32,
    /// Envelopes terminally rejected.
    pub rejected: u32,
    /// Why it ended where it did.
    pub stop: Stop,
}

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing is pending any more.
    Drained,
    /// The bound was reached; more is pending.
    More,
    /// The head can be neither applied nor rejected now.
    Held(Hold),
    /// The group isn't active here; its pending envelopes stay untouched.
    Inactive,
}

/// A held head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The envelope.
    pub sequence_id: SequenceId,
    /// Why.
    pub cause: HoldCause,
    /// What would help, if something from outside would.
    pub needs: Vec<Need>,
}

/// Attempts the next pending envelopes of a topic, in one transaction on fresh state (STR-070, STR-071).
///
/// `resolutions` answers the needs of an earlier attempt. Dropping the future doesn't split the transaction: it
/// commits or rolls back as a whole.
///
/// # Errors
/// [`ProcessingError`] when the attempt could not be carried out; nothing changed then.
pub async fn attempt(
    store: &Store,
    topic: Topic,
    resolutions: Resolutions,
) -> Result<Report, ProcessingError> {
    match topic.kind() {
        TopicKind::GroupMessage => {
            store.write("process group", move |tx| Box::pin(group::attempt(tx, topic, resolutions))).await
        }
        TopicKind::IdentityUpdate => {
            store
                .write("process identity", move |tx| Box::pin(identity::attempt(tx, topic, resolutions)))
                .await
        }
        _ => Err(ProcessingError::NotProcessed(topic)),
    }
}
