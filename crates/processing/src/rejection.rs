//! Terminal rejections, recorded in the transaction that moves P over them (PROC-011).

use highwater_store::{Reads, WriteTx};
use highwater_wire::{SequenceId, Topic};
use sqlx::{QueryBuilder, Row as _};

use crate::{ProcessingError, Reason};

/// A recorded refusal that completed an envelope without applying it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The refused envelope.
    pub sequence_id: SequenceId,
    /// The stable code of the [`Reason`].
    pub code: String,
}

pub(crate) async fn record(
    tx: &mut WriteTx,
    rejected: &[(Topic, SequenceId, Reason)],
) -> Result<(), ProcessingError> {
    if rejected.is_empty() {
        return Ok(());
    }
    let mut insert = QueryBuilder::new("INSERT INTO processing_rejections (topic, sequence_id, code) ");
    insert.push_values(rejected, |mut row, (topic, sequence_id, reason)| {
        row.push_bind(topic.to_bytes()).push_bind(sequence_id.as_i64()).push_bind(reason.code());
    });
    insert.build().execute(tx.conn()).await?;
    Ok(())
}

/// The recorded rejections of a topic, in order.
pub async fn rejections(tx: &mut impl Reads, topic: Topic) -> Result<Vec<Rejection>, ProcessingError> {
    sqlx::query("SELECT sequence_id, code FROM processing_rejections WHERE topic = ? ORDER BY sequence_id")
        .bind(topic.to_bytes())
        .fetch_all(tx.conn())
        .await?
        .iter()
        .map(|row| {
            Ok(Rejection {
                sequence_id: SequenceId::try_from(row.get::<i64, _>(0))
                    .map_err(|_| ProcessingError::Damaged("sequence id"))?,
                code: row.get(1),
            })
        })
        .collect()
}
