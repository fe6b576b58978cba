//! What a run of settled envelopes changes besides MLS state, gathered so that each table is written once.

use std::collections::BTreeSet;

use highwater_delivery::{MessageKind, NewMessage};
use highwater_mls::{CommitFacts, Components, Member};
use highwater_receipt::PendingEnvelope;
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::contents::{PlaintextEnvelope, plaintext_envelope};
use highwater_wire::{GroupId, MessageId, SequenceId, Topic};
use prost::Message as _;
use sqlx::{QueryBuilder, Row as _};

use crate::disposition::{Plaintext, ProposalKnowledge};
use crate::{ProcessingError, Reason, rejection};

pub(crate) struct Effects {
    group: GroupId,
    messages: Vec<NewMessage>,
    /// Which of `messages` are from somebody who was a super admin at that point of the topic.
    by_super_admin: Vec<bool>,
    rejected: Vec<(SequenceId, Reason)>,
    proposals: Vec<DeliveredProposal>,
}

/// A proposal that was applied: its epoch, its place, and what a commit would name it by.
struct DeliveredProposal {
    epoch: u64,
    sequence_id: SequenceId,
    reference: Vec<u8>,
}

impl Effects {
    pub(crate) fn new(group: GroupId) -> Self {
        Self {
            group,
            messages: Vec::new(),
            by_super_admin: Vec::new(),
            rejected: Vec::new(),
            proposals: Vec::new(),
        }
    }

    pub(crate) fn rejected(&mut self, sequence_id: SequenceId, reason: Reason) {
        self.rejected.push((sequence_id, reason));
    }

    pub(crate) fn proposal(&mut self, epoch: u64, sequence_id: SequenceId, reference: Vec<u8>) {
        self.proposals.push(DeliveredProposal { epoch, sequence_id, reference });
    }

    /// A decrypted application message. Its plaintext was authenticated, but may still be no message.
    pub(crate) fn received(
        &mut self,
        envelope: &PendingEnvelope,
        sender: &Member,
        plaintext: &[u8],
        components: &Components,
    ) -> Plaintext {
        let content = PlaintextEnvelope::decode(plaintext).map(|plaintext| plaintext.content);
        let v1 = match content {
            Ok(Some(plaintext_envelope::Content::V1(v1))) => v1,
            Ok(Some(plaintext_envelope::Content::V2(_))) => return Plaintext::Consumed,
            Ok(None) | Err(_) => return Plaintext::Malformed,
        };
        self.by_super_admin.push(components.super_admins.contains(&sender.inbox));
        self.messages.push(NewMessage {
            id: MessageId::derive(self.group, &v1.idempotency_key, &v1.content),
            group: self.group,
            kind: MessageKind::Application,
            sender_inbox: sender.inbox,
            sender_installation: Some(sender.installation),
            sent_ns: envelope.server_ns,
            idempotency_key: v1.idempotency_key,
            content: v1.content,
            sequence_id: Some(envelope.sequence_id),
            expires_ns: components.expiry(envelope.server_ns),
        });
        Plaintext::Message
    }

    /// An applied commit: its transcript, and the name it may have set.
    pub(crate) async fn committed(
        &mut self,
        tx: &mut WriteTx,
        topic: Topic,
        envelope: &PendingEnvelope,
        facts: &CommitFacts,
    ) -> Result<(), ProcessingError> {
        let content = facts.transcript();
        let key = envelope.sequence_id.get().to_string();
        self.by_super_admin.push(false);
        self.messages.push(NewMessage {
            id: MessageId::derive(self.group, &key, &content),
            group: self.group,
            kind: MessageKind::MembershipChange,
            sender_inbox: facts.committer.inbox,
            sender_installation: Some(facts.committer.installation),
            sent_ns: envelope.server_ns,
            idempotency_key: key,
            content,
            sequence_id: Some(envelope.sequence_id),
            expires_ns: None,
        });
        if facts.before.name != facts.after.name {
            highwater_delivery::set_name(tx, self.group, Some(&facts.after.name)).await?;
        }
        // The proposals of the epoch that ends are of no further use.
        self.proposals.clear();
        sqlx::query("DELETE FROM processing_proposals WHERE topic = ?")
            .bind(topic.to_bytes())
            .execute(tx.conn())
            .await?;
        Ok(())
    }

    /// Whether `stored` has every proposal that the prefix delivered in this epoch, this run included.
    pub(crate) async fn proposal_knowledge(
        &self,
        tx: &mut impl Reads,
        topic: Topic,
        epoch: u64,
        stored: &BTreeSet<Vec<u8>>,
    ) -> Result<ProposalKnowledge, ProcessingError> {
        let rows = sqlx::query("SELECT reference FROM processing_proposals WHERE topic = ? AND epoch = ?")
            .bind(topic.to_bytes())
            .bind(epoch.cast_signed())
            .fetch_all(tx.conn())
            .await?;
        let mut before = rows.iter().map(|row| row.get::<&[u8], _>(0));
        let mut in_this_run = self.proposals.iter().filter(|delivered| delivered.epoch == epoch);
        let complete = before.all(|reference| stored.contains(reference))
            && in_this_run.all(|delivered| stored.contains(&delivered.reference));
        Ok(if complete { ProposalKnowledge::Complete } else { ProposalKnowledge::Lost })
    }

    /// Writes what was gathered so far. Delivery numbers follow the topic's order, so this comes before anything that
    /// takes a number by itself.
    pub(crate) async fn flush(&mut self, tx: &mut WriteTx, topic: Topic) -> Result<(), ProcessingError> {
        if !self.messages.is_empty() {
            highwater_delivery::insert_published(tx, &self.messages).await?;
            for (message, by_super_admin) in self.messages.iter().zip(&self.by_super_admin) {
                highwater_delivery::apply_deletion(tx, message, *by_super_admin).await?;
            }
            self.messages.clear();
            self.by_super_admin.clear();
        }
        rejection::record(tx, topic, &self.rejected).await?;
        self.rejected.clear();
        if !self.proposals.is_empty() {
            let mut insert =
                QueryBuilder::new("INSERT INTO processing_proposals (topic, epoch, sequence_id, reference) ");
            insert.push_values(&self.proposals, |mut row, delivered| {
                row.push_bind(topic.to_bytes())
                    .push_bind(delivered.epoch.cast_signed())
                    .push_bind(delivered.sequence_id.as_i64())
                    .push_bind(delivered.reference.clone());
            });
            insert.build().execute(tx.conn()).await?;
            self.proposals.clear();
        }
        Ok(())
    }
}
