//! Held heads, kept so that any process can show why a topic stands still.

use highwater_store::{Reads, WriteTx};
use highwater_wire::{GroupId, SequenceId, Topic};
use sqlx::Row as _;

use crate::{HoldCause, ProcessingError};

/// The pending envelope that blocks a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldHead {
    /// The blocked topic.
    pub topic: Topic,
    /// The envelope at its head.
    pub sequence_id: SequenceId,
    /// The stable code of the cause.
    pub code: String,
    /// The cause for people.
    pub detail: String,
    /// When it was first found held, by the local clock.
    pub since_ns: i64,
}

impl HeldHead {
    /// Whether waiting, with nothing else changed, can help.
    pub fn is_transient(&self) -> bool {
        HoldCause::code_is_transient(&self.code)
    }
}

pub(crate) async fn record(
    tx: &mut WriteTx,
    topic: Topic,
    sequence_id: SequenceId,
    cause: &HoldCause,
) -> Result<(), ProcessingError> {
    let now = tx.now_ns();
    sqlx::query(
        "INSERT INTO processing_holds (topic, sequence_id, code, detail, since_ns) VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (topic) DO UPDATE SET since_ns = iif(sequence_id = excluded.sequence_id, since_ns, excluded.since_ns), \
         sequence_id = excluded.sequence_id, code = excluded.code, detail = excluded.detail \
         WHERE (sequence_id, code, detail) <> (excluded.sequence_id, excluded.code, excluded.detail)",
    )
    .bind(topic.to_bytes())
    .bind(sequence_id.as_i64())
    .bind(cause.code())
    .bind(cause.to_string())
    .bind(now)
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub(crate) async fn clear(tx: &mut WriteTx, topic: Topic) -> Result<(), ProcessingError> {
    sqlx::query("DELETE FROM processing_holds WHERE topic = ?")
        .bind(topic.to_bytes())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Whether a group is held at the commit that requires a newer version of it. From then on nothing may be published to it:
/// this client no longer knows what its members agreed on.
pub async fn requires_newer_version(tx: &mut impl Reads, group: GroupId) -> Result<bool, ProcessingError> {
    let held = sqlx::query("SELECT 1 FROM processing_holds WHERE topic = ? AND code = 'group_version'")
        .bind(Topic::group(group).to_bytes())
        .fetch_optional(tx.conn())
        .await?;
    Ok(held.is_some())
}

/// Every held head.
pub async fn held(tx: &mut impl Reads) -> Result<Vec<HeldHead>, ProcessingError> {
    sqlx::query("SELECT topic, sequence_id, code, detail, since_ns FROM processing_holds ORDER BY topic")
        .fetch_all(tx.conn())
        .await?
        .iter()
        .map(|row| {
            Ok(HeldHead {
                topic: Topic::from_bytes(row.get(0)).map_err(|_| ProcessingError::Damaged("topic"))?,
                sequence_id: SequenceId::try_from(row.get::<i64, _>(1))
                    .map_err(|_| ProcessingError::Damaged("sequence id"))?,
                code: row.get(2),
                detail: row.get(3),
                since_ns: row.get(4),
            })
        })
        .collect()
}
