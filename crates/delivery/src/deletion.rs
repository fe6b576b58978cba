//! Messages that delete messages (PROC-037).

use highwater_store::WriteTx;
use highwater_wire::{
    MessageId, compression,
    proto::contents::{ContentTypeId, DeleteMessage, EncodedContent},
};
use prost::Message as _;

use crate::{DeliveryError, MessageKind, MessageStatus, NewMessage, StoredMessage, delete, message};

/// What a message did to the one it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is no deletion, or one that names no message id.
    NotADeletion,
    /// The content of the target is gone.
    Applied {
        /// The message that was deleted.
        target: MessageId,
    },
    /// The target stays as it was.
    Refused(DeletionRefusal),
}

/// Why a deletion has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeletionRefusal {
    /// No message of that id precedes the deletion in its group.
    UnknownTarget,
    /// The target's content is of a type that can't be deleted.
    NotDeletable,
    /// The sender is neither the target's sender nor a super admin.
    NotAllowed,
}

/// Content types of `xmtp.org`, version 1, that can be deleted.
const DELETABLE: [&str; 8] = [
    "text",
    "markdown",
    "reply",
    "attachment",
    "remoteStaticAttachment",
    "multiRemoteStaticAttachment",
    "transactionReference",
    "walletSendCalls",
];

/// Applies a message that may be a deletion. Its sender is the authenticated one of the record, and
/// `by_super_admin` says whether that inbox was a super admin of the group when the message was
/// processed. Storing the message is another matter: a refused deletion is kept like any other.
///
/// # Errors
/// When the database fails.
pub async fn apply_deletion(
    tx: &mut WriteTx,
    deletion: &NewMessage,
    by_super_admin: bool,
) -> Result<Deletion, DeliveryError> {
    let Some(target) = target(deletion) else {
        return Ok(Deletion::NotADeletion);
    };
    let refused = |why| Ok(Deletion::Refused(why));
    let Some(stored) = message(tx, target).await? else {
        return refused(DeletionRefusal::UnknownTarget);
    };
    if stored.group != deletion.group || !precedes(&stored, deletion) {
        return refused(DeletionRefusal::UnknownTarget);
    }
    if stored.sender_inbox != deletion.sender_inbox && !by_super_admin {
        return refused(DeletionRefusal::NotAllowed);
    }
    if stored.deleted {
        return Ok(Deletion::Applied { target });
    }
    if stored.kind != MessageKind::Application || !deletable(&stored.content) {
        return refused(DeletionRefusal::NotDeletable);
    }
    delete(tx, target).await?;
    Ok(Deletion::Applied { target })
}

/// Whether every client has the target when it gets to the deletion. One that the topic brings later, or never brought,
/// may be stored on this client already: a run of messages is stored at once, and an outgoing one before it is sent.
fn precedes(target: &StoredMessage, deletion: &NewMessage) -> bool {
    let placed = target.sequence_id.zip(deletion.sequence_id);
    target.status == MessageStatus::Published && placed.is_none_or(|(target, deletion)| target < deletion)
}

fn target(deletion: &NewMessage) -> Option<MessageId> {
    if deletion.kind != MessageKind::Application {
        return None;
    }
    let content = EncodedContent::decode(deletion.content.as_slice()).ok()?;
    if !is_first_version_of(content.r#type.as_ref()?, "deleteMessage") {
        return None;
    }
    let deletion = DeleteMessage::decode(&*compression::content(&content).ok()?).ok()?;
    MessageId::from_hex(&deletion.message_id).ok()
}

fn deletable(content: &[u8]) -> bool {
    EncodedContent::decode(content)
        .ok()
        .and_then(|content| content.r#type)
        .is_some_and(|found| DELETABLE.iter().any(|name| is_first_version_of(&found, name)))
}

fn is_first_version_of(found: &ContentTypeId, name: &str) -> bool {
    found.authority_id == "xmtp.org" && found.type_id == name && found.version_major == 1
}
