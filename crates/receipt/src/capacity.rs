//! Who may receive, and how much.
//!
//! A topic may fill up to [`PER_TOPIC`](crate::budgets::PER_TOPIC) as long as its kind has used at
//! most three quarters of its budget. The last quarter is kept for topics with little pending: a
//! topic is admitted there only within its share, which is the quarter divided by the number of
//! topics that hold anything, and no more than a quarter of what would then be left. So the topics
//! that hold the most pause first, and a few held topics can't stop all others (STR-063). An empty
//! topic may always take one envelope while the kind's budget itself lasts, and none beyond it.

use std::collections::{BTreeMap, btree_map::Entry};

use highwater_store::Reads;
use highwater_wire::{ReceivedEnvelope, Topic, TopicKind, limits};
use sqlx::{QueryBuilder, Row as _};

use crate::{
    Budget, ReceiptError,
    budgets::{self, Quantity},
    position::push_topics,
};

/// The largest legal envelope.
const LARGEST: u64 = limits::MAX_ENVELOPE_BYTES as u64 + ReceivedEnvelope::METADATA_BYTES;

/// What is pending now, as far as one topic is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// The budget of the topic's kind.
    pub(crate) budget: Quantity,
    /// Pending on the topic.
    pub(crate) topic: Quantity,
    /// Pending on all topics of its kind.
    pub(crate) kind: Quantity,
    /// How many topics of its kind hold anything, this one included or about to.
    pub(crate) holding: u64,
}

impl Usage {
    /// Counts one more envelope, or says which bound it would break; then nothing is counted.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Budget> {
        let (topic, kind) = (self.topic.with(bytes), self.kind.with(bytes));
        if !topic.fits(budgets::PER_TOPIC) {
            return Err(Budget::Topic);
        }
        if !kind.fits(self.budget) {
            return Err(Budget::Kind);
        }
        let first = topic.rows == 1;
        if !first && !kind.fits(open_part(self.budget)) && !topic.fits(self.share(kind)) {
            return Err(Budget::Kind);
        }
        (self.topic, self.kind) = (topic, kind);
        Ok(())
    }

    /// What a topic may hold once the open part is used up, when `kind` is then pending in all.
    fn share(&self, kind: Quantity) -> Quantity {
        let reserve = self.budget.less(open_part(self.budget));
        let left = self.budget.less(kind);
        let holding = self.holding.max(1);
        Quantity {
            rows: (reserve.rows / holding).min(left.rows / 4),
            bytes: (reserve.bytes / holding).min(left.bytes / 4),
        }
    }
}

/// The part of a kind's budget that any topic may use.
fn open_part(budget: Quantity) -> Quantity {
    Quantity { rows: budget.rows / 4 * 3, bytes: budget.bytes / 4 * 3 }
}

/// What is left of a kind's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Pending on all topics of the kind.
    pub used: Quantity,
    /// What more the budget allows. How much of it one topic gets, [`may_receive`] and
    /// [`admit`](crate::admit) say.
    pub left: Quantity,
    /// How many topics hold anything.
    pub holding: u64,
}

/// What is left of the budget of `kind`.
///
/// # Errors
/// [`ReceiptError::NotReceived`] for a kind that has no budget; when the database fails.
pub async fn room(tx: &mut impl Reads, kind: TopicKind) -> Result<Room, ReceiptError> {
    let budget = budgets::of_kind(kind).ok_or(ReceiptError::NotReceived(kind))?;
    let row = sqlx::query(
        "SELECT coalesce(sum(pending_rows), 0), coalesce(sum(pending_bytes), 0), count(*) \
         FROM receipt_topics WHERE kind = ? AND pending_rows > 0",
    )
    .bind(kind.byte())
    .fetch_one(tx.conn())
    .await?;
    let used = Quantity { rows: count(row.try_get(0)?)?, bytes: count(row.try_get(1)?)? };
    Ok(Room { used, left: budget.less(used), holding: count(row.try_get(2)?)? })
}

/// Whether the topic may receive: whether an envelope of the largest legal size would be admitted.
/// While it may not, receipt of this topic pauses; a smaller envelope that is at hand may still fit.
///
/// # Errors
/// [`ReceiptError::NotReceived`] for a kind that has no budget; when the database fails.
pub async fn may_receive(tx: &mut impl Reads, topic: Topic) -> Result<bool, ReceiptError> {
    let answers = may_receive_many(tx, &[topic]).await?;
    Ok(answers.get(&topic).copied().unwrap_or_default())
}

/// [`may_receive`] for many topics at once. Each answer is for that topic alone: the topics that may
/// receive may not all have room together.
///
/// # Errors
/// [`ReceiptError::NotReceived`] if any is of a kind that has no budget; when the database fails.
pub async fn may_receive_many(
    tx: &mut impl Reads,
    topics: &[Topic],
) -> Result<BTreeMap<Topic, bool>, ReceiptError> {
    let mut rooms = BTreeMap::new();
    for topic in topics {
        if let Entry::Vacant(unknown) = rooms.entry(topic.kind()) {
            unknown.insert(room(tx, topic.kind()).await?);
        }
    }
    let loads = loads(tx, topics).await?;
    let may = |topic: &Topic| {
        let room = &rooms[&topic.kind()];
        let load = loads.get(topic).copied().unwrap_or_default();
        let mut usage = Usage {
            budget: Quantity {
                rows: room.used.rows + room.left.rows,
                bytes: room.used.bytes + room.left.bytes,
            },
            topic: load,
            kind: room.used,
            holding: room.holding + u64::from(load.rows == 0),
        };
        usage.take(LARGEST).is_ok()
    };
    Ok(topics.iter().map(|topic| (*topic, may(topic))).collect())
}

/// What each of the topics holds; one that holds nothing may be left out.
pub(crate) async fn loads(
    tx: &mut impl Reads,
    topics: &[Topic],
) -> Result<BTreeMap<Topic, Quantity>, ReceiptError> {
    let mut loads = BTreeMap::new();
    for topics in topics.chunks(1_000) {
        let mut query = QueryBuilder::new(
            "SELECT topic, pending_rows, pending_bytes FROM receipt_topics WHERE topic IN (",
        );
        push_topics(&mut query, topics);
        for row in query.build().fetch_all(tx.conn()).await? {
            let load = Quantity { rows: count(row.try_get(1)?)?, bytes: count(row.try_get(2)?)? };
            loads.insert(Topic::from_bytes(row.try_get(0)?)?, load);
        }
    }
    Ok(loads)
}

pub(crate) fn count(stored: i64) -> Result<u64, ReceiptError> {
    u64::try_from(stored).map_err(|_| ReceiptError::Damaged("a count is negative"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fills topics one after another, each as far as it may, and returns what each holds.
    fn fill(budget: Quantity, topics: u64, bytes: u64) -> Vec<Quantity> {
        let mut kind = Quantity::default();
        (1..=topics)
            .map(|holding| {
                let topic = Quantity::default();
                let mut usage = Usage { budget, topic, kind, holding };
                while usage.take(bytes).is_ok() {}
                kind = usage.kind;
                usage.topic
            })
            .collect()
    }

    /// Shows: STR-063, PROC-020.
    #[test]
    fn topics_that_hold_all_they_may_leave_room_for_others() {
        let held = fill(budgets::GROUP, 30, 200);
        assert!(held[..6].iter().all(|load| load.rows == budgets::PER_TOPIC.rows));
        assert!(held[6..].iter().all(|load| load.rows >= 1 && load.rows < 300), "{held:?}");
    }

    /// Shows: STR-063.
    #[test]
    fn an_empty_topic_does_not_get_past_a_used_up_kind() {
        let kind = budgets::WELCOME;
        let full = Usage { budget: kind, topic: Quantity::default(), kind, holding: kind.rows };
        assert_eq!(full.clone().take(1), Err(Budget::Kind));
        let short = Quantity { rows: 10, bytes: kind.bytes - 99 };
        let mut nearly = Usage { kind: short, ..full };
        assert_eq!(nearly.take(100), Err(Budget::Kind));
        assert_eq!(nearly.take(99), Ok(()));
    }

    /// The share of a very busy kind is smaller than an envelope; a topic without any still moves.
    /// Shows: STR-063, STR-066.
    #[test]
    fn the_largest_envelope_gets_into_an_empty_topic_of_a_busy_kind() {
        let kind = Quantity { rows: 7_000, bytes: 100 * 1024 * 1024 };
        let topic = Quantity::default();
        let mut usage = Usage { budget: budgets::GROUP, topic, kind, holding: 7_000 };
        assert_eq!(usage.take(LARGEST), Ok(()));
        assert_eq!(usage.take(LARGEST), Err(Budget::Kind));
    }

    proptest! {
        #[test]
        fn no_order_of_taking_breaks_a_bound(
            takes in prop::collection::vec((0..12_usize, 1..2_000_000_u64), 1..2_000),
        ) {
            let mut loads = [Quantity::default(); 12];
            let mut kind = Quantity::default();
            for (topic, bytes) in takes {
                let held = loads.iter().filter(|load| load.rows > 0).count() as u64;
                let holding = held + u64::from(loads[topic].rows == 0);
                let mut usage =
                    Usage { budget: budgets::IDENTITY, topic: loads[topic], kind, holding };
                if usage.take(bytes).is_ok() {
                    (loads[topic], kind) = (usage.topic, usage.kind);
                }
                prop_assert!(kind.fits(budgets::IDENTITY));
                prop_assert!(loads[topic].fits(budgets::PER_TOPIC));
                let sum: u64 = loads.iter().map(|load| load.bytes).sum();
                prop_assert_eq!(sum, kind.bytes);
            }
        }
    }
}
