//! What a client holds, for tests to compare.

use std::collections::{BTreeMap, BTreeSet};

use highwater_delivery::{Conversation, HistoryQuery, MessageKind, Order, Scope, Selection, StoredMessage};
use highwater_identity::AssociationState;
use highwater_outbox::{IntentId, Outcome};
use highwater_processing::{HeldHead, Rejection};
use highwater_store::{DatabaseId, ReadTx, StoreError};
use highwater_wire::proto::contents::EncodedContent;
use highwater_wire::{Cursor, GroupId, InboxId, SequenceId, Topic};
use prost::Message as _;

use crate::Peer;
use crate::peer::read;

/// What became of a group's envelopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The recorded rejections, in order: ids and codes.
    pub rejections: Vec<(SequenceId, String)>,
    /// The deliverable text messages, in delivery order.
    pub texts: Vec<String>,
    /// P, 0 where there is none.
    pub processed: u64,
    /// The held head.
    pub held: Option<SequenceId>,
    /// The pending envelopes, in order.
    pub pending: Vec<SequenceId>,
}

impl Peer {
    /// What became of the envelopes of these groups, from one snapshot.
    pub async fn settled(&self, groups: Vec<GroupId>) -> BTreeMap<GroupId, Settled> {
        let database = self.store.database_id();
        read(&self.store, move |tx| {
            Box::pin(async move {
                let held = highwater_processing::held(tx).await.expect("held heads");
                let mut found = BTreeMap::new();
                for group in groups {
                    let held = held.iter().find(|head| head.topic == Topic::group(group));
                    let held = held.map(|head| head.sequence_id);
                    found.insert(group, Settled { held, ..settled(tx, database, group).await });
                }
                Ok::<_, StoreError>(found)
            })
        })
        .await
    }

    /// What became of an intent.
    pub async fn outcome(&self, intent: IntentId) -> Outcome {
        read(&self.store, move |tx| Box::pin(async move { highwater_outbox::outcome(tx, intent).await }))
            .await
    }

    /// The deliverable text messages of a group, in delivery order.
    pub async fn texts(&self, group: GroupId) -> Vec<String> {
        let messages = self.messages(group).await;
        texts_of(&messages)
    }

    /// Every deliverable message of a group, in delivery order.
    pub async fn messages(&self, group: GroupId) -> Vec<StoredMessage> {
        let database = self.store.database_id();
        let mut query = history_of(group);
        let mut found = Vec::new();
        loop {
            let given = query.clone();
            let page = read(&self.store, move |tx| {
                Box::pin(async move { highwater_delivery::history(tx, database, &given).await })
            })
            .await;
            found.extend(page.messages);
            if page.more.is_none() {
                return found;
            }
            query.from = page.more;
        }
    }

    /// The group's epoch and epoch authenticator: equal for members exactly when they agree on everything.
    pub async fn agreement(&self, group: GroupId) -> (u64, Vec<u8>) {
        self.write(move |tx| {
            Box::pin(async move {
                let trial = highwater_mls::Trial::load(tx, group).await?.expect("a group");
                Ok::<_, highwater_mls::MlsError>((trial.epoch(), trial.epoch_authenticator()))
            })
        })
        .await
    }

    /// F of a topic.
    pub async fn received(&self, topic: Topic) -> Cursor {
        read(&self.store, move |tx| Box::pin(async move { highwater_receipt::received(tx, topic).await }))
            .await
            .cursor()
    }

    /// What is durable of a group, as text to compare: its state, epoch, messages with their numbers, and rejections.
    pub async fn durable(&self, group: GroupId) -> String {
        let (conversation, epoch, rejections) = read(&self.store, move |tx| {
            Box::pin(async move {
                let conversation = highwater_delivery::conversation(tx, group).await.expect("a conversation");
                let epoch = highwater_mls::group_state(tx, group).await.expect("a state");
                let rejections = highwater_processing::rejections(tx, Topic::group(group)).await?;
                let state = conversation.map(|found| (found.state, found.name));
                Ok::<_, highwater_processing::ProcessingError>((state, epoch, rejections))
            })
        })
        .await;
        let agreement = match epoch {
            Some(_) => Some(self.agreement(group).await),
            None => None,
        };
        let messages: Vec<_> = self
            .messages(group)
            .await
            .into_iter()
            .map(|message| (message.delivery_number, message.id, message.kind, message.sequence_id))
            .collect();
        format!("{conversation:?} {agreement:?} {messages:?} {rejections:?}\n")
    }

    /// F, P, what is pending and what is held, of every topic, as text to compare.
    pub async fn durable_topics(&self) -> String {
        let (received, processed, held) = read(&self.store, |tx| {
            Box::pin(async move {
                let received = highwater_receipt::topics(tx).await?;
                let processed = highwater_processing::positions(tx).await?;
                let held = highwater_processing::held(tx).await?;
                let held: Vec<_> =
                    held.into_iter().map(|head| (head.topic, head.sequence_id, head.code)).collect();
                Ok::<_, highwater_processing::ProcessingError>((received, processed, held))
            })
        })
        .await;
        let mut pending = Vec::new();
        for (topic, _) in &received {
            pending.push(self.pending(*topic).await);
        }
        format!("{received:?} {processed:?} {held:?} {pending:?}\n")
    }

    /// Checks every invariant of the database.
    ///
    /// # Panics
    /// If one doesn't hold.
    pub async fn audit(&self) {
        let topic = Topic::welcome(self.installation);
        let audits = read(&self.store, move |tx| {
            Box::pin(async move {
                let mut violations = highwater_receipt::audit(tx).await?.violations;
                violations.extend(highwater_delivery::audit(tx).await.expect("an audit").violations);
                violations.extend(highwater_mls::audit(tx).await.expect("an audit").violations);
                violations.extend(highwater_outbox::audit(tx).await.expect("an audit").violations);
                violations.extend(highwater_processing::audit(tx).await.expect("an audit").violations);
                violations.extend(highwater_join::audit(tx, topic).await.expect("an audit").violations);
                Ok::<_, highwater_receipt::ReceiptError>(violations)
            })
        })
        .await;
        assert!(audits.is_empty(), "{audits:?}");
    }

    /// A conversation as it is stored.
    pub async fn conversation(&self, group: GroupId) -> Conversation {
        let found = read(&self.store, move |tx| {
            Box::pin(async move { highwater_delivery::conversation(tx, group).await })
        });
        found.await.expect("a conversation")
    }

    /// P of a topic, 0 where there is none.
    pub async fn processed(&self, topic: Topic) -> u64 {
        let processed = read(&self.store, move |tx| {
            Box::pin(async move { highwater_processing::processed(tx, topic).await })
        });
        processed.await.map_or(0, |processed| processed.cursor().get())
    }

    /// The held head of a topic.
    pub async fn held(&self, topic: Topic) -> Option<HeldHead> {
        let held =
            read(&self.store, |tx| Box::pin(async move { highwater_processing::held(tx).await })).await;
        held.into_iter().find(|held| held.topic == topic)
    }

    /// The pending envelopes of a topic, in order.
    pub async fn pending(&self, topic: Topic) -> Vec<SequenceId> {
        let pending = read(&self.store, move |tx| {
            Box::pin(async move { highwater_receipt::pending_ids(tx, topic, Cursor::MAX).await })
        });
        pending.await
    }

    /// The recorded rejections of a topic, in order.
    pub async fn rejections(&self, topic: Topic) -> Vec<Rejection> {
        read(&self.store, move |tx| {
            Box::pin(async move { highwater_processing::rejections(tx, topic).await })
        })
        .await
    }

    /// The newest identity state of an inbox that was processed here.
    pub async fn identity(&self, inbox: InboxId) -> Option<(SequenceId, AssociationState)> {
        read(&self.store, move |tx| {
            Box::pin(async move { highwater_processing::latest_snapshot(tx, inbox).await })
        })
        .await
    }
}

/// All of it but the held head, which isn't found by group.
async fn settled(tx: &mut ReadTx, database: DatabaseId, group: GroupId) -> Settled {
    let topic = Topic::group(group);
    let rejections = highwater_processing::rejections(tx, topic).await.expect("rejections");
    let history = highwater_delivery::history(tx, database, &history_of(group)).await.expect("a page");
    assert!(history.more.is_none(), "a history of one page");
    let processed = highwater_processing::processed(tx, topic).await.expect("a position");
    Settled {
        rejections: rejections.into_iter().map(|found| (found.sequence_id, found.code)).collect(),
        texts: texts_of(&history.messages),
        processed: processed.map_or(0, |processed| processed.cursor().get()),
        held: None,
        pending: highwater_receipt::pending_ids(tx, topic, Cursor::MAX).await.expect("pending ids"),
    }
}

fn history_of(group: GroupId) -> HistoryQuery {
    HistoryQuery {
        selection: Selection { scope: Scope::Groups(BTreeSet::from([group])), ..Selection::all() },
        order: Order::OldestFirst,
        ..HistoryQuery::default()
    }
}

fn texts_of(messages: &[StoredMessage]) -> Vec<String> {
    let texts = messages.iter().filter(|message| message.kind == MessageKind::Application);
    texts
        .map(|message| {
            let content = EncodedContent::decode(message.content.as_slice()).expect("encoded content");
            String::from_utf8(content.content).expect("text")
        })
        .collect()
}
