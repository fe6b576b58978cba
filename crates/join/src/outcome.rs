//! How Welcomes ended, and which ones haven't.

use highwater_store::{Reads, WriteTx};
use highwater_wire::{Cursor, GroupId, SequenceId, Topic};
use sqlx::Row as _;

use crate::{JoinError, hold};

/// The stored end of a Welcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WelcomeOutcome {
    /// The Welcome.
    pub sequence_id: SequenceId,
    /// `joined`, `expired`, or the stable code of the rejection.
    pub code: String,
    /// The group it opened, if it did.
    pub group: Option<GroupId>,
}

/// Completes a Welcome: one outcome, and the pending row is gone.
pub(crate) async fn settle(
    tx: &mut WriteTx,
    topic: Topic,
    sequence_id: SequenceId,
    code: &str,
    group: Option<GroupId>,
) -> Result<(), JoinError> {
    sqlx::query("INSERT INTO join_outcomes (sequence_id, code, group_id) VALUES (?, ?, ?)")
        .bind(sequence_id.as_i64())
        .bind(code)
        .bind(group.map(|group| group.as_bytes().to_vec()))
        .execute(tx.conn())
        .await?;
    hold::clear(tx, sequence_id).await?;
    highwater_receipt::settle_one(tx, topic, sequence_id).await?;
    Ok(())
}

/// Every settled Welcome, in order.
pub async fn outcomes(tx: &mut impl Reads) -> Result<Vec<WelcomeOutcome>, JoinError> {
    sqlx::query("SELECT sequence_id, code, group_id FROM join_outcomes ORDER BY sequence_id")
        .fetch_all(tx.conn())
        .await?
        .iter()
        .map(|row| {
            let group = row
                .get::<Option<&[u8]>, _>(2)
                .map(|bytes| {
                    bytes.try_into().map(GroupId::from_bytes).map_err(|_| JoinError::Damaged("group id"))
                })
                .transpose()?;
            Ok(WelcomeOutcome {
                sequence_id: SequenceId::try_from(row.get::<i64, _>(0))
                    .map_err(|_| JoinError::Damaged("sequence id"))?,
                code: row.get(1),
                group,
            })
        })
        .collect()
}

/// The Welcomes at or below `through` that are not settled: with F, the whole progress of a Welcome topic.
pub async fn unresolved(
    tx: &mut impl Reads,
    topic: Topic,
    through: Cursor,
) -> Result<Vec<SequenceId>, JoinError> {
    Ok(highwater_receipt::pending_ids(tx, topic, through).await?)
}
