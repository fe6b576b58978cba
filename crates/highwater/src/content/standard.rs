//! The types that every app knows.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use highwater_wire::proto::contents::{
    ContentTypeId, DeleteMessage, EncodedContent, GroupUpdated, group_updated,
};
use highwater_wire::{InboxId, MessageId, compression};
use prost::Message as _;

use super::codec::{Codecs, Encoded, guarded};
use super::{
    Attachment, Content, ContentError, ContentType, Custom, MembershipChange, Reaction, ReactionAction,
    ReactionSchema, Reply,
};

pub(super) const AUTHORITY: &str = "xmtp.org";
pub(super) const TEXT: &str = "text";
pub(super) const MARKDOWN: &str = "markdown";
pub(super) const REPLY: &str = "reply";
pub(super) const REACTION: &str = "reaction";
pub(super) const ATTACHMENT: &str = "attachment";
pub(super) const READ_RECEIPT: &str = "readReceipt";
pub(super) const LEAVE_REQUEST: &str = "leave_request";
pub(super) const DELETE_MESSAGE: &str = "deleteMessage";
pub(super) const GROUP_UPDATED: &str = "group_updated";

pub(super) const ENCODING: &str = "encoding";
pub(super) const UTF_8: &str = "UTF-8";
pub(super) const REFERENCE: &str = "reference";
pub(super) const MIME_TYPE: &str = "mimeType";
pub(super) const FILENAME: &str = "filename";

/// How deep replies may lie in one another. Nobody answers with an answer; whoever does so deeper wants the reader's
/// stack.
const MAX_DEPTH: usize = 4;

/// The body of a reaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireReaction {
    #[prost(string, tag = "1")]
    pub(super) reference: String,
    #[prost(string, tag = "2")]
    pub(super) reference_inbox_id: String,
    #[prost(int32, tag = "3")]
    pub(super) action: i32,
    #[prost(string, tag = "4")]
    pub(super) content: String,
    #[prost(int32, tag = "5")]
    pub(super) schema: i32,
}

type Read = Result<Content, ContentError>;

/// Reads content that a member sent.
pub(super) fn read(encoded: EncodedContent, codecs: &Codecs, depth: usize) -> Content {
    let Some(named) = encoded.r#type.as_ref().map(named) else {
        return Content::Custom(Custom::new(encoded, None));
    };
    match read_here(&encoded, &named, codecs, depth) {
        Some(Ok(content)) => content,
        Some(Err(error)) => Content::Custom(Custom::new(encoded, Some(error))),
        None => read_by_app(encoded, &named, codecs),
    }
}

/// Whether no codec of an app is asked for this type.
pub(super) fn is_read_here(named: &ContentType) -> bool {
    matches!(
        (named.authority.as_str(), named.name.as_str(), named.major),
        (
            AUTHORITY,
            TEXT | MARKDOWN
                | REPLY
                | ATTACHMENT
                | READ_RECEIPT
                | LEAVE_REQUEST
                | DELETE_MESSAGE
                | GROUP_UPDATED,
            1
        ) | (AUTHORITY, REACTION, 2)
    )
}

fn read_here(encoded: &EncodedContent, named: &ContentType, codecs: &Codecs, depth: usize) -> Option<Read> {
    if !is_read_here(named) {
        return None;
    }
    Some(match named.name.as_str() {
        TEXT => text(encoded).map(Content::Text),
        MARKDOWN => text(encoded).map(Content::Markdown),
        REPLY => reply(encoded, codecs, depth),
        REACTION => reaction(encoded),
        ATTACHMENT => attachment(encoded),
        READ_RECEIPT => Ok(Content::ReadReceipt),
        LEAVE_REQUEST => Ok(Content::LeaveRequest),
        DELETE_MESSAGE => deletion(encoded),
        // Each client makes transcripts from the commits it applied; one that was sent proves nothing.
        GROUP_UPDATED => Err(malformed("a transcript can't be sent")),
        _ => return None,
    })
}

fn read_by_app(encoded: EncodedContent, named: &ContentType, codecs: &Codecs) -> Content {
    let Some(codec) = codecs.find(named) else {
        return Content::Custom(Custom::new(encoded, None));
    };
    let decoded = compression::content(&encoded).map_err(ContentError::from).and_then(|bytes| {
        let content = Encoded {
            parameters: encoded.parameters.clone().into_iter().collect(),
            fallback: encoded.fallback.clone(),
            bytes: bytes.into_owned(),
        };
        Ok((guarded(|| codec.read(&content))?, content.bytes.len()))
    });
    Content::Custom(match decoded {
        Ok((value, value_bytes)) => Custom { value: Some(value), value_bytes, ..Custom::new(encoded, None) },
        Err(error) => Custom::new(encoded, Some(error)),
    })
}

/// Reads a transcript that was made here.
pub(super) fn transcript(encoded: &EncodedContent) -> Read {
    let updated = GroupUpdated::decode(&*compression::content(encoded)?).map_err(malformed)?;
    Ok(Content::Membership(MembershipChange {
        initiated_by: InboxId::from_str(&updated.initiated_by_inbox_id).ok(),
        added: inboxes(&updated.added_inboxes)?,
        removed: inboxes(&updated.removed_inboxes)?,
        left: inboxes(&updated.left_inboxes)?,
        admins_added: inboxes(&updated.added_admin_inboxes)?,
        admins_removed: inboxes(&updated.removed_admin_inboxes)?,
        super_admins_added: inboxes(&updated.added_super_admin_inboxes)?,
        super_admins_removed: inboxes(&updated.removed_super_admin_inboxes)?,
        fields: updated
            .metadata_field_changes
            .into_iter()
            .map(|change| (change.field_name, change.old_value, change.new_value))
            .collect(),
    }))
}

fn inboxes(named: &[group_updated::Inbox]) -> Result<BTreeSet<InboxId>, ContentError> {
    named.iter().map(|inbox| InboxId::from_str(&inbox.inbox_id).map_err(malformed)).collect()
}

fn text(encoded: &EncodedContent) -> Result<String, ContentError> {
    if encoded.parameters.get(ENCODING).is_some_and(|encoding| encoding != UTF_8) {
        return Err(malformed("its encoding is not UTF-8"));
    }
    let bytes = compression::content(encoded)?;
    String::from_utf8(bytes.into_owned()).map_err(|_| malformed("it is not UTF-8"))
}

fn reply(encoded: &EncodedContent, codecs: &Codecs, depth: usize) -> Read {
    if depth >= MAX_DEPTH {
        return Err(malformed("replies lie too deep in one another"));
    }
    let reference = reference(&parameter(encoded, REFERENCE)?)?;
    let nested = EncodedContent::decode(&*compression::content(encoded)?).map_err(malformed)?;
    Ok(Content::Reply(Reply { reference, content: Box::new(read(nested, codecs, depth + 1)) }))
}

fn reaction(encoded: &EncodedContent) -> Read {
    let wire = WireReaction::decode(&*compression::content(encoded)?).map_err(malformed)?;
    let reference_inbox_id = match wire.reference_inbox_id.as_str() {
        "" => None,
        inbox => Some(InboxId::from_str(inbox).map_err(malformed)?),
    };
    Ok(Content::Reaction(Reaction {
        reference: reference(&wire.reference)?,
        reference_inbox_id,
        action: match wire.action {
            1 => ReactionAction::Added,
            2 => ReactionAction::Removed,
            other => return Err(malformed(format!("a reaction of unknown action {other}"))),
        },
        content: wire.content,
        schema: match wire.schema {
            1 => ReactionSchema::Unicode,
            2 => ReactionSchema::Shortcode,
            3 => ReactionSchema::Custom,
            _ => ReactionSchema::Unspecified,
        },
    }))
}

fn attachment(encoded: &EncodedContent) -> Read {
    Ok(Content::Attachment(Attachment {
        filename: encoded.parameters.get(FILENAME).cloned(),
        mime_type: parameter(encoded, MIME_TYPE)?,
        bytes: compression::content(encoded)?.into_owned(),
    }))
}

fn deletion(encoded: &EncodedContent) -> Read {
    let wire = DeleteMessage::decode(&*compression::content(encoded)?).map_err(malformed)?;
    reference(&wire.message_id).map(Content::Deletion)
}

fn parameter(encoded: &EncodedContent, name: &str) -> Result<String, ContentError> {
    encoded.parameters.get(name).cloned().ok_or_else(|| malformed(format!("it has no `{name}`")))
}

fn reference(hex: &str) -> Result<MessageId, ContentError> {
    MessageId::from_hex(hex).map_err(malformed)
}

fn malformed(why: impl std::fmt::Display) -> ContentError {
    ContentError::Malformed(why.to_string())
}

fn named(id: &ContentTypeId) -> ContentType {
    ContentType {
        authority: id.authority_id.clone(),
        name: id.type_id.clone(),
        major: id.version_major,
        minor: id.version_minor,
    }
}
