//! What a walk asks the database: whose attempt an envelope is, and whether verified identity states permit a commit.

use highwater_delivery::ConversationState;
use highwater_mls::{
    CommitFacts, Input, InputFailure, Need, Resolution, Resolutions, StagedCommit, check_commit,
};
use highwater_outbox::{MatchedAttempt, MatchedIntent};
use highwater_receipt::PendingEnvelope;
use highwater_store::WriteTx;
use highwater_wire::PayloadIdentity;

use crate::disposition::{Evidence, GroupInput, OwnAttempt, ProposalKnowledge};
use crate::run::{Question, Run, Settled, Unsettled};
use crate::{ProcessingError, Reason, identity};

impl Run {
    /// Settles the envelope that the walk ended at.
    pub(crate) async fn answer(
        &mut self,
        tx: &mut WriteTx,
        question: Question,
        resolutions: &Resolutions,
    ) -> Result<(), ProcessingError> {
        let sequence_id = question.envelope.sequence_id;
        let settled = self.ask(tx, question, resolutions).await;
        self.take(sequence_id, settled)
    }

    async fn ask(
        &mut self,
        tx: &mut WriteTx,
        question: Question,
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        let Question { envelope, data, input } = question;
        let failure = match input {
            Ok(Input::Commit(staged)) => return self.commit(tx, &envelope, staged, resolutions).await,
            Ok(_) => None,
            Err(failure) => {
                self.trial.rollback_to_mark()?;
                Some(failure)
            }
        };
        let identity = PayloadIdentity::of(&data);
        match (highwater_outbox::matching(tx, self.group, identity).await?, failure) {
            (Some(matched), failure) => {
                self.own(tx, &envelope, &matched, failure.as_ref(), resolutions).await
            }
            (None, Some(failure)) => self.refuse(tx, &failure).await,
            (None, None) => Ok(self.decide(&GroupInput::OwnClaim)?.into()),
        }
    }

    /// An envelope that MLS refused and that is of no own attempt. The trial is as it was before it.
    async fn refuse(&mut self, tx: &mut WriteTx, failure: &InputFailure) -> Result<Settled, Unsettled> {
        let proposals = match failure {
            InputFailure::MissingProposal => {
                let stored = self.trial.stored_proposals();
                self.effects.proposal_knowledge(tx, self.trial.epoch(), &stored).await?
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
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        if !matched.current {
            return Ok(self.decide(&GroupInput::Own(OwnAttempt::Handled, failure))?.into());
        }
        let MatchedIntent::Message(id) = matched.asked else {
            return self.own_commit(tx, envelope, matched, failure, resolutions).await;
        };
        let attempt = OwnAttempt::Message { prepared: matched.epoch };
        if let Err(reason) = self.decide(&GroupInput::Own(attempt, failure))? {
            return self.own_refused(tx, matched, reason).await;
        }
        self.effects.take().write(tx).await?;
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
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        // What waits in the MLS state is of this epoch, so it is no other epoch's commit.
        let of_this_epoch = matched.epoch == self.trial.epoch();
        let staged = if of_this_epoch { self.trial.own_pending_commit()? } else { None };
        let (evidence, needs) = match &staged {
            Some(staged) => {
                let (evidence, needs) = evidence(tx, envelope, staged.facts(), resolutions).await?;
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
        self.effects.committed(tx, envelope, &facts).await?;
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
        resolutions: &Resolutions,
    ) -> Result<Settled, Unsettled> {
        let facts = staged.facts().clone();
        let (evidence, needs) = evidence(tx, envelope, &facts, resolutions).await?;
        let input = GroupInput::Commit(&evidence);
        if let Err(reason) = self.decide_knowing(&input, ProposalKnowledge::Complete, needs)? {
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
}

/// How a commit stands against verified identity states and the rules of groups, and what it still needs.
async fn evidence(
    tx: &mut WriteTx,
    envelope: &PendingEnvelope,
    facts: &CommitFacts,
    resolutions: &Resolutions,
) -> Result<(Evidence, Vec<Need>), ProcessingError> {
    let required = facts.required_identity();
    if required.iter().any(|(_, sequence_id)| *sequence_id >= envelope.sequence_id) {
        return Ok((Evidence::NotBefore, Vec::new()));
    }
    let (snapshots, missing) = identity::snapshots(tx, required).await?;
    if !missing.is_empty() {
        let needs: Vec<_> =
            missing.into_iter().map(|(inbox, sequence_id)| Need::Identity { inbox, sequence_id }).collect();
        let absent = |need| matches!(resolutions.get(need), Some(Resolution::Permanent { .. }));
        let absent = needs.iter().any(absent);
        return Ok((if absent { Evidence::Absent } else { Evidence::Awaited }, needs));
    }
    let evidence = match check_commit(facts, envelope.sequence_id, &snapshots) {
        Ok(()) => Evidence::Complete,
        Err(failure) => Evidence::Refused(failure),
    };
    Ok((evidence, Vec::new()))
}
