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

/// The effects of one group's envelopes, in topic order.
pub(crate) struct Effects {
    topic: Topic,
    group: GroupId,
    gathered: Gathered,
}

impl Effects {
    pub(crate) fn new(topic: Topic, group: GroupId) -> Self {
        Self { topic, group, gathered: Gathered::default() }
    }

    /// What was gathered and isn't written yet. Who takes it writes it before anything later of the same topic.
    pub(crate) fn take(&mut self) -> Gathered {
        std::mem::take(&mut self.gathered)
    }

    pub(crate) fn rejected(&mut self, sequence_id: SequenceId, reason: Reason) {
        self.gathered.rejected.push((self.topic, sequence_id, reason));
    }

    pub(crate) fn proposal(&mut self, epoch: u64, sequence_id: SequenceId, reference: Vec<u8>) {
        let topic = self.topic;
        self.gathered.proposals.push(DeliveredProposal { topic, epoch, sequence_id, reference });
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
        let by_super_admin = components.super_admins.contains(&sender.inbox);
        self.gathered.message(
            by_super_admin,
            NewMessage {
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
            },
        );
        Plaintext::Message
    }

    /// An applied commit: its transcript, and the name it may have set.
    pub(crate) async fn committed(
        &mut self,
        tx: &mut WriteTx,
        envelope: &PendingEnvelope,
        facts: &CommitFacts,
    ) -> Result<(), ProcessingError> {
        let content = facts.transcript();
        let key = envelope.sequence_id.get().to_string();
        self.gathered.message(
            false,
            NewMessage {
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
            },
        );
        if facts.before.name != facts.after.name {
            highwater_delivery::set_name(tx, self.group, Some(&facts.after.name)).await?;
        }
        // The proposals of the epoch that ends are of no further use.
        self.gathered.proposals.clear();
        sqlx::query("DELETE FROM processing_proposals WHERE topic = ?")
            .bind(self.topic.to_bytes())
            .execute(tx.conn())
            .await?;
        Ok(())
    }

    /// Whether `stored` has every proposal that the prefix delivered in this epoch, this run included.
    pub(crate) async fn proposal_knowledge(
        &self,
        tx: &mut impl Reads,
        epoch: u64,
        stored: &BTreeSet<Vec<u8>>,
    ) -> Result<ProposalKnowledge, ProcessingError> {
        let rows = sqlx::query("SELECT reference FROM processing_proposals WHERE topic = ? AND epoch = ?")
            .bind(self.topic.to_bytes())
            .bind(epoch.cast_signed())
            .fetch_all(tx.conn())
            .await?;
        let mut before = rows.iter().map(|row| row.get::<&[u8], _>(0));
        let mut in_this_run = self.gathered.proposals.iter().filter(|delivered| delivered.epoch == epoch);
        let complete = before.all(|reference| stored.contains(reference))
            && in_this_run.all(|delivered| stored.contains(&delivered.reference));
        Ok(if complete { ProposalKnowledge::Complete } else { ProposalKnowledge::Lost })
    }
}

/// A proposal that was applied: its epoch, its place, and what a commit would name it by.
struct DeliveredProposal {
    topic: Topic,
    epoch: u64,
    sequence_id: SequenceId,
    reference: Vec<u8>,
}

/// Effects on their way to the tables, of one group or of several.
#[derive(Default)]
pub(crate) struct Gathered {
    messages: Vec<NewMessage>,
    /// Which of `messages` are from somebody who was a super admin at that point of the topic.
    by_super_admin: Vec<bool>,
    rejected: Vec<(Topic, SequenceId, Reason)>,
    proposals: Vec<DeliveredProposal>,
}

impl Gathered {
    fn message(&mut self, by_super_admin: bool, message: NewMessage) {
        self.by_super_admin.push(by_super_admin);
        self.messages.push(message);
    }

    /// Adds what another group's run gathered.
    pub(crate) fn add(&mut self, other: Self) {
        self.messages.extend(other.messages);
        self.by_super_admin.extend(other.by_super_admin);
        self.rejected.extend(other.rejected);
        self.proposals.extend(other.proposals);
    }

    /// Writes everything. Delivery numbers follow a topic's order, so this comes before anything else of the same topic
    /// that takes a number.
    pub(crate) async fn write(self, tx: &mut WriteTx) -> Result<(), ProcessingError> {
        if !self.messages.is_empty() {
            highwater_delivery::insert_published(tx, &self.messages).await?;
            for (message, by_super_admin) in self.messages.iter().zip(&self.by_super_admin) {
                highwater_delivery::apply_deletion(tx, message, *by_super_admin).await?;
            }
        }
        rejection::record(tx, &self.rejected).await?;
        if !self.proposals.is_empty() {
            let mut insert =
                QueryBuilder::new("INSERT INTO processing_proposals (topic, epoch, sequence_id, reference) ");
            insert.push_values(&self.proposals, |mut row, delivered| {
                row.push_bind(delivered.topic.to_bytes())
                    .push_bind(delivered.epoch.cast_signed())
                    .push_bind(delivered.sequence_id.as_i64())
                    .push_bind(delivered.reference.clone());
            });
            insert.build().execute(tx.conn()).await?;
        }
        Ok(())
    }
}
