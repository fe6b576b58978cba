//! From an ordered prefix to pending rows and a higher F, in one step.

use highwater_store::WriteTx;
use highwater_wire::{Cursor, OrderedPrefix, ReceivedEnvelope, Topic};
use sqlx::{QueryBuilder, Row as _};

use crate::{
    AdmitError, Budget, ReceiptError, ReceivedPosition,
    budgets::{self, Quantity},
    capacity::{Usage, count},
};

/// What became of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// The leading new envelopes are pending, at most one batch of them. While `received` is below
    /// the end of the prefix, admit it again: the part at or below F is skipped.
    Admitted {
        /// How many.
        rows: u32,
        /// F, now the id of the last of them.
        received: ReceivedPosition,
    },
    /// Nothing in it lies above F.
    Duplicate {
        /// F, unchanged.
        received: ReceivedPosition,
    },
    /// The leading new envelopes are pending, the one after them has no room: pause receipt of the
    /// topic and read again from F later.
    Paused {
        /// How many were admitted, at least one.
        admitted_rows: u32,
        /// F, now the id of the last of them.
        received: ReceivedPosition,
        /// The bound that the next one would break.
        by: Budget,
    },
}

impl Admission {
    /// F after it.
    pub fn received(self) -> ReceivedPosition {
        match self {
            Self::Admitted { received, .. }
            | Self::Duplicate { received }
            | Self::Paused { received, .. } => received,
        }
    }
}

/// Stores the leading part of what lies above F, and moves F to its last id (STR-061, PROC-002).
///
/// Overlap with what was received before is skipped. Takes at most one
/// [batch](budgets::ADMISSION_BATCH), and no more than the [budgets] allow.
///
/// # Errors
/// [`AdmitError::Gap`] when the prefix starts above F (STR-062), [`AdmitError::Capacity`] when not
/// one new envelope fits (PROC-020); both before anything is written. Otherwise when the database
/// fails; the transaction must then be rolled back.
pub async fn admit(tx: &mut WriteTx, prefix: &OrderedPrefix) -> Result<Admission, AdmitError> {
    let topic = prefix.topic();
    let (received, mut usage) = read(tx, topic).await?;
    if prefix.after() > received.cursor() {
        return Err(AdmitError::Gap { topic, received });
    }
    let known = prefix.envelopes().partition_point(|envelope| received.covers(envelope.sequence_id()));
    let new = &prefix.envelopes()[known..];
    if new.is_empty() {
        return Ok(Admission::Duplicate { received });
    }
    let (fitting, stopped) = fitting(&mut usage, new);
    let (Some(last), rows) = (fitting.last(), fitting.len() as u32) else {
        let by = stopped.unwrap_or(Budget::Batch);
        tracing::debug!(?topic, %by, "no room to receive");
        return Err(AdmitError::Capacity { topic, by, received });
    };
    let received = ReceivedPosition(last.sequence_id().into());
    advance(tx, topic, received, usage.topic).await?;
    insert(tx, topic, fitting).await?;
    match stopped {
        Some(by @ (Budget::Topic | Budget::Kind)) => {
            tracing::debug!(?topic, rows, %by, "receipt pauses");
            Ok(Admission::Paused { admitted_rows: rows, received, by })
        }
        Some(Budget::Batch) | None => Ok(Admission::Admitted { rows, received }),
    }
}

/// The leading envelopes that fit, and what stopped the one after them.
fn fitting<'e>(usage: &mut Usage, new: &'e [ReceivedEnvelope]) -> (&'e [ReceivedEnvelope], Option<Budget>) {
    let mut batch = Quantity::default();
    for (index, envelope) in new.iter().enumerate() {
        let bytes = envelope.stored_bytes();
        batch = batch.with(bytes);
        let taken = if batch.fits(budgets::ADMISSION_BATCH) { usage.take(bytes) } else { Err(Budget::Batch) };
        if let Err(by) = taken {
            return (&new[..index], Some(by));
        }
    }
    (new, None)
}

async fn read(tx: &mut WriteTx, topic: Topic) -> Result<(ReceivedPosition, Usage), ReceiptError> {
    let kind = topic.kind();
    let budget = budgets::of_kind(kind).ok_or(ReceiptError::NotReceived(kind))?;
    let row = sqlx::query(
        "SELECT coalesce(t.received, 0), coalesce(t.pending_rows, 0), coalesce(t.pending_bytes, 0), \
                k.pending_rows, k.pending_bytes, k.holding \
         FROM (SELECT coalesce(sum(pending_rows), 0) AS pending_rows, \
                      coalesce(sum(pending_bytes), 0) AS pending_bytes, count(*) AS holding \
               FROM receipt_topics WHERE kind = ?1 AND pending_rows > 0) AS k \
         LEFT JOIN receipt_topics AS t ON t.topic = ?2",
    )
    .bind(kind.byte())
    .bind(topic.to_bytes())
    .fetch_one(tx.conn())
    .await?;
    let received = ReceivedPosition(Cursor::try_from(row.try_get::<i64, _>(0)?)?);
    let topic = Quantity { rows: count(row.try_get(1)?)?, bytes: count(row.try_get(2)?)? };
    let kind = Quantity { rows: count(row.try_get(3)?)?, bytes: count(row.try_get(4)?)? };
    let holding = count(row.try_get(5)?)? + u64::from(topic.rows == 0);
    Ok((received, Usage { budget, topic, kind, holding }))
}

async fn advance(
    tx: &mut WriteTx,
    topic: Topic,
    received: ReceivedPosition,
    load: Quantity,
) -> Result<(), ReceiptError> {
    sqlx::query(
        "INSERT INTO receipt_topics (topic, kind, received, pending_rows, pending_bytes) \
         VALUES (?, ?, ?, ?, ?) \
         ON CONFLICT (topic) DO UPDATE SET received = excluded.received, \
             pending_rows = excluded.pending_rows, pending_bytes = excluded.pending_bytes",
    )
    .bind(topic.to_bytes())
    .bind(topic.kind().byte())
    .bind(received.cursor().as_i64())
    .bind(load.rows as i64)
    .bind(load.bytes as i64)
    .execute(tx.conn())
    .await?;
    Ok(())
}

async fn insert(tx: &mut WriteTx, topic: Topic, envelopes: &[ReceivedEnvelope]) -> Result<(), ReceiptError> {
    let mut query = QueryBuilder::new(
        "INSERT INTO receipt_pending (topic, sequence_id, kind, server_ns, expiry_ns, hash, \
         is_commit_or_proposal, stored_bytes, payload) ",
    );
    query.push_values(envelopes, |mut row, envelope| {
        row.push_bind(topic.to_bytes())
            .push_bind(envelope.sequence_id().as_i64())
            .push_bind(topic.kind().byte())
            .push_bind(envelope.server_ns())
            .push_bind(envelope.expiry_ns().cast_signed())
            .push_bind(envelope.hash().as_bytes().to_vec())
            .push_bind(envelope.is_commit_or_proposal())
            .push_bind(envelope.stored_bytes() as i64)
            .push_bind(envelope.payload().to_vec());
    });
    query.build().execute(tx.conn()).await?;
    Ok(())
}
