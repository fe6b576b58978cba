//! A client's database, seen from beside the client: as another process that only looks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use highwater_delivery::{HistoryQuery, MessageKind, Order, StoredMessage};
use highwater_processing::Rejection;
use highwater_store::{Audit, DatabaseKey, ReadTx, Store, StoreError};
use highwater_wire::proto::contents::EncodedContent;
use highwater_wire::{Cursor, GroupId, MessageId, Topic, TopicKind};
use prost::Message as _;

use crate::peer::{open, read};

/// How far one topic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// F.
    pub received: u64,
    /// P; absent where nothing was processed.
    pub processed: Option<u64>,
    /// The ids that are received and not settled.
    pub pending: Vec<u64>,
}

/// A deliverable message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its id.
    pub id: MessageId,
    /// Its conversation.
    pub group: GroupId,
    /// Its place in the database's order.
    pub number: u64,
    /// Its place on its group's topic, where it has one.
    pub sequence_id: Option<u64>,
    /// What it says; absent for the transcript of a change.
    pub text: Option<String>,
}

/// An open database of some client.
pub struct Inside {
    /// The store.
    pub store: Store,
}

impl Inside {
    /// Opens it, whoever else has it open.
    pub async fn open(path: &Path, key: &DatabaseKey) -> Self {
        Self { store: open(path, key, None).await }
    }

    /// Closes it.
    pub async fn close(self) {
        self.store.close().await;
    }

    /// Every topic with a received position, from one snapshot.
    pub async fn positions(&self) -> BTreeMap<Topic, Positions> {
        read(&self.store, |tx| Box::pin(async move { positions(tx).await })).await
    }

    /// One topic's positions.
    pub async fn position(&self, topic: Topic) -> Positions {
        let nothing = Positions { received: 0, processed: None, pending: Vec::new() };
        self.positions().await.remove(&topic).unwrap_or(nothing)
    }

    /// The recorded rejections of a group, in order: ids and codes.
    pub async fn rejections(&self, group: GroupId) -> Vec<(u64, String)> {
        let topic = Topic::group(group);
        read(&self.store, move |tx| {
            Box::pin(async move { highwater_processing::rejections(tx, topic).await })
        })
        .await
        .into_iter()
        .map(|Rejection { sequence_id, code }| (sequence_id.get(), code))
        .collect()
    }

    /// The stable codes of what is held, by topic.
    pub async fn held(&self) -> BTreeMap<Topic, String> {
        read(&self.store, |tx| Box::pin(async move { highwater_processing::held(tx).await }))
            .await
            .into_iter()
            .map(|head| (head.topic, head.code))
            .collect()
    }

    /// Every deliverable message, in delivery order.
    pub async fn messages(&self) -> Vec<Kept> {
        let database = self.store.database_id();
        let mut query = HistoryQuery { order: Order::OldestFirst, ..HistoryQuery::default() };
        let mut found = Vec::new();
        loop {
            let given = query.clone();
            let page = read(&self.store, move |tx| {
                Box::pin(async move { highwater_delivery::history(tx, database, &given).await })
            })
            .await;
            found.extend(page.messages.into_iter().map(kept));
            if page.more.is_none() {
                return found;
            }
            query.from = page.more;
        }
    }

    /// Checks every invariant of the database.
    ///
    /// # Panics
    /// With what doesn't hold.
    pub async fn audit(&self) {
        let audits =
            read(&self.store, |tx| Box::pin(async move { Ok::<_, StoreError>(audit(tx).await) })).await;
        let violations: Vec<_> = audits.into_iter().flat_map(|audit| audit.violations).collect();
        assert!(violations.is_empty(), "{violations:?}");
    }

    /// The group's epoch and epoch authenticator: equal for members exactly when they agree on everything.
    pub async fn agreement(&self, group: GroupId) -> (u64, Vec<u8>) {
        let found = self.store.write("agreement", move |tx| {
            Box::pin(async move {
                let trial = highwater_mls::Trial::load(tx, group).await?.expect("a group");
                Ok::<_, highwater_mls::MlsError>((trial.epoch(), trial.epoch_authenticator()))
            })
        });
        found.await.expect("a transaction")
    }

    /// Holds the writer, which all processes share, for a while.
    pub async fn hold_writer(&self, time: Duration) {
        let held = self.store.write("held by a test", move |_| {
            Box::pin(async move {
                tokio::time::sleep(time).await;
                Ok::<_, StoreError>(())
            })
        });
        held.await.expect("a transaction");
    }
}

async fn positions(
    tx: &mut ReadTx,
) -> Result<BTreeMap<Topic, Positions>, highwater_processing::ProcessingError> {
    let processed = highwater_processing::positions(tx).await?;
    let mut found = BTreeMap::new();
    for (topic, received) in highwater_receipt::topics(tx).await.expect("topics") {
        let pending = highwater_receipt::pending_ids(tx, topic, Cursor::MAX).await.expect("pending ids");
        let positions = Positions {
            received: received.cursor().get(),
            processed: processed.get(&topic).map(|at| at.cursor().get()),
            pending: pending.into_iter().map(|id| id.get()).collect(),
        };
        if let Some(processed) = positions.processed {
            assert!(processed <= positions.received, "P is above F: {topic:?} {positions:?}");
        }
        assert!(topic.kind() != TopicKind::Welcome || positions.processed.is_none(), "{topic:?}");
        found.insert(topic, positions);
    }
    Ok(found)
}

async fn audit(tx: &mut ReadTx) -> [Audit; 7] {
    let installation = highwater_mls::installation(tx).await.expect("a database").expect("an installation");
    let welcomes = Topic::welcome(installation.key);
    [
        highwater_store::audit(tx).await.expect("an audit"),
        highwater_receipt::audit(tx).await.expect("an audit"),
        highwater_delivery::audit(tx).await.expect("an audit"),
        highwater_mls::audit(tx).await.expect("an audit"),
        highwater_outbox::audit(tx).await.expect("an audit"),
        highwater_processing::audit(tx).await.expect("an audit"),
        highwater_join::audit(tx, welcomes).await.expect("an audit"),
    ]
}

fn kept(stored: StoredMessage) -> Kept {
    let text = || {
        let content = EncodedContent::decode(stored.content.as_slice()).ok()?;
        String::from_utf8(content.content).ok()
    };
    Kept {
        text: text().filter(|_| stored.kind == MessageKind::Application),
        id: stored.id,
        group: stored.group,
        number: stored.delivery_number.expect("history is deliverable").get(),
        sequence_id: stored.sequence_id.map(|id| id.get()),
    }
}
