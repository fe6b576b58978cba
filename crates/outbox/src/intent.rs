//! Intents: what the app asked for, in the order it asked.

use std::collections::BTreeSet;

use highwater_delivery::{Inserted, MessageKind, NewMessage};
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::contents::{PlaintextEnvelope, plaintext_envelope};
use highwater_wire::{GroupId, InboxId, MessageId, SequenceId};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use crate::OutboxError;
use crate::rows::{self, IntentState};

/// The local name of an intent. Ids of one group are in queue order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(pub(crate) i64);

impl std::fmt::Display for IntentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of a group that an app (or this client, for a member's lost device) asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChangeRequest {
    /// Bring these inboxes in, with every installation they have.
    AddMembers(BTreeSet<InboxId>),
    /// Take these inboxes out.
    RemoveMembers(BTreeSet<InboxId>),
    /// Set the group's name.
    SetName(String),
    /// Set the group's description.
    SetDescription(String),
    /// Bring the entries of these member inboxes up to their identity state: add installations they gained, remove
    /// those they lost.
    RefreshMembership(BTreeSet<InboxId>),
}

/// What became of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Durable here, not accepted by the backend yet. It goes out with the next connection.
    Queued,
    /// Accepted or applied, but not settled: the echo or a follow-up Welcome is still outstanding.
    PublishedUnconfirmed {
        /// Where the backend put it, once that is known.
        sequence_id: Option<SequenceId>,
    },
    /// Read back in order and applied, and every follow-up Welcome was accepted. `sequence_id` is absent when somebody
    /// else's change had already brought about what was asked for.
    Confirmed {
        /// The envelope's id on the group's topic.
        sequence_id: Option<SequenceId>,
    },
    /// This installation left the group before the intent was settled.
    InactiveGroup,
    /// The backend or this client refused it for good.
    Refused {
        /// What was wrong.
        detail: String,
    },
    /// Ordered processing refused it when it was read back.
    Rejected {
        /// The stable code of the reason.
        code: String,
    },
    /// There is no such intent.
    Unknown,
}

impl Outcome {
    /// Whether nothing about this intent will change any more.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Queued | Self::PublishedUnconfirmed { .. })
    }
}

/// Queues a message, storing it as an unpublished record of the conversation.
///
/// `content` is an encoded `EncodedContent`. The same group, key and content give the same message id, and never a
/// second message: the earlier intent is returned. Without a key a random one is made.
///
/// # Errors
/// [`OutboxError::UnknownGroup`] and [`OutboxError::InactiveGroup`]; nothing is stored then.
pub async fn queue_message(
    tx: &mut WriteTx,
    group: GroupId,
    content: Vec<u8>,
    idempotency_key: Option<String>,
) -> Result<(IntentId, MessageId), OutboxError> {
    rows::require_active(tx, group).await?;
    let installation = rows::registered_installation(tx).await?;
    let idempotency_key = idempotency_key.unwrap_or_else(rows::random_key);
    let id = MessageId::derive(group, &idempotency_key, &content);
    let now = tx.now_ns();
    let inserted = highwater_delivery::insert_unpublished(
        tx,
        NewMessage {
            id,
            group,
            kind: MessageKind::Application,
            sender_inbox: installation.inbox,
            sender_installation: Some(installation.key),
            sent_ns: now,
            idempotency_key,
            content,
            sequence_id: None,
            expires_ns: None,
        },
    )
    .await?;
    if let Inserted::Duplicate = inserted {
        let earlier = sqlx::query("SELECT id FROM outbox_intents WHERE message_id = ?")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(tx.conn())
            .await?
            .ok_or_else(|| {
                OutboxError::Refused("this message id was received, not sent by this client".into())
            })?;
        return Ok((IntentId(earlier.get(0)), id));
    }
    let row = sqlx::query(
        "INSERT INTO outbox_intents (group_id, message_id, state, created_ns) VALUES (?, ?, ?, ?) RETURNING id",
    )
    .bind(group.as_bytes().as_slice())
    .bind(id.as_bytes().as_slice())
    .bind(IntentState::Queued as i64)
    .bind(now)
    .fetch_one(tx.conn())
    .await?;
    Ok((IntentId(row.get(0)), id))
}

/// The bytes that are encrypted for a message.
pub(crate) fn plaintext(content: Vec<u8>, idempotency_key: String) -> Vec<u8> {
    PlaintextEnvelope {
        content: Some(plaintext_envelope::Content::V1(plaintext_envelope::V1 { content, idempotency_key })),
    }
    .encode_to_vec()
}

/// Queues a change of a group.
///
/// # Errors
/// [`OutboxError::UnknownGroup`], [`OutboxError::InactiveGroup`], and [`OutboxError::Refused`] for a value over its
/// limit; nothing is stored then.
pub async fn queue_change(
    tx: &mut WriteTx,
    group: GroupId,
    change: ChangeRequest,
) -> Result<IntentId, OutboxError> {
    rows::require_active(tx, group).await?;
    change.check()?;
    rows::insert_change(tx, group, &change).await
}

impl ChangeRequest {
    fn check(&self) -> Result<(), OutboxError> {
        let too_long = |what: &str, limit: usize| {
            Err(OutboxError::Refused(format!("the {what} is longer than {limit} bytes")))
        };
        match self {
            Self::SetName(name) if name.len() > highwater_mls::MAX_NAME_BYTES => {
                too_long("name", highwater_mls::MAX_NAME_BYTES)
            }
            Self::SetDescription(text) if text.len() > highwater_mls::MAX_DESCRIPTION_BYTES => {
                too_long("description", highwater_mls::MAX_DESCRIPTION_BYTES)
            }
            Self::AddMembers(inboxes) | Self::RemoveMembers(inboxes) if inboxes.is_empty() => {
                Err(OutboxError::Refused("no inbox was named".into()))
            }
            _ => Ok(()),
        }
    }
}

/// What became of an intent so far.
pub async fn outcome(tx: &mut impl Reads, intent: IntentId) -> Result<Outcome, OutboxError> {
    let Some(row) = sqlx::query(
        "SELECT i.state, i.sequence_id, i.code, i.detail, a.replied_sequence_id FROM outbox_intents i \
         LEFT JOIN outbox_attempts a ON a.intent_id = i.id AND a.current = 1 WHERE i.id = ?",
    )
    .bind(intent.0)
    .fetch_optional(tx.conn())
    .await?
    else {
        return Ok(Outcome::Unknown);
    };
    let sequence_id = rows::sequence_id(row.get::<Option<i64>, _>(1))?;
    let code: Option<String> = row.get(2);
    let detail: Option<String> = row.get(3);
    Ok(match IntentState::read(row.get(0))? {
        IntentState::Queued => Outcome::Queued,
        IntentState::Prepared => match rows::sequence_id(row.get::<Option<i64>, _>(4))? {
            None => Outcome::Queued,
            replied => Outcome::PublishedUnconfirmed { sequence_id: replied },
        },
        IntentState::Published => Outcome::PublishedUnconfirmed { sequence_id },
        IntentState::Confirmed => Outcome::Confirmed { sequence_id },
        IntentState::Inactive => Outcome::InactiveGroup,
        IntentState::Refused => Outcome::Refused { detail: detail.unwrap_or_default() },
        IntentState::Rejected => Outcome::Rejected { code: code.unwrap_or_default() },
    })
}

/// Groups that have something to prepare, publish or wait for, those whose oldest intent is oldest first.
pub async fn groups_with_work(tx: &mut impl Reads) -> Result<Vec<GroupId>, OutboxError> {
    let found =
        sqlx::query("SELECT group_id FROM outbox_intents WHERE state < 3 GROUP BY group_id ORDER BY min(id)")
            .fetch_all(tx.conn())
            .await?;
    found.iter().map(|row| rows::group_id(row.get(0))).collect()
}

/// How many intents are not settled yet.
pub async fn unresolved_intents(tx: &mut impl Reads) -> Result<u64, OutboxError> {
    let row = sqlx::query("SELECT count(*) FROM outbox_intents WHERE state < 3").fetch_one(tx.conn()).await?;
    Ok(row.get::<i64, _>(0).unsigned_abs())
}
