//! Message records.

use std::fmt;

use highwater_store::{DatabaseId, Reads};
use highwater_wire::{GroupId, InboxId, InstallationKey, MessageId, SequenceId};
use sqlx::{Row as _, sqlite::SqliteRow};

use crate::ids::WITH_ID;
use crate::{DeliveryCursor, DeliveryError, DeliveryNumber, MAX_LOCAL_READ_ROWS, local_read::fitting};

/// What a message is to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// Content that a member sent.
    Application,
    /// The transcript of a commit: who came, who went, what was renamed.
    MembershipChange,
}

/// How far an outgoing message got. What others sent is always Published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageStatus {
    /// Stored here, not confirmed by the ordered topic yet.
    Unpublished,
    /// Confirmed, and numbered.
    Published,
    /// It will not be published.
    Failed,
}

/// A message to store.
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The same on every client, and over every rebuild of its ciphertext.
    pub id: MessageId,
    /// Its conversation; must be stored by the end of the transaction.
    pub group: GroupId,
    /// What it is to the app.
    pub kind: MessageKind,
    /// The authenticated sender.
    pub sender_inbox: InboxId,
    /// The authenticated installation, where it is known.
    pub sender_installation: Option<InstallationKey>,
    /// When it was sent, nanoseconds since the Unix epoch: the server's time, or the local clock's
    /// for an Unpublished one.
    pub sent_ns: i64,
    /// What its id was derived from, besides group and content.
    pub idempotency_key: String,
    /// An encoded `EncodedContent`.
    pub content: Vec<u8>,
    /// Its envelope's id on the group's topic, where it came from there.
    pub sequence_id: Option<SequenceId>,
    /// When it disappears, nanoseconds since the Unix epoch.
    pub expires_ns: Option<i64>,
}

/// A message as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The same on every client, and over every rebuild of its ciphertext.
    pub id: MessageId,
    /// Its conversation.
    pub group: GroupId,
    /// What it is to the app.
    pub kind: MessageKind,
    /// The authenticated sender.
    pub sender_inbox: InboxId,
    /// The authenticated installation, where it is known.
    pub sender_installation: Option<InstallationKey>,
    /// When it was sent, nanoseconds since the Unix epoch.
    pub sent_ns: i64,
    /// What its id was derived from, besides group and content.
    pub idempotency_key: String,
    /// An encoded `EncodedContent`; empty once [`StoredMessage::deleted`].
    pub content: Vec<u8>,
    /// Its envelope's id on the group's topic, where it came from there.
    pub sequence_id: Option<SequenceId>,
    /// When it disappears, nanoseconds since the Unix epoch.
    pub expires_ns: Option<i64>,
    /// How far it got.
    pub status: MessageStatus,
    /// Its place in this database's order; `Some` exactly when it is Published.
    pub delivery_number: Option<DeliveryNumber>,
    /// Why it failed.
    pub failure: Option<String>,
    /// The content was removed, by a deletion or because its time had come.
    pub deleted: bool,
}

impl From<StoredMessage> for NewMessage {
    /// The message without what became of it here.
    fn from(stored: StoredMessage) -> Self {
        Self {
            id: stored.id,
            group: stored.group,
            kind: stored.kind,
            sender_inbox: stored.sender_inbox,
            sender_installation: stored.sender_installation,
            sent_ns: stored.sent_ns,
            idempotency_key: stored.idempotency_key,
            content: stored.content,
            sequence_id: stored.sequence_id,
            expires_ns: stored.expires_ns,
        }
    }
}

/// What a message counts in a local read besides its texts and content.
const FIXED_BYTES: u64 = 256;

impl StoredMessage {
    /// The cursor that resumes strictly after this message; `None` while it has no delivery number
    /// (PROC-050).
    pub fn cursor(&self, database: DatabaseId) -> Option<DeliveryCursor> {
        self.delivery_number.map(|number| DeliveryCursor::after(database, number))
    }

    /// What it counts in a local read.
    pub fn local_bytes(&self) -> u64 {
        FIXED_BYTES + (self.content.len() + self.idempotency_key.len()) as u64
    }
}

/// [`StoredMessage::local_bytes`], before the message is read.
pub(crate) const LOCAL_BYTES: &str = "256 + length(m.content) + length(m.idempotency_key)";

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("id", &self.id)
            .field("group", &self.group)
            .field("kind", &self.kind)
            .field("content_bytes", &self.content.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredMessage")
            .field("id", &self.id)
            .field("group", &self.group)
            .field("kind", &self.kind)
            .field("status", &self.status)
            .field("delivery_number", &self.delivery_number)
            .field("content_bytes", &self.content.len())
            .finish_non_exhaustive()
    }
}

impl MessageKind {
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Application => 1,
            Self::MembershipChange => 2,
        }
    }

    fn from_stored(kind: i64) -> Result<Self, DeliveryError> {
        match kind {
            1 => Ok(Self::Application),
            2 => Ok(Self::MembershipChange),
            _ => Err(DeliveryError::Damaged("unknown message kind")),
        }
    }
}

impl MessageStatus {
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Unpublished => 1,
            Self::Published => 2,
            Self::Failed => 3,
        }
    }

    pub(crate) fn from_stored(status: i64) -> Result<Self, DeliveryError> {
        match status {
            1 => Ok(Self::Unpublished),
            2 => Ok(Self::Published),
            3 => Ok(Self::Failed),
            _ => Err(DeliveryError::Damaged("unknown message status")),
        }
    }
}

/// The columns that [`from_row`] reads, of `delivery_messages AS m`.
pub(crate) const COLUMNS: &str = "m.id, m.group_id, m.kind, m.sender_inbox, m.sender_installation, \
     m.sent_ns, m.idempotency_key, m.content, m.sequence_id, m.expires_ns, m.status, \
     m.delivery_number, m.failure, m.deleted";

pub(crate) fn from_row(row: &SqliteRow) -> Result<StoredMessage, DeliveryError> {
    let installation = row.try_get::<Option<&[u8]>, _>(4)?.map(InstallationKey::try_from);
    let sequence_id = row.try_get::<Option<i64>, _>(8)?.map(SequenceId::try_from);
    let number = row.try_get::<Option<i64>, _>(11)?.map(DeliveryNumber::from_stored);
    Ok(StoredMessage {
        id: MessageId::try_from(row.try_get::<&[u8], _>(0)?)?,
        group: GroupId::try_from(row.try_get::<&[u8], _>(1)?)?,
        kind: MessageKind::from_stored(row.try_get(2)?)?,
        sender_inbox: InboxId::try_from(row.try_get::<&[u8], _>(3)?)?,
        sender_installation: installation.transpose()?,
        sent_ns: row.try_get(5)?,
        idempotency_key: row.try_get(6)?,
        content: row.try_get(7)?,
        sequence_id: sequence_id.transpose()?,
        expires_ns: row.try_get(9)?,
        status: MessageStatus::from_stored(row.try_get(10)?)?,
        delivery_number: number.transpose()?,
        failure: row.try_get(12)?,
        deleted: row.try_get(13)?,
    })
}

/// A message by its id, whatever its state: eligible for delivery or not.
///
/// # Errors
/// When the database fails.
pub async fn message(tx: &mut impl Reads, id: MessageId) -> Result<Option<StoredMessage>, DeliveryError> {
    let mut query = sqlx::QueryBuilder::new("SELECT ");
    query.push(COLUMNS).push(" FROM delivery_messages AS m WHERE ").push(WITH_ID);
    let row = query.build().bind(id.as_bytes().as_slice()).fetch_optional(tx.conn()).await?;
    row.as_ref().map(from_row).transpose()
}

/// The messages of a group that have no delivery number, Unpublished and Failed, in the order they
/// were stored: those behind `after`, the last message of the page before, or from the first one. At
/// most [`MAX_LOCAL_READ_ROWS`] and [`MAX_LOCAL_READ_BYTES`](crate::MAX_LOCAL_READ_BYTES), but always
/// one if there is one, so that an empty page is the end. They are the app's own and in no reader or
/// history. Whatever has become of `after` since its page was read, its place stays.
///
/// # Errors
/// [`DeliveryError::UnknownMessage`] when `after` is not stored here; when the database fails.
pub async fn unpublished(
    tx: &mut impl Reads,
    group: GroupId,
    after: Option<MessageId>,
) -> Result<Vec<StoredMessage>, DeliveryError> {
    let after = match after {
        Some(id) => row_of(tx, id).await?,
        None => 0,
    };
    let fitting =
        fitting(tx, MAX_LOCAL_READ_ROWS, |sql, limit| push_unpublished(sql, group, after, limit)).await?;
    let mut query = sqlx::QueryBuilder::new("SELECT ");
    query.push(COLUMNS);
    push_unpublished(&mut query, group, after, fitting.rows);
    query.build().fetch_all(tx.conn()).await?.iter().map(from_row).collect()
}

/// The place of a message in the order of storing.
async fn row_of(tx: &mut impl Reads, id: MessageId) -> Result<i64, DeliveryError> {
    let mut query = sqlx::QueryBuilder::new("SELECT row FROM delivery_messages WHERE ");
    query.push(WITH_ID);
    let row = query.build().bind(id.as_bytes().as_slice()).fetch_optional(tx.conn()).await?;
    Ok(row.ok_or(DeliveryError::UnknownMessage(id))?.try_get(0)?)
}

fn push_unpublished(
    query: &mut sqlx::QueryBuilder<sqlx::Sqlite>,
    group: GroupId,
    after_row: i64,
    limit: u32,
) {
    query.push(
        " FROM delivery_messages AS m WHERE m.delivery_number IS NULL AND m.deleted = 0 AND m.group_id = ",
    );
    query.push_bind(group.as_bytes().to_vec());
    query.push(" AND m.row > ").push_bind(after_row);
    query.push(" ORDER BY m.row LIMIT ").push_bind(limit);
}
