//! What messages say: the forms an app can read, and those it is given as they came.

mod codec;
mod make;
mod standard;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use highwater_wire::proto::contents::EncodedContent;
use highwater_wire::{CompressionError, InboxId, MessageId, compression};
use prost::Message as _;

pub use codec::{Codec, CodecError, Encoded};
pub use make::{
    attachment_content, codec_content, deletion_content, markdown_content, reaction_content,
    read_receipt_content, reply_content, text_content,
};

pub(crate) use codec::{AnyCodec, Codecs};
pub(crate) use make::check;

/// Why content could not be read or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// It has no text, and its sender gave none to show instead.
    #[error("the message is no text but {0}")]
    NotText(String),
    /// It is not what its type says.
    #[error("the content is malformed: {0}")]
    Malformed(String),
    /// It would be longer than 16 MiB uncompressed.
    #[error("the content is longer than 16 MiB uncompressed")]
    TooLong,
    /// The app's codec of its type failed, in its own words.
    #[error("the app's codec failed: {0}")]
    Codec(String),
    /// The app's codec of its type panicked.
    #[error("the app's codec panicked")]
    CodecPanicked,
}

impl From<CompressionError> for ContentError {
    fn from(error: CompressionError) -> Self {
        match error {
            CompressionError::TooLong => Self::TooLong,
            other => Self::Malformed(other.to_string()),
        }
    }
}

/// The name of a content type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentType {
    /// Who defines it.
    pub authority: String,
    /// Its name.
    pub name: String,
    /// Its major version: another one is another type.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
}

impl std::fmt::Display for ContentType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}.{}", self.authority, self.name, self.major, self.minor)
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(String),
    /// Text with Markdown in it.
    Markdown(String),
    /// An answer to an earlier message.
    Reply(Reply),
    /// A reaction to an earlier message.
    Reaction(Reaction),
    /// A small file, whole.
    Attachment(Attachment),
    /// The sender has read the conversation up to here.
    ReadReceipt,
    /// The sender asks to be taken out of the group.
    LeaveRequest,
    /// The sender asks every client to delete this message. Whether that was done, the message itself tells.
    Deletion(MessageId),
    /// The transcript of a change of the group, made here from the applied commit. Nobody can send one.
    Membership(MembershipChange),
    /// The content is gone: the message was deleted, or its time was over. Only [`Client::message`](crate::Client::message)
    /// shows it: no reader and no page holds such a message any more.
    Deleted,
    /// A type that only an app's codec knows, or nobody here; or one whose codec failed.
    Custom(Custom),
}

/// An answer to an earlier message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The message that is answered. It need not be stored here.
    pub reference: MessageId,
    /// The answer.
    pub content: Box<Content>,
}

/// A reaction to an earlier message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The message that is reacted to. It need not be stored here.
    pub reference: MessageId,
    /// Who sent that message, if the reaction says so.
    pub reference_inbox_id: Option<InboxId>,
    /// Whether the reaction comes or goes.
    pub action: ReactionAction,
    /// The reaction itself.
    pub content: String,
    /// What `content` is.
    pub schema: ReactionSchema,
}

/// Whether a reaction comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactionAction {
    /// It comes.
    Added,
    /// It goes.
    Removed,
}

/// What the content of a reaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactionSchema {
    /// The sender didn't say.
    Unspecified,
    /// An emoji.
    Unicode,
    /// The name of an emoji, as `:wave:`.
    Shortcode,
    /// Anything the apps have agreed on.
    Custom,
}

/// A small file, whole.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, if it has one. It comes from the sender: don't use it as a path.
    pub filename: Option<String>,
    /// What it is, as `image/png`. It comes from the sender.
    pub mime_type: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachment")
            .field("filename", &self.filename)
            .field("mime_type", &self.mime_type)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// What a commit changed about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MembershipChange {
    /// Whose commit it was.
    pub initiated_by: Option<InboxId>,
    /// Inboxes that came in.
    pub added: BTreeSet<InboxId>,
    /// Inboxes that were taken out.
    pub removed: BTreeSet<InboxId>,
    /// Inboxes that left.
    pub left: BTreeSet<InboxId>,
    /// Inboxes that may take members out from now on.
    pub admins_added: BTreeSet<InboxId>,
    /// Inboxes that may no longer.
    pub admins_removed: BTreeSet<InboxId>,
    /// Inboxes that may change the admins from now on.
    pub super_admins_added: BTreeSet<InboxId>,
    /// Inboxes that may no longer.
    pub super_admins_removed: BTreeSet<InboxId>,
    /// Fields that changed: name, old and new value.
    pub fields: Vec<(String, Option<String>, Option<String>)>,
}

/// Content that this library doesn't read itself, or couldn't: as it came, and what the app's codec made of it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Custom {
    /// Its type, where it names one.
    pub content_type: Option<ContentType>,
    /// The type's parameters.
    pub parameters: BTreeMap<String, String>,
    /// Text to show instead, if the sender gave any.
    pub fallback: Option<String>,
    /// The content's bytes, compressed if they came so; the whole stored bytes where they aren't even an
    /// `EncodedContent`.
    pub bytes: Vec<u8>,
    /// Why the codec of this type failed, if there is one and it did.
    pub error: Option<ContentError>,
    compression: Option<i32>,
    value: Option<Arc<dyn Any + Send + Sync>>,
    /// What the codec was given to make it of.
    value_bytes: usize,
}

impl Custom {
    fn new(encoded: EncodedContent, error: Option<ContentError>) -> Self {
        Self {
            content_type: encoded.r#type.map(|named| ContentType {
                authority: named.authority_id,
                name: named.type_id,
                major: named.version_major,
                minor: named.version_minor,
            }),
            parameters: encoded.parameters.into_iter().collect(),
            fallback: encoded.fallback,
            bytes: encoded.content,
            error,
            compression: encoded.compression,
            value: None,
            value_bytes: 0,
        }
    }

    /// What the app's own codec made of it: `None` when there is no codec of this type, it failed, or its values are of
    /// another type.
    pub fn value<T: 'static>(&self) -> Option<&T> {
        self.value.as_deref()?.downcast_ref()
    }

    /// The content's bytes, uncompressed.
    ///
    /// # Errors
    /// [`ContentError::TooLong`] over 16 MiB, [`ContentError::Malformed`] for what doesn't decompress.
    pub fn uncompressed(&self) -> Result<Vec<u8>, ContentError> {
        Ok(compression::uncompressed(&self.bytes, self.compression)?)
    }

    /// The type's name for people.
    pub(crate) fn name(&self) -> String {
        self.content_type.as_ref().map_or_else(|| "of no known type".into(), ToString::to_string)
    }
}

impl std::fmt::Debug for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Custom")
            .field("content_type", &self.content_type)
            .field("bytes", &self.bytes.len())
            .field("error", &self.error)
            .field("decoded", &self.value.is_some())
            .finish_non_exhaustive()
    }
}

/// As it came: what a codec makes of equal bytes is not compared.
impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        (&self.content_type, &self.parameters, &self.fallback, &self.bytes, &self.error, self.compression)
            == (
                &other.content_type,
                &other.parameters,
                &other.fallback,
                &other.bytes,
                &other.error,
                other.compression,
            )
    }
}

impl Eq for Custom {}

impl Content {
    /// Reads what a member sent. Never fails: what can't be read is kept as it came, so that one message can't stop a
    /// stream (PROC-045). Gives the fallback too, which its sender meant for apps that don't know the type.
    pub(crate) fn sent(bytes: &[u8], codecs: &Codecs) -> (Self, Option<String>) {
        let encoded = match EncodedContent::decode(bytes) {
            Ok(encoded) => encoded,
            Err(_) => return (noise(bytes), None),
        };
        let fallback = encoded.fallback.clone();
        (standard::read(encoded, codecs, 0), fallback)
    }

    /// Reads a transcript that was made here.
    pub(crate) fn transcript(bytes: &[u8]) -> Self {
        match EncodedContent::decode(bytes) {
            Ok(encoded) => standard::transcript(&encoded)
                .unwrap_or_else(|error| Self::Custom(Custom::new(encoded, Some(error)))),
            Err(_) => noise(bytes),
        }
    }

    /// What it is, in a word: `text`, `reply`, `custom`. For logs and for output that programs read.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Markdown(_) => "markdown",
            Self::Reply(_) => "reply",
            Self::Reaction(_) => "reaction",
            Self::Attachment(_) => "attachment",
            Self::ReadReceipt => "read_receipt",
            Self::LeaveRequest => "leave_request",
            Self::Deletion(_) => "deletion",
            Self::Membership(_) => "membership",
            Self::Deleted => "deleted",
            Self::Custom(_) => "custom",
        }
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Markdown(text) => text.len(),
            Self::Reply(reply) => reply.content.bytes(),
            Self::Reaction(reaction) => reaction.content.len(),
            Self::Attachment(attachment) => attachment.bytes.len(),
            Self::Custom(custom) => custom.bytes.len() + custom.value_bytes,
            Self::ReadReceipt
            | Self::LeaveRequest
            | Self::Deletion(_)
            | Self::Membership(_)
            | Self::Deleted => 0,
        }
    }

    /// Its text, if it has one of its own: a reply's is that of the answer.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Markdown(text) => Some(text),
            Self::Reply(reply) => reply.content.text(),
            _ => None,
        }
    }
}

fn noise(bytes: &[u8]) -> Content {
    let error = ContentError::Malformed("it is no EncodedContent".into());
    let whole = EncodedContent { content: bytes.to_vec(), ..EncodedContent::default() };
    Content::Custom(Custom::new(whole, Some(error)))
}

#[cfg(test)]
mod tests;
