//! Group topics: the ordered prefix of one conversation.

use std::collections::BTreeSet;

use highwater_delivery::ConversationState;
use highwater_mls::{
    CommitFacts, Header, Input, InputFailure, MessageType, Need, Resolution, Resolutions, StagedCommit,
    Trial, check_commit,
};
use highwater_outbox::{MatchedAttempt, MatchedIntent};
use highwater_receipt::PendingEnvelope;
use highwater_store::WriteTx;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{GroupId, InboxId, PayloadIdentity, SequenceId, Topic};
use prost::Message as _;

use crate::attempt::{Hold, MAX_ATTEMPT_BYTES, MAX_ATTEMPT_ROWS, Report, Stop};
use crate::disposition::{Disposition, HoldCause, OwnEcho, ProposalKnowledge, Reason, disposition, own_echo};
use crate::effects::Effects;
use crate::{ProcessingError, hold, identity, position};

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
        let cause = HoldCause::MissingState("the group's MLS state".into());
        hold::record(tx, topic, head.sequence_id, &cause).await?;
        let held = Hold { sequence_id: head.sequence_id, cause, needs: Vec::new() };
        return Ok(Report { applied: 0, rejected: 0, stop: Stop::Held(held) });
    };
    Run { topic, group, trial, effects: Effects::new(group), resolutions }.through(tx, &pending).await
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
            return Ok(Settled::Rejected(Reason::Malformed));
        };
        let header = match self.trial.header(&data) {
            Ok(header) => header,
            Err(failure) => return self.refuse(tx, &failure).await,
        };
        let input = if is_past_handshake(&header, self.trial.epoch()) {
            Err(InputFailure::PastEpoch)
        } else {
            self.trial.process(&data)
        };
        match input {
            Ok(Input::Application { sender, plaintext, .. }) => {
                let components = self.trial.components()?;
                Ok(self.effects.received(envelope, &sender, &plaintext, &components))
            }
            Ok(Input::Proposal { .. }) => {
                self.effects.proposal(self.trial.epoch(), envelope.sequence_id);
                Ok(Settled::Applied)
            }
            Ok(Input::Commit(staged)) => self.commit(tx, envelope, staged).await,
            Ok(Input::OwnMessage { .. }) => match self.matching(tx, &data).await? {
                None => Ok(Settled::Rejected(Reason::OwnWithoutAttempt)),
                Some(matched) => self.own(tx, envelope, &header, &matched).await,
            },
            Err(failure) => {
                self.trial.rollback_to_mark()?;
                match self.matching(tx, &data).await? {
                    Some(matched) => self.own(tx, envelope, &header, &matched).await,
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

    async fn refuse(&mut self, tx: &mut WriteTx, failure: &InputFailure) -> Result<Settled, Unsettled> {
        let knowledge = match failure {
            InputFailure::MissingProposal => self.proposal_knowledge(tx).await?,
            _ => ProposalKnowledge::Complete,
        };
        match disposition(failure, knowledge) {
            Disposition::Reject(reason) => {
                self.trial.rollback_to_mark()?;
                Ok(Settled::Rejected(reason))
            }
            Disposition::Hold(cause) => Err(Unsettled::Held(cause, Vec::new())),
        }
    }

    /// Proposals recorded as delivered in this epoch must all still be in the MLS state.
    async fn proposal_knowledge(&mut self, tx: &mut WriteTx) -> Result<ProposalKnowledge, ProcessingError> {
        let delivered = self.effects.proposals_of(tx, self.topic, self.trial.epoch()).await?;
        Ok(if self.trial.stored_proposals() >= delivered {
            ProposalKnowledge::Complete
        } else {
            ProposalKnowledge::Lost
        })
    }

    /// An own envelope read back (STR-113): the attempt supplies its content, the order its place.
    async fn own(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        header: &Header,
        matched: &MatchedAttempt,
    ) -> Result<Settled, Unsettled> {
        if !matched.current {
            return Ok(Settled::Rejected(Reason::OwnAlreadyHandled));
        }
        match matched.asked {
            MatchedIntent::Message(id) => match own_echo(self.trial.epoch(), matched.epoch) {
                OwnEcho::Stale => {
                    highwater_outbox::echo_stale(tx, matched).await?;
                    Ok(Settled::Rejected(Reason::OwnStale))
                }
                OwnEcho::Apply => {
                    self.effects.flush(tx, self.topic).await?;
                    let components = self.trial.components()?;
                    highwater_outbox::echo_applied(
                        tx,
                        matched,
                        envelope.sequence_id,
                        envelope.server_ns,
                        components.expiry(envelope.server_ns),
                    )
                    .await?;
                    if let Some(confirmed) = highwater_delivery::message(tx, id).await? {
                        let by_super_admin = components.super_admins.contains(&confirmed.sender_inbox);
                        highwater_delivery::apply_deletion(tx, &confirmed.into(), by_super_admin).await?;
                    }
                    Ok(Settled::Applied)
                }
            },
            MatchedIntent::Change if header.epoch != self.trial.epoch() => {
                highwater_outbox::echo_stale(tx, matched).await?;
                Ok(Settled::Rejected(Reason::PastEpoch))
            }
            MatchedIntent::Change => self.own_commit(tx, envelope, matched).await,
        }
    }

    /// The pending commit goes through the same checks as anyone's before it is merged.
    async fn own_commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        matched: &MatchedAttempt,
    ) -> Result<Settled, Unsettled> {
        let Some(staged) = self.trial.own_pending_commit()? else {
            let cause = HoldCause::MissingState("the pending commit of an own attempt".into());
            return Err(Unsettled::Held(cause, Vec::new()));
        };
        let facts = staged.facts().clone();
        if let Err(reason) = self.check(tx, envelope, &facts).await? {
            self.trial.clear_pending_commit()?;
            highwater_outbox::echo_rejected(tx, matched, reason.code()).await?;
            return Ok(Settled::Rejected(reason));
        }
        self.trial.merge_own(staged, envelope.sequence_id)?;
        self.effects.committed(tx, self.topic, envelope, &facts).await?;
        highwater_outbox::echo_applied(tx, matched, envelope.sequence_id, envelope.server_ns, None).await?;
        Ok(Settled::Applied)
    }

    async fn commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        staged: StagedCommit,
    ) -> Result<Settled, Unsettled> {
        let facts = staged.facts().clone();
        if let Err(reason) = self.check(tx, envelope, &facts).await? {
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

    /// Checks a commit against verified identity states and the policy of groups. `Err` inside is a terminal reason.
    async fn check(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        facts: &CommitFacts,
    ) -> Result<Result<(), Reason>, Unsettled> {
        let required = facts.required_identity();
        if required.iter().any(|(_, sequence_id)| *sequence_id >= envelope.sequence_id) {
            return Ok(Err(Reason::IdentityNotBefore));
        }
        let (snapshots, missing) = identity::snapshots(tx, required).await?;
        if !missing.is_empty() {
            return self.missing_identity(missing).map(Err);
        }
        match check_commit(facts, envelope.sequence_id, &snapshots) {
            Ok(()) => Ok(Ok(())),
            Err(failure) => match disposition(&failure, ProposalKnowledge::Complete) {
                Disposition::Reject(reason) => Ok(Err(reason)),
                Disposition::Hold(cause) => Err(Unsettled::Held(cause, Vec::new())),
            },
        }
    }

    fn missing_identity(&self, missing: BTreeSet<(InboxId, SequenceId)>) -> Result<Reason, Unsettled> {
        let needs: Vec<_> =
            missing.into_iter().map(|(inbox, sequence_id)| Need::Identity { inbox, sequence_id }).collect();
        let absent = |need| matches!(self.resolutions.get(need), Some(Resolution::Permanent { .. }));
        if needs.iter().any(absent) {
            return Ok(Reason::IdentityAbsent);
        }
        Err(Unsettled::Held(HoldCause::Dependency("identity state".into()), needs))
    }
}

/// Only application messages have a window of past epochs; and MLS itself would call both directions a wrong epoch.
fn is_past_handshake(header: &Header, epoch: u64) -> bool {
    header.epoch < epoch && header.kind != MessageType::Application
}

fn group_message(envelope: &PendingEnvelope) -> Option<Vec<u8>> {
    match ClientEnvelope::decode(envelope.payload.as_ref()).ok()?.payload? {
        client_envelope::Payload::GroupMessage(message) => Some(message.data),
        _ => None,
    }
}
