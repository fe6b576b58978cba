//! Offering attempts to the backend, and what its answers mean.

use highwater_store::{Reads, WriteTx};
use highwater_wire::{GroupId, MessageHash, MessageId, PayloadIdentity, SequenceId};
use sqlx::Row as _;

use crate::OutboxError;
use crate::intent::IntentId;
use crate::rows::{self, IntentState};

/// The local name of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub(crate) i64);

/// Exact bytes to publish. Publishing them again is harmless: the backend answers a repeat with what it stored.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The attempt.
    pub id: AttemptId,
    /// What it is for.
    pub intent: IntentId,
    /// What its echo will be matched by.
    pub payload_identity: PayloadIdentity,
    /// An encoded `ClientEnvelope`.
    pub envelope: Vec<u8>,
}

/// The attempts of a group that may go out now in one request, in queue order: a run of messages or one change, whose
/// envelopes are at most `max_bytes` long together (but always at least one).
pub async fn publishable(
    tx: &mut impl Reads,
    group: GroupId,
    max_bytes: usize,
) -> Result<Vec<Attempt>, OutboxError> {
    let found = sqlx::query(
        "SELECT a.id, a.intent_id, a.payload_identity, a.envelope, i.message_id IS NULL, a.replied_sequence_id \
         FROM outbox_intents i JOIN outbox_attempts a ON a.intent_id = i.id AND a.current = 1 \
         WHERE i.group_id = ? AND i.state = 1 ORDER BY i.id LIMIT 256",
    )
    .bind(group.as_bytes().as_slice())
    .fetch_all(tx.conn())
    .await?;
    let mut run = Vec::new();
    let mut bytes = 0;
    for row in &found {
        let is_change: bool = row.get(4);
        let replied = row.get::<Option<i64>, _>(5).is_some();
        if is_change && (replied || !run.is_empty()) {
            break;
        }
        if replied {
            continue;
        }
        let envelope: Vec<u8> = row.get(3);
        bytes += envelope.len();
        if bytes > max_bytes && !run.is_empty() {
            break;
        }
        let identity: &[u8] = row.get(2);
        let identity = identity.try_into().map_err(|_| OutboxError::Damaged("payload identity"))?;
        run.push(Attempt {
            id: AttemptId(row.get(0)),
            intent: IntentId(row.get(1)),
            payload_identity: PayloadIdentity::from_bytes(identity),
            envelope,
        });
        if is_change {
            break;
        }
    }
    Ok(run)
}

/// Attaches a publish reply to the attempt it belongs to. Says whether there still was one: a late reply for an
/// attempt that is not current any more changes nothing (STR-113). The reply settles nothing; the echo does.
pub async fn replied(
    tx: &mut WriteTx,
    attempt: AttemptId,
    payload_identity: PayloadIdentity,
    sequence_id: SequenceId,
    hash: MessageHash,
) -> Result<bool, OutboxError> {
    let done = sqlx::query(
        "UPDATE outbox_attempts SET replied_sequence_id = ?, replied_hash = ? \
         WHERE id = ? AND payload_identity = ? AND current = 1",
    )
    .bind(sequence_id.as_i64())
    .bind(hash.as_bytes().as_slice())
    .bind(attempt.0)
    .bind(payload_identity.as_bytes().as_slice())
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records that the backend refused an attempt for good, which proves that nothing was stored. The intent ends
/// Refused; a pending commit of it is cleared from the group.
pub async fn refused(
    tx: &mut WriteTx,
    attempt: AttemptId,
    payload_identity: PayloadIdentity,
    code: &str,
    detail: &str,
) -> Result<bool, OutboxError> {
    let Some(row) = sqlx::query(
        "SELECT i.id, i.message_id, i.group_id FROM outbox_attempts a JOIN outbox_intents i ON i.id = a.intent_id \
         WHERE a.id = ? AND a.payload_identity = ? AND a.current = 1",
    )
    .bind(attempt.0)
    .bind(payload_identity.as_bytes().as_slice())
    .fetch_optional(tx.conn())
    .await?
    else {
        return Ok(false);
    };
    let intent = IntentId(row.get(0));
    rows::retire_attempt(tx, intent).await?;
    rows::set_state(tx, intent, IntentState::Refused, None, Some(code), Some(detail)).await?;
    match row.get::<Option<&[u8]>, _>(1) {
        Some(message) => {
            let message = message.try_into().map_err(|_| OutboxError::Damaged("message id"))?;
            highwater_delivery::fail(tx, MessageId::from_bytes(message), detail).await?;
        }
        None => {
            let group = rows::group_id(row.get(2))?;
            if let Some(mut trial) = highwater_mls::Trial::load(tx, group).await? {
                trial.clear_pending_commit()?;
                trial.store(tx).await?;
            }
        }
    }
    Ok(true)
}

/// The greatest sequence id at which the backend put a current attempt of a group whose echo wasn't applied yet.
pub async fn awaited_echo(tx: &mut impl Reads, group: GroupId) -> Result<Option<SequenceId>, OutboxError> {
    let row = sqlx::query(
        "SELECT max(replied_sequence_id) FROM outbox_attempts WHERE group_id = ? AND current = 1",
    )
    .bind(group.as_bytes().as_slice())
    .fetch_one(tx.conn())
    .await?;
    rows::sequence_id(row.get(0))
}
