//! Storing messages, and the moment at which one becomes deliverable.

use std::collections::BTreeSet;

use highwater_store::WriteTx;
use highwater_wire::{MessageId, SequenceId};
use sqlx::QueryBuilder;

use crate::ids::{WITH_ID, statuses};
use crate::position::take_numbers;
use crate::{DeliveryError, DeliveryNumber, MessageStatus, NewMessage, message};

/// Whether an insertion changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The message is stored, as asked, for the first time.
    New,
    /// It was there before and stays as it was, delivery number included.
    Duplicate,
}

/// Rows of one statement.
const ROWS_PER_STATEMENT: usize = 512;

/// Stores an outgoing message before it is published. It gets no delivery number (STR-090).
///
/// # Errors
/// When the database fails.
pub async fn insert_unpublished(tx: &mut WriteTx, message: NewMessage) -> Result<Inserted, DeliveryError> {
    if !statuses(tx, &[message.id]).await?.is_empty() {
        return Ok(Inserted::Duplicate);
    }
    insert(tx, &[(&message, None)]).await?;
    Ok(Inserted::New)
}

/// Stores messages that are deliverable now: applied by ordered processing, derived from a join or
/// a local group, or imported (STR-103). They are numbered in the order given. A message that was
/// deliverable before is a [`Inserted::Duplicate`] and keeps its number; one that was only prepared
/// here is confirmed and counts as [`Inserted::New`].
///
/// # Errors
/// When the database fails; the transaction must then be rolled back.
pub async fn insert_published(
    tx: &mut WriteTx,
    messages: &[NewMessage],
) -> Result<Vec<Inserted>, DeliveryError> {
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    let known = statuses(tx, &ids).await?;
    let mut seen = BTreeSet::new();
    let inserted: Vec<_> = messages
        .iter()
        .map(|message| {
            let published = known.get(&message.id) == Some(&MessageStatus::Published);
            let again = !seen.insert(message.id);
            if published || again { Inserted::Duplicate } else { Inserted::New }
        })
        .collect();
    let count = inserted.iter().filter(|inserted| **inserted == Inserted::New).count();
    if count == 0 {
        return Ok(inserted);
    }
    let first = take_numbers(tx, count).await?;
    let new = messages.iter().zip(&inserted).filter(|(_, it)| **it == Inserted::New);
    let mut rows = Vec::with_capacity(count);
    for ((message, _), number) in new.zip(first..) {
        let number = DeliveryNumber(number);
        if known.contains_key(&message.id) {
            publish(tx, message.id, number, message.sequence_id, message.sent_ns, message.expires_ns).await?;
        } else {
            rows.push((message, Some(number)));
        }
    }
    insert(tx, &rows).await?;
    Ok(inserted)
}

/// The ordered topic returned an outgoing message: it is Published and gets its number, or has it
/// already. Overrides a failure recorded before, for the topic is what all members see.
///
/// # Errors
/// [`DeliveryError::UnknownMessage`]; when the database fails.
pub async fn confirm(
    tx: &mut WriteTx,
    id: MessageId,
    sequence_id: SequenceId,
    sent_ns: i64,
    expires_ns: Option<i64>,
) -> Result<DeliveryNumber, DeliveryError> {
    let stored = message(tx, id).await?.ok_or(DeliveryError::UnknownMessage(id))?;
    if let Some(number) = stored.delivery_number {
        return Ok(number);
    }
    let number = DeliveryNumber(take_numbers(tx, 1).await?);
    publish(tx, id, number, Some(sequence_id), sent_ns, expires_ns).await?;
    Ok(number)
}

/// An outgoing message will not be published. A Published one stays Published, a Failed one keeps
/// its first reason.
///
/// # Errors
/// [`DeliveryError::UnknownMessage`]; when the database fails.
pub async fn fail(tx: &mut WriteTx, id: MessageId, reason: &str) -> Result<(), DeliveryError> {
    let mut fail = QueryBuilder::new(
        "UPDATE delivery_messages SET \
             failure = CASE status WHEN 1 THEN ?2 ELSE failure END, \
             status = CASE status WHEN 1 THEN 3 ELSE status END WHERE ",
    );
    fail.push(WITH_ID);
    let failed = fail.build().bind(id.as_bytes().as_slice()).bind(reason).execute(tx.conn()).await?;
    if failed.rows_affected() == 0 {
        return Err(DeliveryError::UnknownMessage(id));
    }
    Ok(())
}

/// Removes the content of a message. Its id and number stay taken, and no reader gets it any more
/// (STR-090, STR-102). Says whether there was content to remove.
///
/// # Errors
/// When the database fails.
pub async fn delete(tx: &mut WriteTx, id: MessageId) -> Result<bool, DeliveryError> {
    let mut delete =
        QueryBuilder::new("UPDATE delivery_messages SET deleted = 1, content = x'' WHERE deleted = 0 AND ");
    delete.push(WITH_ID);
    let deleted = delete.build().bind(id.as_bytes().as_slice()).execute(tx.conn()).await?;
    Ok(deleted.rows_affected() > 0)
}

/// Removes the content of messages whose time to disappear has come, at most `limit` of them.
/// Returns how many. Readers leave them out from that time on anyway; this removes what is left.
///
/// # Errors
/// When the database fails.
pub async fn erase_expired(tx: &mut WriteTx, limit: u32) -> Result<u64, DeliveryError> {
    let now = tx.now_ns();
    let erased = sqlx::query(
        "UPDATE delivery_messages SET deleted = 1, content = x'' WHERE row IN \
             (SELECT row FROM delivery_messages WHERE expires_ns <= ? AND deleted = 0 LIMIT ?)",
    )
    .bind(now)
    .bind(limit)
    .execute(tx.conn())
    .await?;
    Ok(erased.rows_affected())
}

async fn insert(
    tx: &mut WriteTx,
    rows: &[(&NewMessage, Option<DeliveryNumber>)],
) -> Result<(), DeliveryError> {
    for rows in rows.chunks(ROWS_PER_STATEMENT) {
        let mut query = QueryBuilder::new(
            "INSERT INTO delivery_messages (id, group_id, kind, status, delivery_number, \
             expires_ns, sender_inbox, sender_installation, sent_ns, sequence_id, \
             idempotency_key, content) ",
        );
        query.push_values(rows, |mut row, (message, number)| {
            let status = match number {
                Some(_) => MessageStatus::Published,
                None => MessageStatus::Unpublished,
            };
            row.push_bind(message.id.as_bytes().to_vec())
                .push_bind(message.group.as_bytes().to_vec())
                .push_bind(message.kind.stored())
                .push_bind(status.stored())
                .push_bind(number.map(DeliveryNumber::as_i64))
                .push_bind(message.expires_ns)
                .push_bind(message.sender_inbox.as_bytes().to_vec())
                .push_bind(message.sender_installation.map(|key| key.as_bytes().to_vec()))
                .push_bind(message.sent_ns)
                .push_bind(message.sequence_id.map(SequenceId::as_i64))
                .push_bind(message.idempotency_key.clone())
                .push_bind(message.content.clone());
        });
        query.build().execute(tx.conn()).await?;
    }
    Ok(())
}

async fn publish(
    tx: &mut WriteTx,
    id: MessageId,
    number: DeliveryNumber,
    sequence_id: Option<SequenceId>,
    sent_ns: i64,
    expires_ns: Option<i64>,
) -> Result<(), DeliveryError> {
    let mut publish = QueryBuilder::new(
        "UPDATE delivery_messages SET status = 2, failure = NULL, delivery_number = ?2, \
             sequence_id = ?3, sent_ns = ?4, expires_ns = ?5 WHERE status <> 2 AND ",
    );
    publish.push(WITH_ID);
    publish
        .build()
        .bind(id.as_bytes().as_slice())
        .bind(number.as_i64())
        .bind(sequence_id.map(SequenceId::as_i64))
        .bind(sent_ns)
        .bind(expires_ns)
        .execute(tx.conn())
        .await?;
    Ok(())
}
