//! One bounded attempt: one transaction that takes the next pending envelopes of one topic or of several.

use std::time::{Duration, Instant};

use highwater_mls::{Need, Resolutions};
use highwater_store::Store;
use highwater_wire::{SequenceId, Topic, TopicKind};

use crate::{HoldCause, ProcessingError, group, identity};

/// How many envelopes one attempt handles at most: one load of each group, one commit.
pub const MAX_ATTEMPT_ROWS: u32 = 512;
/// How many topics one attempt takes at most.
pub const MAX_ATTEMPT_TOPICS: usize = 64;
/// After so long an attempt reads nothing more: whoever waits for the writer waits for one portion beyond it.
pub(crate) const MAX_ATTEMPT_TIME: Duration = Duration::from_millis(50);
/// How many envelopes are read, decrypted and stored at a time.
pub(crate) const PORTION_ROWS: u32 = 128;
/// How many bytes of envelopes are read at a time.
pub(crate) const PORTION_BYTES: u64 = 16 * 1024 * 1024;

/// What an attempt did to one topic.
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
    let mut reports = attempt_together(store, vec![topic], resolutions).await?;
    let (_, report) = reports.pop().expect("an attempt reaches the first of its topics");
    Ok(report)
}

/// [`attempt`] for several topics in one transaction: with short backlogs, most of an attempt is what it costs whatever
/// it does. The topics stay independent, a held head of one stops only that one.
///
/// The first topic is reached always; topics that the bounds left no room for aren't in the answer. Identity topics come
/// first: groups wait for them.
///
/// # Errors
/// [`ProcessingError`] when the attempt could not be carried out; nothing changed then, on none of the topics. Attempt
/// them one by one to find out whose fault it is.
pub async fn attempt_together(
    store: &Store,
    topics: Vec<Topic>,
    resolutions: Resolutions,
) -> Result<Vec<(Topic, Report)>, ProcessingError> {
    store
        .write("process", move |tx| {
            Box::pin(async move {
                let started = Instant::now();
                let mut reports = Vec::with_capacity(topics.len());
                let mut groups = Vec::new();
                for topic in topics {
                    match topic.kind() {
                        TopicKind::GroupMessage => groups.push(topic),
                        // A whole portion each: only the first is certain to be reached.
                        TopicKind::IdentityUpdate
                            if !reports.is_empty() && started.elapsed() >= MAX_ATTEMPT_TIME => {}
                        TopicKind::IdentityUpdate => {
                            reports.push((topic, identity::attempt(tx, topic, &resolutions).await?));
                        }
                        _ => return Err(ProcessingError::NotProcessed(topic)),
                    }
                }
                reports.extend(group::attempt(tx, &groups, &resolutions).await?);
                Ok(reports)
            })
        })
        .await
}
