//! What ordered processing tells the outbox: an own envelope came back, or the group moved on without it.

use highwater_mls::Recipient;
use highwater_store::{Reads, WriteTx};
use highwater_wire::{GroupId, MessageId, PayloadIdentity, SequenceId};
use sqlx::Row as _;

use crate::intent::IntentId;
use crate::publish::AttemptId;
use crate::rows::{self, Asked, IntentState};
use crate::{OutboxError, welcome};

/// An attempt that an incoming envelope turned out to be.
#[derive(Clone, Debug)]
pub struct MatchedAttempt {
    /// The attempt.
    pub attempt: AttemptId,
    /// What it is for.
    pub intent: IntentId,
    /// What the intent asked for.
    pub asked: MatchedIntent,
    /// The epoch it was prepared in.
    pub epoch: u64,
    /// Whether it still is its intent's attempt. If not, its effects were applied or given up before.
    pub current: bool,
}

/// What a matched attempt was prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedIntent {
    /// A message, stored as unpublished under this id.
    Message(MessageId),
    /// A commit, pending in the group's MLS state.
    Change,
}

/// The attempt with this payload identity, if this client made it (STR-113). Needs no publish reply.
pub async fn matching(
    tx: &mut impl Reads,
    group: GroupId,
    identity: PayloadIdentity,
) -> Result<Option<MatchedAttempt>, OutboxError> {
    let Some(row) = sqlx::query(
        "SELECT a.id, a.intent_id, a.epoch, a.current, i.message_id, i.change FROM outbox_attempts a \
         JOIN outbox_intents i ON i.id = a.intent_id WHERE a.payload_identity = ? AND a.group_id = ?",
    )
    .bind(identity.as_bytes().as_slice())
    .bind(group.as_bytes().as_slice())
    .fetch_optional(tx.conn())
    .await?
    else {
        return Ok(None);
    };
    Ok(Some(MatchedAttempt {
        attempt: AttemptId(row.get(0)),
        intent: IntentId(row.get(1)),
        asked: match rows::asked(&row, 4, 5)? {
            Asked::Message(id) => MatchedIntent::Message(id),
            Asked::Change(_) => MatchedIntent::Change,
        },
        epoch: row.get::<i64, _>(2).cast_unsigned(),
        current: row.get::<i64, _>(3) == 1,
    }))
}

/// Settles an echo that ordered processing applied: a message is published with its delivery number; a commit owes the
/// Welcomes of the installations it added, sealed here because `sequence_id` is their anchor.
///
/// Call it in the transaction that applied the echo.
pub async fn echo_applied(
    tx: &mut WriteTx,
    matched: &MatchedAttempt,
    sequence_id: SequenceId,
    server_ns: i64,
    expires_ns: Option<i64>,
) -> Result<(), OutboxError> {
    let mut state = IntentState::Confirmed;
    match matched.asked {
        MatchedIntent::Message(id) => {
            highwater_delivery::confirm(tx, id, sequence_id, server_ns, expires_ns).await?;
        }
        MatchedIntent::Change => {
            let sealed = seal_welcomes(tx, matched, sequence_id).await?;
            if !sealed.is_empty() {
                state = IntentState::Published;
                welcome::owe(tx, matched.intent, sealed).await?;
            }
        }
    }
    rows::retire_attempt(tx, matched.intent).await?;
    rows::set_state(tx, matched.intent, state, Some(sequence_id), None, None).await
}

async fn seal_welcomes(
    tx: &mut WriteTx,
    matched: &MatchedAttempt,
    anchor: SequenceId,
) -> Result<Vec<Vec<u8>>, OutboxError> {
    let row = sqlx::query("SELECT welcome, recipients FROM outbox_attempts WHERE id = ?")
        .bind(matched.attempt.0)
        .fetch_one(tx.conn())
        .await?;
    let Some(welcome) = row.get::<Option<&[u8]>, _>(0) else {
        return Ok(Vec::new());
    };
    let recipients: Vec<Recipient> =
        postcard::from_bytes(row.get(1)).map_err(|_| OutboxError::Damaged("recipients"))?;
    Ok(highwater_mls::seal_welcomes(welcome, anchor, &recipients)?)
}

/// The echo came too late for its epoch: the intent goes back to the queue and is prepared again, a message under the
/// same id.
pub async fn echo_stale(tx: &mut WriteTx, matched: &MatchedAttempt) -> Result<(), OutboxError> {
    rows::retire_attempt(tx, matched.intent).await?;
    rows::set_state(tx, matched.intent, IntentState::Queued, None, None, None).await
}

/// Ordered processing refused the echo for another reason: the intent ends.
pub async fn echo_rejected(
    tx: &mut WriteTx,
    matched: &MatchedAttempt,
    code: &str,
) -> Result<(), OutboxError> {
    rows::retire_attempt(tx, matched.intent).await?;
    if let MatchedIntent::Message(id) = matched.asked {
        highwater_delivery::fail(tx, id, code).await?;
    }
    rows::set_state(tx, matched.intent, IntentState::Rejected, None, Some(code), None).await
}

/// Another member's commit was applied: a commit prepared in an earlier epoch can never apply any more, which proves
/// its attempt superseded (STR-111, STR-112). Its intent is prepared afresh, or found fulfilled then.
pub async fn epoch_advanced(tx: &mut WriteTx, group: GroupId) -> Result<(), OutboxError> {
    let superseded =
        sqlx::query("SELECT id FROM outbox_intents WHERE group_id = ? AND state = 1 AND change IS NOT NULL")
            .bind(group.as_bytes().as_slice())
            .fetch_all(tx.conn())
            .await?;
    for row in superseded {
        let intent = IntentId(row.get(0));
        rows::retire_attempt(tx, intent).await?;
        rows::set_state(tx, intent, IntentState::Queued, None, None, None).await?;
    }
    Ok(())
}

/// This installation was removed from the group: every intent whose echo wasn't applied fails. A change that was
/// applied keeps its owed Welcomes.
pub async fn membership_ended(tx: &mut WriteTx, group: GroupId) -> Result<(), OutboxError> {
    for open in rows::open_intents(tx, group, u32::MAX).await? {
        rows::retire_attempt(tx, open.id).await?;
        if let Asked::Message(id) = open.asked {
            highwater_delivery::fail(tx, id, "inactive_group").await?;
        }
        rows::set_state(tx, open.id, IntentState::Inactive, None, Some("inactive_group"), None).await?;
    }
    Ok(())
}
