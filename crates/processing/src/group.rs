//! Group topics: the ordered prefix of one conversation.

use highwater_delivery::ConversationState;
use highwater_mls::{
    CommitFacts, Input, InputFailure, Need, Resolution, Resolutions, StagedCommit, Trial, check_commit,
};
use highwater_outbox::{MatchedAttempt, MatchedIntent};
use highwater_receipt::PendingEnvelope;
use highwater_store::WriteTx;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{GroupId, PayloadIdentity, SequenceId, Topic};
use prost::Message as _;

use crate::attempt::{Hold, MAX_ATTEMPT_BYTES, MAX_ATTEMPT_ROWS, Report, Stop};
use crate::disposition::{self, Disposition, Evidence, GroupInput, OwnAttempt, Prefix, ProposalKnowledge};
use crate::effects::Effects;
use crate::{HoldCause, ProcessingError, Reason, hold, identity, position};

pub(crate) async fn attempt(
    tx: &mut WriteTx,
    topic: Topic,
    resolutions: Resolutions,
) -> Result<Report, ProcessingError> {
    let group = topic.group_id().ok_or(ProcessingError::NotProcessed(topic))?;
    let inactive = Report { applied: 0, rejected: 0, stop: Stop::Inactive };
    match highwater_delivery::conversation(tx, group).await? {
        Some(found) if found.state == ConversationState::Active => {}
        _ => return Ok(inactive),
    }
    let pending = highwater_receipt::pending(tx, topic, MAX_ATTEMPT_ROWS, MAX_ATTEMPT_BYTES).await?;
    let Some(head) = pending.first() else {
        hold::clear(tx, topic).await?;
        return Ok(Report { applied: 0, rejected: 0, stop: Stop::Drained });
    };
    let Some(trial) = Trial::load(tx, group).await? else {
        return without_state(tx, topic, head.sequence_id).await;
    };
    Run { topic, group, trial, effects: Effects::new(group), resolutions }.through(tx, &pending).await
}

async fn without_state(tx: &mut WriteTx, topic: Topic, head: SequenceId) -> Result<Report, ProcessingError> {
    let prefix = Prefix { epoch: 0, proposals: ProposalKnowledge::Complete };
    let Disposition::Hold(cause) = disposition::group(&GroupInput::NoState, prefix) else {
        return Err(ProcessingError::Damaged("the group's MLS state"));
    };
    hold::record(tx, topic, head, &cause).await?;
    let held = Hold { sequence_id: head, cause, needs: Vec::new() };
    Ok(Report { applied: 0, rejected: 0, stop: Stop::Held(held) })
}

/// What an attempt knows while it walks the pending prefix.
struct Run {
    topic: Topic,
    group: GroupId,
    trial: Trial,
    effects: Effects,
    resolutions: Resolutions,
}

/// How one envelope was settled.
pub(crate) enum Settled {
    Applied,
    /// Applied, and it removed this installation.
    Removed,
    Rejected(Reason),
}

/// Why one envelope was not settled.
enum Unsettled {
    Held(HoldCause, Vec<Need>),
    Failed(ProcessingError),
}

impl<E: Into<ProcessingError>> From<E> for Unsettled {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Run {
    /// Settles envelopes from the head on, until one can't be settled, and commits what was.
    async fn through(
        mut self,
        tx: &mut WriteTx,
        pending: &[PendingEnvelope],
    ) -> Result<Report, ProcessingError> {
        let mut report = Report { applied: 0, rejected: 0, stop: Stop::Drained };
        let mut handled = None;
        for envelope in pending {
            self.trial.mark()?;
            match self.settle(tx, envelope).await {
                Ok(Settled::Rejected(reason)) => {
                    tracing::debug!(topic = ?self.topic, sequence_id = envelope.sequence_id.get(), code = reason.code(), "rejected");
                    report.rejected += 1;
                    self.effects.rejected(envelope.sequence_id, reason);
                }
                Ok(settled) => {
                    report.applied += 1;
                    if let Settled::Removed = settled {
                        report.stop = Stop::Inactive;
                    }
                }
                Err(Unsettled::Held(cause, needs)) => {
                    self.trial.rollback_to_mark()?;
                    let sequence_id = envelope.sequence_id;
                    report.stop = Stop::Held(Hold { sequence_id, cause, needs });
                    break;
                }
                Err(Unsettled::Failed(error)) => return Err(error),
            }
            handled = Some(envelope.sequence_id);
            if report.stop == Stop::Inactive {
                break;
            }
        }
        if report.stop == Stop::Drained && pending.len() == MAX_ATTEMPT_ROWS as usize {
            report.stop = Stop::More;
        }
        self.finish(tx, handled, &report.stop).await?;
        Ok(report)
    }

    /// Everything the attempt changed, with the P that covers it (PROC-008).
    async fn finish(
        mut self,
        tx: &mut WriteTx,
        handled: Option<SequenceId>,
        stop: &Stop,
    ) -> Result<(), ProcessingError> {
        self.effects.flush(tx, self.topic).await?;
        if let Some(through) = handled {
            self.trial.store(tx).await?;
            position::advance(tx, self.topic, through).await?;
            highwater_receipt::settle_through(tx, self.topic, through).await?;
        }
        match stop {
            Stop::Held(head) => hold::record(tx, self.topic, head.sequence_id, &head.cause).await,
            _ => Ok(()),
        }
    }

    async fn settle(&mut self, tx: &mut WriteTx, envelope: &PendingEnvelope) -> Result<Settled, Unsettled> {
        let Some(data) = group_message(envelope) else {
            return Ok(self.decide(&GroupInput::NoGroupMessage)?.into());
        };
        if let Err(failure) = self.trial.header(&data) {
            return self.refuse(tx, &failure).await;
        }
        match self.trial.process(&data) {
            Ok(Input::Application { sender, plaintext, .. }) => {
                let components = self.trial.components()?;
                let read = self.effects.received(envelope, &sender, &plaintext, &components);
                Ok(self.decide(&GroupInput::Application(read))?.into())
            }
            Ok(Input::Proposal { reference, .. }) => {
                self.effects.proposal(self.trial.epoch(), envelope.sequence_id, reference);
                Ok(self.decide(&GroupInput::Proposal)?.into())
            }
            Ok(Input::Commit(staged)) => self.commit(tx, envelope, staged).await,
            Ok(Input::OwnMessage { .. }) => match self.matching(tx, &data).await? {
                None => Ok(self.decide(&GroupInput::OwnClaim)?.into()),
                Some(matched) => self.own(tx, envelope, &matched, None).await,
            },
            Err(failure) => {
                self.trial.rollback_to_mark()?;
                match self.matching(tx, &data).await? {
                    Some(matched) => self.own(tx, envelope, &matched, Some(&failure)).await,
                    None => self.refuse(tx, &failure).await,
                }
            }
        }
    }

    async fn matching(
        &mut self,
        tx: &mut WriteTx,
        data: &[u8],
    ) -> Result<Option<MatchedAttempt>, ProcessingError> {
        Ok(highwater_outbox::matching(tx, self.group, PayloadIdentity::of(data)).await?)
    }

    /// Asks the table. `Err` inside is a terminal reason.
    fn decide(&self, input: &GroupInput<'_>) -> Result<Result<(), Reason>, Unsettled> {
        self.decide_knowing(input, ProposalKnowledge::Complete, Vec::new())
    }

    fn decide_knowing(
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

    /// An envelope that MLS refused and that is of no own attempt. The trial is as it was before it.
    async fn refuse(&mut self, tx: &mut WriteTx, failure: &InputFailure) -> Result<Settled, Unsettled> {
        let proposals = match failure {
            InputFailure::MissingProposal => {
                let stored = self.trial.stored_proposals();
                self.effects.proposal_knowledge(tx, self.topic, self.trial.epoch(), &stored).await?
            }
            _ => ProposalKnowledge::Complete,
        };
        Ok(self.decide_knowing(&GroupInput::Failed(failure), proposals, Vec::new())?.into())
    }

    /// An own envelope read back (STR-113): the attempt supplies its content, the order its place.
    async fn own(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        matched: &MatchedAttempt,
        failure: Option<&InputFailure>,
    ) -> Result<Settled, Unsettled> {
        if !matched.current {
            return Ok(self.decide(&GroupInput::Own(OwnAttempt::Handled, failure))?.into());
        }
        let MatchedIntent::Message(id) = matched.asked else {
            return self.own_commit(tx, envelope, matched, failure).await;
        };
        let attempt = OwnAttempt::Message { prepared: matched.epoch };
        if let Err(reason) = self.decide(&GroupInput::Own(attempt, failure))? {
            return self.own_refused(tx, matched, reason).await;
        }
        self.effects.flush(tx, self.topic).await?;
        let components = self.trial.components()?;
        let (at, server_ns) = (envelope.sequence_id, envelope.server_ns);
        highwater_outbox::echo_applied(tx, matched, at, server_ns, components.expiry(server_ns)).await?;
        if let Some(confirmed) = highwater_delivery::message(tx, id).await? {
            let by_super_admin = components.super_admins.contains(&confirmed.sender_inbox);
            highwater_delivery::apply_deletion(tx, &confirmed.into(), by_super_admin).await?;
        }
        Ok(Settled::Applied)
    }

    /// The pending commit goes through the same checks as anyone's before it is merged.
    async fn own_commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        matched: &MatchedAttempt,
        failure: Option<&InputFailure>,
    ) -> Result<Settled, Unsettled> {
        // What waits in the MLS state is of this epoch, so it is no other epoch's commit.
        let of_this_epoch = matched.epoch == self.trial.epoch();
        let staged = if of_this_epoch { self.trial.own_pending_commit()? } else { None };
        let (evidence, needs) = match &staged {
            Some(staged) => {
                let (evidence, needs) = self.evidence(tx, envelope, staged.facts()).await?;
                (Some(evidence), needs)
            }
            None => (None, Vec::new()),
        };
        let attempt = OwnAttempt::Change { prepared: matched.epoch, pending: evidence.as_ref() };
        let input = GroupInput::Own(attempt, failure);
        if let Err(reason) = self.decide_knowing(&input, ProposalKnowledge::Complete, needs)? {
            return self.own_refused(tx, matched, reason).await;
        }
        let staged = staged.ok_or(ProcessingError::Damaged("an own pending commit"))?;
        let facts = staged.facts().clone();
        self.trial.merge_own(staged, envelope.sequence_id)?;
        self.effects.committed(tx, self.topic, envelope, &facts).await?;
        highwater_outbox::echo_applied(tx, matched, envelope.sequence_id, envelope.server_ns, None).await?;
        Ok(Settled::Applied)
    }

    /// An attempt that only came too late is prepared again; one that is wrong ends its intent.
    async fn own_refused(
        &mut self,
        tx: &mut WriteTx,
        matched: &MatchedAttempt,
        reason: Reason,
    ) -> Result<Settled, Unsettled> {
        match reason {
            Reason::OwnStale | Reason::PastEpoch => highwater_outbox::echo_stale(tx, matched).await?,
            _ => {
                if matched.asked == MatchedIntent::Change {
                    self.trial.clear_pending_commit()?;
                }
                highwater_outbox::echo_rejected(tx, matched, reason.code()).await?;
            }
        }
        Ok(Settled::Rejected(reason))
    }

    async fn commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        staged: StagedCommit,
    ) -> Result<Settled, Unsettled> {
        let facts = staged.facts().clone();
        let (evidence, needs) = self.evidence(tx, envelope, &facts).await?;
        let input = GroupInput::Commit(&evidence);
        if let Err(reason) = self.decide_knowing(&input, ProposalKnowledge::Complete, needs)? {
            self.trial.rollback_to_mark()?;
            return Ok(Settled::Rejected(reason));
        }
        let merged = self.trial.merge(staged, envelope.sequence_id)?;
        self.effects.committed(tx, self.topic, envelope, &facts).await?;
        if merged.removed_self {
            highwater_delivery::set_state(tx, self.group, ConversationState::Inactive).await?;
            highwater_outbox::membership_ended(tx, self.group).await?;
            return Ok(Settled::Removed);
        }
        highwater_outbox::epoch_advanced(tx, self.group).await?;
        Ok(Settled::Applied)
    }

    /// How a commit stands against verified identity states and the rules of groups, and what it still needs.
    async fn evidence(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        facts: &CommitFacts,
    ) -> Result<(Evidence, Vec<Need>), ProcessingError> {
        let required = facts.required_identity();
        if required.iter().any(|(_, sequence_id)| *sequence_id >= envelope.sequence_id) {
            return Ok((Evidence::NotBefore, Vec::new()));
        }
        let (snapshots, missing) = identity::snapshots(tx, required).await?;
        if !missing.is_empty() {
            let needs: Vec<_> = missing
                .into_iter()
                .map(|(inbox, sequence_id)| Need::Identity { inbox, sequence_id })
                .collect();
            let absent = |need| matches!(self.resolutions.get(need), Some(Resolution::Permanent { .. }));
            let absent = needs.iter().any(absent);
            return Ok((if absent { Evidence::Absent } else { Evidence::Awaited }, needs));
        }
        let evidence = match check_commit(facts, envelope.sequence_id, &snapshots) {
            Ok(()) => Evidence::Complete,
            Err(failure) => Evidence::Refused(failure),
        };
        Ok((evidence, Vec::new()))
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

fn group_message(envelope: &PendingEnvelope) -> Option<Vec<u8>> {
    match ClientEnvelope::decode(envelope.payload.as_ref()).ok()?.payload? {
        client_envelope::Payload::GroupMessage(message) => Some(message.data),
        _ => None,
    }
}
