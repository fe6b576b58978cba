//! F as a value, and the ways to read it.

use std::collections::BTreeMap;

use highwater_store::Reads;
use highwater_wire::{Cursor, SequenceId, Topic};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::ReceiptError;

/// F of one topic: everything retained after the starting anchor and at or below it is pending or
/// handled. Never decreases. Only this crate makes one, from the database, so an id that a push, a
/// target or a publish reply named can't be taken for received (STR-062).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceivedPosition(pub(crate) Cursor);

impl ReceivedPosition {
    /// Nothing received.
    pub const ZERO: Self = Self(Cursor::ZERO);

    /// The exclusive start of the next read of the topic.
    pub fn cursor(self) -> Cursor {
        self.0
    }

    /// Whether the envelope lies at or below F.
    pub fn covers(self, id: SequenceId) -> bool {
        self.0.covers(id)
    }
}

/// How many topics one statement asks for.
const TOPICS_PER_STATEMENT: usize = 1_000;

/// F of a topic; zero when nothing was ever received on it.
///
/// # Errors
/// When the database fails.
pub async fn received(tx: &mut impl Reads, topic: Topic) -> Result<ReceivedPosition, ReceiptError> {
    let row = sqlx::query("SELECT received FROM receipt_topics WHERE topic = ?")
        .bind(topic.to_bytes())
        .fetch_optional(tx.conn())
        .await?;
    match row {
        Some(row) => Ok(ReceivedPosition(Cursor::try_from(row.try_get::<i64, _>(0)?)?)),
        None => Ok(ReceivedPosition::ZERO),
    }
}

/// F of each of the topics, zero included.
///
/// # Errors
/// When the database fails.
pub async fn received_many(
    tx: &mut impl Reads,
    topics: &[Topic],
) -> Result<BTreeMap<Topic, ReceivedPosition>, ReceiptError> {
    let mut found: BTreeMap<_, _> = topics.iter().map(|topic| (*topic, ReceivedPosition::ZERO)).collect();
    for topics in topics.chunks(TOPICS_PER_STATEMENT) {
        let mut query = QueryBuilder::new("SELECT topic, received FROM receipt_topics WHERE topic IN (");
        push_topics(&mut query, topics);
        for row in query.build().fetch_all(tx.conn()).await? {
            let topic = Topic::from_bytes(row.try_get(0)?)?;
            found.insert(topic, ReceivedPosition(Cursor::try_from(row.try_get::<i64, _>(1)?)?));
        }
    }
    Ok(found)
}

/// The rest of an `IN (`.
pub(crate) fn push_topics(query: &mut QueryBuilder<Sqlite>, topics: &[Topic]) {
    let mut list = query.separated(", ");
    for topic in topics {
        list.push_bind(topic.to_bytes());
    }
    list.push_unseparated(")");
}

/// Every topic that ever received something, with its F, in topic order.
///
/// # Errors
/// When the database fails.
pub async fn topics(tx: &mut impl Reads) -> Result<Vec<(Topic, ReceivedPosition)>, ReceiptError> {
    let rows =
        sqlx::query("SELECT topic, received FROM receipt_topics ORDER BY topic").fetch_all(tx.conn()).await?;
    rows.iter()
        .map(|row| {
            let received = Cursor::try_from(row.try_get::<i64, _>(1)?)?;
            Ok((Topic::from_bytes(row.try_get(0)?)?, ReceivedPosition(received)))
        })
        .collect()
}
