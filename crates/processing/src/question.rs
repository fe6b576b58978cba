//! What a walk asks the database: whose attempt an envelope is, and whether verified identity states permit a commit.

use std::collections::BTreeSet;

use highwater_delivery::ConversationState;
use highwater_mls::{
    CommitFacts, Header, Input, InputFailure, Need, Resolution, Resolutions, StagedCommit, check_commit,
};
use highwater_outbox::{MatchedAttempt, MatchedIntent};
use highwater_receipt::PendingEnvelope;
use highwater_store::WriteTx;
use highwater_wire::{InboxId, PayloadIdentity, SequenceId};

use crate::disposition::{Disposition, HoldCause, OwnEcho, ProposalKnowledge, Reason, disposition, own_echo};
use crate::run::{Question, Run, Settled, Unsettled};
use crate::{ProcessingError, identity};

impl Run {
    /// Settles the envelope that the walk ended at.
    pub(crate) async fn answer(
        &mut self,
        tx: &mut WriteTx,
        question: Question,
        resolutions: &Resolutions,
    ) -> Result<(), ProcessingError> {
        let sequence_id = question.envelope.sequence_id;
        let settled = self.settle(tx, question, resolutions).await;
        self.take(sequence_id, settled)
    }

    async fn settle(
        &mut self,
        tx: &mut WriteTx,
        question: Question,
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        let Question { envelope, header, data, input } = question;
        match input {
            Ok(Input::Commit(staged)) => self.commit(tx, &envelope, staged, resolutions).await,
            Ok(_) => match self.matching(tx, &data).await? {
                None => Ok(Settled::Rejected(Reason::OwnWithoutAttempt)),
                Some(matched) => self.own(tx, &envelope, &header, &matched, resolutions).await,
            },
            Err(failure) => {
                self.trial.rollback_to_mark()?;
                match self.matching(tx, &data).await? {
                    Some(matched) => self.own(tx, &envelope, &header, &matched, resolutions).await,
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
        disposition(failure, knowledge).into()
    }

    /// Proposals recorded as delivered in this epoch must all still be in the MLS state.
    async fn proposal_knowledge(&mut self, tx: &mut WriteTx) -> Result<ProposalKnowledge, ProcessingError> {
        let delivered = self.effects.proposals_of(tx, self.trial.epoch()).await?;
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
        resolutions: &Resolutions,
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
                    self.effects.take().write(tx).await?;
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
            MatchedIntent::Change => self.own_commit(tx, envelope, matched, resolutions).await,
        }
    }

    /// The pending commit goes through the same checks as anyone's before it is merged.
    async fn own_commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        matched: &MatchedAttempt,
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        let Some(staged) = self.trial.own_pending_commit()? else {
            let cause = HoldCause::MissingState("the pending commit of an own attempt".into());
            return Err(Unsettled::Held(cause, Vec::new()));
        };
        let facts = staged.facts().clone();
        if let Err(reason) = self.check(tx, envelope, &facts, resolutions).await? {
            self.trial.clear_pending_commit()?;
            highwater_outbox::echo_rejected(tx, matched, reason.code()).await?;
            return Ok(Settled::Rejected(reason));
        }
        self.trial.merge_own(staged, envelope.sequence_id)?;
        self.effects.committed(tx, envelope, &facts).await?;
        highwater_outbox::echo_applied(tx, matched, envelope.sequence_id, envelope.server_ns, None).await?;
        Ok(Settled::Applied)
    }

    async fn commit(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        staged: StagedCommit,
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        let facts = staged.facts().clone();
        if let Err(reason) = self.check(tx, envelope, &facts, resolutions).await? {
            self.trial.rollback_to_mark()?;
            return Ok(Settled::Rejected(reason));
        }
        let merged = self.trial.merge(staged, envelope.sequence_id)?;
        self.effects.committed(tx, envelope, &facts).await?;
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
        resolutions: &Resolutions,
    ) -> Result<Result<(), Reason>, Unsettled> {
        let required = facts.required_identity();
        if required.iter().any(|(_, sequence_id)| *sequence_id >= envelope.sequence_id) {
            return Ok(Err(Reason::IdentityNotBefore));
        }
        let (snapshots, missing) = identity::snapshots(tx, required).await?;
        if !missing.is_empty() {
            return missing_identity(missing, resolutions).map(Err);
        }
        match check_commit(facts, envelope.sequence_id, &snapshots) {
            Ok(()) => Ok(Ok(())),
            Err(failure) => match disposition(&failure, ProposalKnowledge::Complete) {
                Disposition::Reject(reason) => Ok(Err(reason)),
                Disposition::Hold(cause) => Err(Unsettled::Held(cause, Vec::new())),
            },
        }
    }
}

fn missing_identity(
    missing: BTreeSet<(InboxId, SequenceId)>,
    resolutions: &Resolutions,
) -> Result<Reason, Unsettled> {
    let needs: Vec<_> =
        missing.into_iter().map(|(inbox, sequence_id)| Need::Identity { inbox, sequence_id }).collect();
    let absent = |need| matches!(resolutions.get(need), Some(Resolution::Permanent { .. }));
    if needs.iter().any(absent) {
        return Ok(Reason::IdentityAbsent);
    }
    Err(Unsettled::Held(HoldCause::Dependency("identity state".into()), needs))
}
