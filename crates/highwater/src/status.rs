//! How far everything is.

use std::collections::BTreeMap;

use highwater_delivery::{Conversation, ConversationState, DeliveredPosition};
use highwater_processing::ProcessedPosition;
use highwater_receipt::ReceivedPosition;
use highwater_store::{DatabaseId, ReadTx, Reads};
use highwater_wire::{GroupId, InboxId, SequenceId, Topic, TopicKind};

use crate::{Client, Error};

/// Every position of a database, from one snapshot.
#[derive(Clone, Debug)]
pub struct Status {
    /// The database's identity.
    pub database_id: DatabaseId,
    /// The inbox this installation speaks for.
    pub inbox_id: InboxId,
    /// Every topic anything was received on.
    pub topics: Vec<TopicProgress>,
    /// Every conversation.
    pub groups: Vec<GroupProgress>,
    /// Own messages and changes that are not settled.
    pub unsettled: u64,
}

/// How far a topic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicProgress {
    /// The topic.
    pub topic: Topic,
    /// F.
    pub received: u64,
    /// P; absent for a Welcome topic, whose Welcomes are settled one by one.
    pub processed: Option<u64>,
    /// Envelopes that are received and not settled.
    pub pending: u64,
    /// The pending envelope that blocks the topic, if one does.
    pub held: Option<HeldEnvelope>,
}

/// An envelope that can be neither applied nor refused now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldEnvelope {
    /// The envelope.
    pub sequence_id: SequenceId,
    /// The stable code of the cause.
    pub cause: String,
    /// The cause for people.
    pub detail: String,
}

/// How far a conversation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// The conversation.
    pub group_id: GroupId,
    /// Its name.
    pub name: Option<String>,
    /// D, a delivery number of this database.
    pub delivered: u64,
    /// The MLS epoch; absent where there is no MLS state.
    pub epoch: Option<u64>,
    /// Whether this installation takes part.
    pub state: ConversationState,
}

impl Client {
    /// Every position of the database. Needs no network.
    pub async fn status(&self) -> Result<Status, Error> {
        let (topics, groups, unsettled) = self
            .store()
            .read("status", |tx: &mut ReadTx| {
                Box::pin(async move {
                    let topics = topics(tx).await?;
                    let groups = groups(tx).await?;
                    let unsettled = highwater_outbox::unresolved_intents(tx).await?;
                    Ok::<_, Error>((topics, groups, unsettled))
                })
            })
            .await?;
        let (database_id, inbox_id) = (self.database_id(), self.inbox_id());
        Ok(Status { database_id, inbox_id, topics, groups, unsettled })
    }
}

async fn topics(tx: &mut impl Reads) -> Result<Vec<TopicProgress>, Error> {
    let processed = highwater_processing::positions(tx).await?;
    let pending: BTreeMap<_, _> = highwater_receipt::pending_topics(tx, None)
        .await?
        .into_iter()
        .map(|pending| (pending.topic, pending.rows))
        .collect();
    let mut held = held_heads(tx).await?;
    let welcomes = held_welcome(tx).await?;
    let mut received: BTreeMap<Topic, ReceivedPosition> =
        highwater_receipt::topics(tx).await?.into_iter().collect();
    for topic in processed.keys() {
        received.entry(*topic).or_default();
    }
    Ok(received
        .into_iter()
        .map(|(topic, f)| TopicProgress {
            topic,
            received: f.cursor().get(),
            processed: (topic.kind() != TopicKind::Welcome).then(|| through(processed.get(&topic))),
            pending: pending.get(&topic).copied().unwrap_or(0),
            held: match topic.kind() {
                TopicKind::Welcome => welcomes.clone(),
                _ => held.remove(&topic),
            },
        })
        .collect())
}

fn through(processed: Option<&ProcessedPosition>) -> u64 {
    processed.map_or(0, |processed| processed.cursor().get())
}

async fn held_heads(tx: &mut impl Reads) -> Result<BTreeMap<Topic, HeldEnvelope>, Error> {
    Ok(highwater_processing::held(tx)
        .await?
        .into_iter()
        .map(|head| {
            let held = HeldEnvelope { sequence_id: head.sequence_id, cause: head.code, detail: head.detail };
            (head.topic, held)
        })
        .collect())
}

/// The first held Welcome. It blocks no other, but it is what the topic waits for.
async fn held_welcome(tx: &mut impl Reads) -> Result<Option<HeldEnvelope>, Error> {
    Ok(highwater_join::held(tx).await?.into_iter().next().map(|held| HeldEnvelope {
        sequence_id: held.sequence_id,
        cause: held.code,
        detail: held.detail,
    }))
}

async fn groups(tx: &mut impl Reads) -> Result<Vec<GroupProgress>, Error> {
    let delivered: BTreeMap<GroupId, DeliveredPosition> =
        highwater_delivery::positions(tx).await?.into_iter().collect();
    let epochs: BTreeMap<_, _> =
        highwater_mls::groups(tx).await?.into_iter().map(|(group, state)| (group, state.epoch)).collect();
    let progress = |found: Conversation| GroupProgress {
        group_id: found.group,
        name: found.name.filter(|name| !name.is_empty()),
        delivered: delivered.get(&found.group).map_or(0, |position| position.get()),
        epoch: epochs.get(&found.group).copied(),
        state: found.state,
    };
    Ok(highwater_delivery::conversations(tx).await?.into_iter().map(progress).collect())
}
