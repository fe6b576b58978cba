//! The processed position and the only statements that move it.

use std::collections::BTreeMap;

use highwater_store::{Reads, WriteTx};
use highwater_wire::{Cursor, SequenceId, Topic};
use sqlx::{QueryBuilder, Row as _};

use crate::ProcessingError;

/// P of one topic: every envelope after the starting anchor through it is applied or terminally rejected.
///
/// It never falls and never exceeds F.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessedPosition(Cursor);

impl ProcessedPosition {
    /// The position as a plain number, for comparison with a target.
    pub fn cursor(self) -> Cursor {
        self.0
    }

    fn read(value: i64) -> Result<Self, ProcessingError> {
        Cursor::try_from(value).map(Self).map_err(|_| ProcessingError::Damaged("position"))
    }
}

/// Where the current position must be for an anchor to be installed (STR-082).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnchorRule {
    /// There is no position, or it is below the anchor.
    Below,
    /// It is below the anchor or exactly at it: the inactive state was left by the very commit that added this
    /// installation again.
    BelowOrAt,
}

/// P of a topic; `None` where nothing was processed and no join set it.
pub async fn processed(
    tx: &mut impl Reads,
    topic: Topic,
) -> Result<Option<ProcessedPosition>, ProcessingError> {
    sqlx::query("SELECT processed FROM processing_positions WHERE topic = ?")
        .bind(topic.to_bytes())
        .fetch_optional(tx.conn())
        .await?
        .map(|row| ProcessedPosition::read(row.get(0)))
        .transpose()
}

/// P of every topic that has one.
pub async fn positions(tx: &mut impl Reads) -> Result<BTreeMap<Topic, ProcessedPosition>, ProcessingError> {
    sqlx::query("SELECT topic, processed FROM processing_positions")
        .fetch_all(tx.conn())
        .await?
        .iter()
        .map(|row| {
            let topic = Topic::from_bytes(row.get(0)).map_err(|_| ProcessingError::Damaged("topic"))?;
            Ok((topic, ProcessedPosition::read(row.get(1))?))
        })
        .collect()
}

/// Moves P forward over handled prefixes, which ends the holds in them. A position that is already there or beyond stays.
/// Each topic may be named once.
pub(crate) async fn advance(
    tx: &mut WriteTx,
    handled: &[(Topic, SequenceId)],
) -> Result<(), ProcessingError> {
    if handled.is_empty() {
        return Ok(());
    }
    let mut advance = QueryBuilder::new("INSERT INTO processing_positions (topic, processed) ");
    advance.push_values(handled, |mut row, (topic, through)| {
        row.push_bind(topic.to_bytes()).push_bind(through.as_i64());
    });
    advance.push(
        " ON CONFLICT (topic) DO UPDATE SET processed = excluded.processed WHERE excluded.processed > processed; \
         DELETE FROM processing_holds WHERE (topic, sequence_id) IN \
             (SELECT h.topic, h.sequence_id FROM (",
    );
    advance.push_values(handled, |mut row, (topic, through)| {
        row.push_bind(topic.to_bytes()).push_bind(through.as_i64());
    });
    advance.push(
        ") AS done CROSS JOIN processing_holds AS h ON h.topic = done.column1 AND h.sequence_id <= done.column2)",
    );
    advance.build().execute(tx.conn()).await?;
    Ok(())
}

/// Starts a group's P at a join's anchor, in the join's transaction.
///
/// # Errors
/// [`ProcessingError::AnchorRefused`] when the current position doesn't permit it; the caller's transaction must roll
/// back.
pub async fn set_anchor(
    tx: &mut WriteTx,
    topic: Topic,
    anchor: SequenceId,
    rule: AnchorRule,
) -> Result<(), ProcessingError> {
    let at = i64::from(rule == AnchorRule::BelowOrAt);
    let written = sqlx::query(
        "INSERT INTO processing_positions (topic, processed) VALUES (?1, ?2) \
         ON CONFLICT (topic) DO UPDATE SET processed = excluded.processed WHERE processed < excluded.processed + ?3",
    )
    .bind(topic.to_bytes())
    .bind(anchor.as_i64())
    .bind(at)
    .execute(tx.conn())
    .await?;
    if written.rows_affected() == 0 {
        return Err(ProcessingError::AnchorRefused { topic });
    }
    // The proposals of a membership that ended without its last commit being read went with its MLS state.
    sqlx::query(
        "DELETE FROM processing_holds WHERE topic = ?1; DELETE FROM processing_proposals WHERE topic = ?1",
    )
    .bind(topic.to_bytes())
    .execute(tx.conn())
    .await?;
    Ok(())
}
