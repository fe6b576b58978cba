//! Reading and writing the rows that several parts of the outbox share.

use highwater_delivery::ConversationState;
use highwater_store::{Reads, WriteTx};
use highwater_wire::{GroupId, InboxId, InstallationKey, MessageId, SequenceId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::OutboxError;
use crate::intent::{ChangeRequest, IntentId};

/// Stored states of an intent. Those below `Confirmed` are unresolved; the index on open intents relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntentState {
    Queued = 0,
    Prepared = 1,
    /// The echo was applied; Welcomes are still owed.
    Published = 2,
    Confirmed = 3,
    Inactive = 4,
    Refused = 5,
    Rejected = 6,
}

impl IntentState {
    pub(crate) fn read(value: i64) -> Result<Self, OutboxError> {
        Ok(match value {
            0 => Self::Queued,
            1 => Self::Prepared,
            2 => Self::Published,
            3 => Self::Confirmed,
            4 => Self::Inactive,
            5 => Self::Refused,
            6 => Self::Rejected,
            _ => return Err(OutboxError::Damaged("intent state")),
        })
    }
}

/// What an intent asks for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Message(MessageId),
    Change(ChangeRequest),
}

/// An intent that blocks or awaits something: its echo was not applied yet.
pub(crate) struct OpenIntent {
    pub(crate) id: IntentId,
    pub(crate) asked: Asked,
    pub(crate) prepared: bool,
    /// The backend accepted the current attempt.
    pub(crate) replied: bool,
}

/// The intents of a group whose echo was not applied yet, in queue order. At most `limit` are read.
pub(crate) async fn open_intents(
    tx: &mut impl Reads,
    group: GroupId,
    limit: u32,
) -> Result<Vec<OpenIntent>, OutboxError> {
    let found = sqlx::query(
        "SELECT i.id, i.message_id, i.change, i.state, a.replied_sequence_id IS NOT NULL FROM outbox_intents i \
         LEFT JOIN outbox_attempts a ON a.intent_id = i.id AND a.current = 1 \
         WHERE i.group_id = ? AND i.state < 2 ORDER BY i.id LIMIT ?",
    )
    .bind(group.as_bytes().as_slice())
    .bind(i64::from(limit))
    .fetch_all(tx.conn())
    .await?;
    found
        .iter()
        .map(|row| {
            Ok(OpenIntent {
                id: IntentId(row.get(0)),
                asked: asked(row, 1, 2)?,
                prepared: IntentState::read(row.get(3))? == IntentState::Prepared,
                replied: row.get(4),
            })
        })
        .collect()
}

/// Reads what an intent asks for from its two columns.
pub(crate) fn asked(row: &SqliteRow, message: usize, change: usize) -> Result<Asked, OutboxError> {
    if let Some(id) = row.get::<Option<&[u8]>, _>(message) {
        let id = id.try_into().map_err(|_| OutboxError::Damaged("message id"))?;
        return Ok(Asked::Message(MessageId::from_bytes(id)));
    }
    let change: &[u8] = row.get(change);
    postcard::from_bytes(change).map(Asked::Change).map_err(|_| OutboxError::Damaged("change"))
}

pub(crate) async fn insert_change(
    tx: &mut WriteTx,
    group: GroupId,
    change: &ChangeRequest,
) -> Result<IntentId, OutboxError> {
    let change = postcard::to_stdvec(change).map_err(|_| OutboxError::Damaged("change"))?;
    let now = tx.now_ns();
    let row = sqlx::query(
        "INSERT INTO outbox_intents (group_id, change, state, created_ns) VALUES (?, ?, ?, ?) RETURNING id",
    )
    .bind(group.as_bytes().as_slice())
    .bind(change)
    .bind(IntentState::Queued as i64)
    .bind(now)
    .fetch_one(tx.conn())
    .await?;
    Ok(IntentId(row.get(0)))
}

/// Ends or moves an intent; what is known of its place on the topic is kept.
pub(crate) async fn set_state(
    tx: &mut WriteTx,
    intent: IntentId,
    state: IntentState,
    sequence_id: Option<SequenceId>,
    code: Option<&str>,
    detail: Option<&str>,
) -> Result<(), OutboxError> {
    sqlx::query(
        "UPDATE outbox_intents SET state = ?, sequence_id = coalesce(?, sequence_id), code = ?, detail = ? WHERE id = ?",
    )
    .bind(state as i64)
    .bind(sequence_id.map(SequenceId::as_i64))
    .bind(code)
    .bind(detail)
    .bind(intent.0)
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Makes an attempt history: it stays as a row, so that a late echo of it is known for what it is.
pub(crate) async fn retire_attempt(tx: &mut WriteTx, intent: IntentId) -> Result<(), OutboxError> {
    sqlx::query("UPDATE outbox_attempts SET current = 0 WHERE intent_id = ? AND current = 1")
        .bind(intent.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// This installation with the inbox it speaks for.
pub(crate) struct Registered {
    pub(crate) key: InstallationKey,
    pub(crate) inbox: InboxId,
}

pub(crate) async fn registered_installation(tx: &mut impl Reads) -> Result<Registered, OutboxError> {
    let installation = highwater_mls::installation(tx).await?.ok_or(OutboxError::NotRegistered)?;
    let inbox = installation.inbox.ok_or(OutboxError::NotRegistered)?;
    Ok(Registered { key: installation.key, inbox })
}

/// Refuses work on a group that is unknown or that this installation isn't in.
pub(crate) async fn require_active(tx: &mut impl Reads, group: GroupId) -> Result<(), OutboxError> {
    match highwater_delivery::conversation(tx, group).await? {
        None => Err(OutboxError::UnknownGroup(group)),
        Some(found) if found.state == ConversationState::Active => Ok(()),
        Some(_) => Err(OutboxError::InactiveGroup(group)),
    }
}

pub(crate) fn group_id(bytes: &[u8]) -> Result<GroupId, OutboxError> {
    bytes.try_into().map(GroupId::from_bytes).map_err(|_| OutboxError::Damaged("group id"))
}

pub(crate) fn sequence_id(value: Option<i64>) -> Result<Option<SequenceId>, OutboxError> {
    value.map(|id| SequenceId::try_from(id).map_err(|_| OutboxError::Damaged("sequence id"))).transpose()
}

pub(crate) fn random_key() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}
