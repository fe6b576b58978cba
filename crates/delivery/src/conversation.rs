//! Conversation records.

use std::collections::{BTreeMap, BTreeSet};

use highwater_store::{Reads, WriteTx};
use highwater_wire::{Cursor, GroupId, InboxId, SequenceId};
use sqlx::{QueryBuilder, Row as _, sqlite::SqliteRow};

use crate::DeliveryError;

/// What a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConversationKind {
    /// A group of any size.
    Group,
    /// Two inboxes, for good.
    Dm {
        /// The other one.
        peer: InboxId,
    },
}

/// [`ConversationKind`], as filters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConversationType {
    /// A group of any size.
    Group,
    /// Two inboxes.
    Dm,
}

/// Whether this installation takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConversationState {
    /// It is a member.
    Active,
    /// It was removed.
    Inactive,
    /// An import brought messages, but no membership: inert until a Welcome activates it (PROC-051).
    Restored,
}

/// What the person said about a conversation. Filters only what is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consent {
    /// Nothing yet.
    Unknown,
    /// Wanted.
    Allowed,
    /// Not wanted.
    Denied,
}

/// A conversation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// Its MLS group.
    pub group: GroupId,
    /// What it is.
    pub kind: ConversationKind,
    /// Whether this installation takes part.
    pub state: ConversationState,
    /// What the person said about it.
    pub consent: Consent,
    /// Its name.
    pub name: Option<String>,
    /// When it was first stored here, nanoseconds since the Unix epoch.
    pub created_ns: i64,
    /// Who added this installation.
    pub adder: Option<InboxId>,
    /// The Welcome that brought it, if one did.
    pub discovered_by: Option<SequenceId>,
}

impl ConversationKind {
    /// The type that filters name.
    pub fn conversation_type(self) -> ConversationType {
        match self {
            Self::Group => ConversationType::Group,
            Self::Dm { .. } => ConversationType::Dm,
        }
    }

    /// The other inbox of a DM.
    pub fn peer(self) -> Option<InboxId> {
        match self {
            Self::Group => None,
            Self::Dm { peer } => Some(peer),
        }
    }
}

impl ConversationType {
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Group => 1,
            Self::Dm => 2,
        }
    }
}

impl ConversationState {
    fn stored(self) -> i64 {
        match self {
            Self::Active => 1,
            Self::Inactive => 2,
            Self::Restored => 3,
        }
    }

    fn from_stored(state: i64) -> Result<Self, DeliveryError> {
        match state {
            1 => Ok(Self::Active),
            2 => Ok(Self::Inactive),
            3 => Ok(Self::Restored),
            _ => Err(DeliveryError::Damaged("unknown conversation state")),
        }
    }
}

impl Consent {
    pub(crate) fn stored(self) -> i64 {
        match self {
            Self::Unknown => 0,
            Self::Allowed => 1,
            Self::Denied => 2,
        }
    }

    fn from_stored(consent: i64) -> Result<Self, DeliveryError> {
        match consent {
            0 => Ok(Self::Unknown),
            1 => Ok(Self::Allowed),
            2 => Ok(Self::Denied),
            _ => Err(DeliveryError::Damaged("unknown consent")),
        }
    }
}

/// Stores a conversation. One that is stored already takes everything over except `consent` and
/// `created_ns`, which stay as they were, and `discovered_by`, which stays when the new one has
/// none: a rejoin or an activation keeps what the person said and when it began.
///
/// # Errors
/// When the database fails.
pub async fn put_conversation(tx: &mut WriteTx, conversation: Conversation) -> Result<(), DeliveryError> {
    sqlx::query(
        "INSERT INTO delivery_conversations \
             (group_id, kind, peer, state, consent, name, created_ns, adder, discovered_by) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (group_id) DO UPDATE SET kind = excluded.kind, peer = excluded.peer, \
             state = excluded.state, name = excluded.name, adder = excluded.adder, \
             discovered_by = coalesce(excluded.discovered_by, delivery_conversations.discovered_by)",
    )
    .bind(conversation.group.as_bytes().as_slice())
    .bind(conversation.kind.conversation_type().stored())
    .bind(conversation.kind.peer().map(|peer| peer.as_bytes().to_vec()))
    .bind(conversation.state.stored())
    .bind(conversation.consent.stored())
    .bind(conversation.name)
    .bind(conversation.created_ns)
    .bind(conversation.adder.map(|adder| adder.as_bytes().to_vec()))
    .bind(conversation.discovered_by.map(SequenceId::as_i64))
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Records whether this installation takes part.
///
/// # Errors
/// [`DeliveryError::UnknownConversation`]; when the database fails.
pub async fn set_state(
    tx: &mut WriteTx,
    group: GroupId,
    state: ConversationState,
) -> Result<(), DeliveryError> {
    let updated = sqlx::query("UPDATE delivery_conversations SET state = ? WHERE group_id = ?")
        .bind(state.stored())
        .bind(group.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    found(group, updated.rows_affected())
}

/// Records the name, or that there is none.
///
/// # Errors
/// [`DeliveryError::UnknownConversation`]; when the database fails.
pub async fn set_name(tx: &mut WriteTx, group: GroupId, name: Option<&str>) -> Result<(), DeliveryError> {
    let updated = sqlx::query("UPDATE delivery_conversations SET name = ? WHERE group_id = ?")
        .bind(name)
        .bind(group.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    found(group, updated.rows_affected())
}

/// Records what the person said. Counts for every later handoff, not for an item already out.
///
/// # Errors
/// [`DeliveryError::UnknownConversation`]; when the database fails.
pub async fn set_consent(tx: &mut WriteTx, group: GroupId, consent: Consent) -> Result<(), DeliveryError> {
    let updated = sqlx::query("UPDATE delivery_conversations SET consent = ? WHERE group_id = ?")
        .bind(consent.stored())
        .bind(group.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    found(group, updated.rows_affected())
}

fn found(group: GroupId, rows: u64) -> Result<(), DeliveryError> {
    if rows == 0 { Err(DeliveryError::UnknownConversation(group)) } else { Ok(()) }
}

const SELECT: &str = "SELECT c.group_id, c.kind, c.peer, c.state, c.consent, c.name, c.created_ns, \
     c.adder, c.discovered_by FROM delivery_conversations AS c ";

/// A conversation by its group.
///
/// # Errors
/// When the database fails.
pub async fn conversation(
    tx: &mut impl Reads,
    group: GroupId,
) -> Result<Option<Conversation>, DeliveryError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push("WHERE c.group_id = ").push_bind(group.as_bytes().to_vec());
    let row = query.build().fetch_optional(tx.conn()).await?;
    row.as_ref().map(from_row).transpose()
}

/// The states of those of `groups` that are known here.
///
/// # Errors
/// When the database fails.
pub async fn conversation_states(
    tx: &mut impl Reads,
    groups: &[GroupId],
) -> Result<BTreeMap<GroupId, ConversationState>, DeliveryError> {
    let mut states = BTreeMap::new();
    for groups in groups.chunks(GROUPS_PER_STATEMENT) {
        let mut query =
            QueryBuilder::new("SELECT group_id, state FROM delivery_conversations WHERE group_id IN (");
        let mut list = query.separated(", ");
        for group in groups {
            list.push_bind(group.as_bytes().to_vec());
        }
        list.push_unseparated(")");
        for row in query.build().fetch_all(tx.conn()).await? {
            let group = GroupId::try_from(row.try_get::<&[u8], _>(0)?)?;
            states.insert(group, ConversationState::from_stored(row.try_get(1)?)?);
        }
    }
    Ok(states)
}

/// How many groups one statement asks for.
const GROUPS_PER_STATEMENT: usize = 1_000;

/// Every conversation, by group.
///
/// # Errors
/// When the database fails.
pub async fn conversations(tx: &mut impl Reads) -> Result<Vec<Conversation>, DeliveryError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push("ORDER BY c.group_id");
    query.build().fetch_all(tx.conn()).await?.iter().map(from_row).collect()
}

/// The groups of the conversations that this installation takes part in.
///
/// # Errors
/// When the database fails.
pub async fn active_groups(tx: &mut impl Reads) -> Result<BTreeSet<GroupId>, DeliveryError> {
    let rows = sqlx::query("SELECT group_id FROM delivery_conversations WHERE state = ?")
        .bind(ConversationState::Active.stored())
        .fetch_all(tx.conn())
        .await?;
    rows.iter().map(|row| Ok(GroupId::try_from(row.try_get::<&[u8], _>(0)?)?)).collect()
}

/// Which conversations there are and in which state, as one number to compare: while it stays the same, nothing of that
/// has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationsRevision(i64);

/// The revision of this snapshot.
///
/// # Errors
/// When the database fails.
pub async fn conversations_revision(tx: &mut impl Reads) -> Result<ConversationsRevision, DeliveryError> {
    let revision = sqlx::query_scalar("SELECT revision FROM delivery_conversations_revision WHERE id = 1")
        .fetch_one(tx.conn())
        .await?;
    Ok(ConversationsRevision(revision))
}

/// The DMs with an inbox, the most recently active one first. Two people can have more than one,
/// when both started it.
///
/// # Errors
/// When the database fails.
pub async fn dms_with(tx: &mut impl Reads, peer: InboxId) -> Result<Vec<Conversation>, DeliveryError> {
    let mut query = QueryBuilder::new(SELECT);
    query.push("WHERE c.peer = ").push_bind(peer.as_bytes().to_vec());
    query.push(
        " ORDER BY coalesce((SELECT max(m.delivery_number) FROM delivery_messages AS m \
         WHERE m.group_id = c.group_id), 0) DESC, c.created_ns DESC, c.group_id",
    );
    query.build().fetch_all(tx.conn()).await?.iter().map(from_row).collect()
}

/// The conversations that Welcomes at or below a position brought, in the order of the Welcomes.
///
/// # Errors
/// When the database fails.
pub async fn discovered_through(
    tx: &mut impl Reads,
    welcome_through: Cursor,
) -> Result<Vec<(GroupId, SequenceId)>, DeliveryError> {
    let rows = sqlx::query(
        "SELECT group_id, discovered_by FROM delivery_conversations \
         WHERE discovered_by IS NOT NULL AND discovered_by <= ? ORDER BY discovered_by",
    )
    .bind(welcome_through.as_i64())
    .fetch_all(tx.conn())
    .await?;
    rows.iter()
        .map(|row| {
            let group = GroupId::try_from(row.try_get::<&[u8], _>(0)?)?;
            Ok((group, SequenceId::try_from(row.try_get::<i64, _>(1)?)?))
        })
        .collect()
}

fn from_row(row: &SqliteRow) -> Result<Conversation, DeliveryError> {
    let inbox = |column| -> Result<Option<InboxId>, DeliveryError> {
        let bytes = row.try_get::<Option<&[u8]>, usize>(column)?;
        Ok(bytes.map(InboxId::try_from).transpose()?)
    };
    let kind = match (row.try_get::<i64, _>(1)?, inbox(2)?) {
        (1, None) => ConversationKind::Group,
        (2, Some(peer)) => ConversationKind::Dm { peer },
        _ => return Err(DeliveryError::Damaged("unknown conversation kind")),
    };
    let discovered_by = row.try_get::<Option<i64>, _>(8)?.map(SequenceId::try_from);
    Ok(Conversation {
        group: GroupId::try_from(row.try_get::<&[u8], _>(0)?)?,
        kind,
        state: ConversationState::from_stored(row.try_get(3)?)?,
        consent: Consent::from_stored(row.try_get(4)?)?,
        name: row.try_get(5)?,
        created_ns: row.try_get(6)?,
        adder: inbox(7)?,
        discovered_by: discovered_by.transpose()?,
    })
}
