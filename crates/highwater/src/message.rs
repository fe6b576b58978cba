use highwater_delivery::{DeliveryCursor, MessageKind, MessageStatus, StoredMessage};
use highwater_store::DatabaseId;
use highwater_wire::{GroupId, InboxId, MessageId, SequenceId};

use crate::content::Codecs;
use crate::{Content, ContentError};

/// A message of a conversation, or the transcript of a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id, the same on every client.
    pub id: MessageId,
    /// The conversation.
    pub group_id: GroupId,
    /// Who said it, authenticated by MLS.
    pub sender_inbox_id: InboxId,
    /// When the backend stored it, in nanoseconds since 1970; the local clock until it has.
    pub sent_ns: i64,
    /// Its place on the group's topic, once it has one.
    pub sequence_id: Option<SequenceId>,
    /// Whether it was accepted.
    pub status: MessageStatus,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Its place in this database's delivery order. Absent for a message that isn't deliverable (PROC-050).
    pub cursor: Option<DeliveryCursor>,
    /// What it says.
    pub content: Content,
    /// Text that its sender gave for apps that don't know its type.
    pub fallback: Option<String>,
}

impl Message {
    pub(crate) fn new(database: DatabaseId, codecs: &Codecs, stored: StoredMessage) -> Self {
        let (content, fallback) = match stored.kind {
            _ if stored.deleted => (Content::Deleted, None),
            MessageKind::MembershipChange => (Content::transcript(&stored.content), None),
            MessageKind::Application => Content::sent(&stored.content, codecs),
        };
        Self {
            content,
            fallback,
            cursor: stored.cursor(database),
            id: stored.id,
            group_id: stored.group,
            sender_inbox_id: stored.sender_inbox,
            sent_ns: stored.sent_ns,
            sequence_id: stored.sequence_id,
            status: stored.status,
            failure: stored.failure,
        }
    }

    /// The text to show: the message's own, or the fallback that its sender gave for apps that don't know its type.
    ///
    /// # Errors
    /// [`ContentError`] when there is neither.
    pub fn text(&self) -> Result<&str, ContentError> {
        if let Some(text) = self.content.text().or(self.fallback.as_deref()) {
            return Ok(text);
        }
        Err(match &self.content {
            Content::Membership(_) => ContentError::NotText("the transcript of a change of the group".into()),
            Content::Custom(custom) => {
                custom.error.clone().unwrap_or_else(|| ContentError::NotText(custom.name()))
            }
            other => ContentError::NotText(other.kind().replace('_', " ")),
        })
    }
}

/// A message handed to the app, with the place to resume after it. Having the cursor acknowledges nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The message.
    pub message: Message,
    /// Resume strictly after this item.
    pub cursor: DeliveryCursor,
}
