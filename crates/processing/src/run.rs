//! One group's part of an attempt: the walk along its pending prefix, as far as that needs no database.

use std::collections::VecDeque;

use highwater_mls::{Input, InputFailure, Need, Trial};
use highwater_receipt::{PendingEnvelope, PendingPart};
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{Cursor, GroupId, SequenceId, Topic};
use prost::Message as _;

use crate::attempt::{Hold, Report, Stop};
use crate::disposition::{self, Disposition, GroupInput, Prefix, ProposalKnowledge};
use crate::effects::Effects;
use crate::{HoldCause, ProcessingError, Reason};

/// What an attempt knows of one group while it walks the pending prefix.
pub(crate) struct Run {
    pub(crate) topic: Topic,
    pub(crate) group: GroupId,
    pub(crate) trial: Trial,
    pub(crate) effects: Effects,
    /// What was read and isn't settled.
    pending: VecDeque<PendingEnvelope>,
    last_read: Cursor,
    /// How many more are pending above that.
    left: u64,
    applied: u32,
    rejected: u32,
    /// The last envelope that was settled.
    handled: Option<SequenceId>,
    ended: Option<Stop>,
    question: Option<Question>,
}

/// An envelope that only the database can settle, and what MLS made of it.
pub(crate) struct Question {
    pub(crate) envelope: PendingEnvelope,
    /// The MLS message.
    pub(crate) data: Vec<u8>,
    pub(crate) input: Result<Input, InputFailure>,
}

/// How one envelope was settled.
pub(crate) enum Settled {
    Applied,
    /// Applied, and it removed this installation.
    Removed,
    Rejected(Reason),
}

/// Why one envelope was not settled.
pub(crate) enum Unsettled {
    Held(HoldCause, Vec<Need>),
    Failed(ProcessingError),
}

impl<E: Into<ProcessingError>> From<E> for Unsettled {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Result<(), Reason>> for Settled {
    fn from(decided: Result<(), Reason>) -> Self {
        match decided {
            Ok(()) => Self::Applied,
            Err(reason) => Self::Rejected(reason),
        }
    }
}

impl Run {
    pub(crate) fn new(group: GroupId, trial: Trial, part: PendingPart) -> Self {
        let PendingPart { topic, envelopes, left } = part;
        Self {
            topic,
            group,
            trial,
            effects: Effects::new(topic, group),
            last_read: envelopes.last().map_or(Cursor::ZERO, |last| last.sequence_id.into()),
            pending: envelopes.into(),
            left,
            applied: 0,
            rejected: 0,
            handled: None,
            ended: None,
            question: None,
        }
    }

    /// Settles envelopes until all that were read are settled, one can't be, or one is a question for the database.
    pub(crate) fn walk(&mut self) -> Result<(), ProcessingError> {
        while self.question.is_none() && self.ended.is_none() {
            let Some(envelope) = self.pending.pop_front() else { break };
            self.trial.mark()?;
            if let Some(settled) = self.read(&envelope) {
                self.take(envelope.sequence_id, settled)?;
            }
        }
        Ok(())
    }

    /// Settles one envelope by itself, or turns it into a question.
    fn read(&mut self, envelope: &PendingEnvelope) -> Option<Result<Settled, Unsettled>> {
        let Some(data) = group_message(envelope) else {
            return Some(self.settle(&GroupInput::NoGroupMessage));
        };
        if let Err(failure) = self.trial.header(&data) {
            return Some(self.settle(&GroupInput::Failed(&failure)));
        }
        match self.trial.process(&data) {
            Ok(Input::Application { sender, plaintext, .. }) => Some(match self.trial.components() {
                Ok(components) => {
                    let read = self.effects.received(envelope, &sender, &plaintext, &components);
                    self.settle(&GroupInput::Application(read))
                }
                Err(error) => Err(error.into()),
            }),
            Ok(Input::Proposal { reference, .. }) => {
                self.effects.proposal(self.trial.epoch(), envelope.sequence_id, reference);
                Some(self.settle(&GroupInput::Proposal))
            }
            input => {
                self.question = Some(Question { envelope: envelope.clone(), data, input });
                None
            }
        }
    }

    fn settle(&self, input: &GroupInput<'_>) -> Result<Settled, Unsettled> {
        Ok(self.decide(input)?.into())
    }

    /// Asks the table. `Err` inside is a terminal reason.
    pub(crate) fn decide(&self, input: &GroupInput<'_>) -> Result<Result<(), Reason>, Unsettled> {
        self.decide_knowing(input, ProposalKnowledge::Complete, Vec::new())
    }

    pub(crate) fn decide_knowing(
        &self,
        input: &GroupInput<'_>,
        proposals: ProposalKnowledge,
        needs: Vec<Need>,
    ) -> Result<Result<(), Reason>, Unsettled> {
        match disposition::group(input, Prefix { epoch: self.trial.epoch(), proposals }) {
            Disposition::Apply => Ok(Ok(())),
            Disposition::Reject(reason) => Ok(Err(reason)),
            Disposition::Hold(cause) => Err(Unsettled::Held(cause, needs)),
        }
    }

    /// Takes note of how an envelope was settled, or that it wasn't: then nothing of it stays.
    ///
    /// # Errors
    /// When the attempt can't go on; its transaction must be rolled back.
    pub(crate) fn take(
        &mut self,
        sequence_id: SequenceId,
        settled: Result<Settled, Unsettled>,
    ) -> Result<(), ProcessingError> {
        match settled {
            Ok(Settled::Rejected(reason)) => {
                tracing::debug!(topic = ?self.topic, %sequence_id, code = reason.code(), "rejected");
                self.rejected += 1;
                self.effects.rejected(sequence_id, reason);
            }
            Ok(Settled::Applied) => self.applied += 1,
            Ok(Settled::Removed) => {
                self.applied += 1;
                self.ended = Some(Stop::Inactive);
            }
            Err(Unsettled::Held(cause, needs)) => {
                self.trial.rollback_to_mark()?;
                self.ended = Some(Stop::Held(Hold { sequence_id, cause, needs }));
                return Ok(());
            }
            Err(Unsettled::Failed(error)) => return Err(error),
        }
        self.handled = Some(sequence_id);
        Ok(())
    }

    /// The question that the walk ended at, if it did.
    pub(crate) fn question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// Whether more of this group's prefix is to be read.
    pub(crate) fn wants_more(&self) -> bool {
        self.ended.is_none() && self.left > 0
    }

    /// Up to where the prefix was read.
    pub(crate) fn last_read(&self) -> Cursor {
        self.last_read
    }

    /// Takes the next envelopes of the prefix.
    pub(crate) fn feed(&mut self, more: Vec<PendingEnvelope>) {
        self.last_read = more.last().map_or(self.last_read, |last| last.sequence_id.into());
        self.left = self.left.saturating_sub(more.len() as u64);
        self.pending.extend(more);
    }

    /// Through where the prefix is settled, if anything was.
    pub(crate) fn handled(&self) -> Option<SequenceId> {
        self.handled
    }

    pub(crate) fn report(&self) -> Report {
        let open = if self.left > 0 { Stop::More } else { Stop::Drained };
        Report { applied: self.applied, rejected: self.rejected, stop: self.ended.clone().unwrap_or(open) }
    }
}

fn group_message(envelope: &PendingEnvelope) -> Option<Vec<u8>> {
    match ClientEnvelope::decode(envelope.payload.as_ref()).ok()?.payload? {
        client_envelope::Payload::GroupMessage(message) => Some(message.data),
        _ => None,
    }
}
