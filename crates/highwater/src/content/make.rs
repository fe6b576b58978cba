//! Content to send.

use std::collections::BTreeMap;

use highwater_wire::MessageId;
use highwater_wire::proto::contents::{ContentTypeId, DeleteMessage, EncodedContent};
use prost::Message as _;

use super::codec::{Codec, guarded};
use super::standard::{self, WireReaction};
use super::{Attachment, ContentError, Reaction, ReactionAction, ReactionSchema};

/// Text as a message's content.
pub fn text_content(text: &str) -> Vec<u8> {
    utf_8(standard::TEXT, text).encode_to_vec()
}

/// Text with Markdown in it as a message's content.
pub fn markdown_content(text: &str) -> Vec<u8> {
    utf_8(standard::MARKDOWN, text).encode_to_vec()
}

/// An answer to an earlier message: any content, as [`text_content`] or another of these functions makes it.
///
/// # Errors
/// [`ContentError::Malformed`] for bytes that are no content.
pub fn reply_content(reference: MessageId, answer: &[u8]) -> Result<Vec<u8>, ContentError> {
    let nested = typed(answer)?;
    let of = nested.r#type.unwrap_or_default();
    let content_type =
        format!("{}/{}:{}.{}", of.authority_id, of.type_id, of.version_major, of.version_minor);
    let parameters =
        [(standard::REFERENCE.into(), reference.to_hex()), ("contentType".into(), content_type)].into();
    let fallback = (of.type_id == standard::TEXT)
        .then(|| String::from_utf8(nested.content).ok())
        .flatten()
        .map(|text| format!("Replied with “{text}” to an earlier message"))
        .or_else(|| Some("Replied to an earlier message".into()));
    let content = answer.to_vec();
    Ok(EncodedContent { parameters, fallback, content, ..of_type(standard::REPLY, 1) }.encode_to_vec())
}

/// A reaction as a message's content.
pub fn reaction_content(reaction: &Reaction) -> Vec<u8> {
    let wire = WireReaction {
        reference: reaction.reference.to_hex(),
        reference_inbox_id: reaction.reference_inbox_id.map(|inbox| inbox.to_string()).unwrap_or_default(),
        action: match reaction.action {
            ReactionAction::Added => 1,
            ReactionAction::Removed => 2,
        },
        content: reaction.content.clone(),
        schema: match reaction.schema {
            ReactionSchema::Unspecified => 0,
            ReactionSchema::Unicode => 1,
            ReactionSchema::Shortcode => 2,
            ReactionSchema::Custom => 3,
        },
    };
    let said = match reaction.action {
        ReactionAction::Added => format!("Reacted “{}” to an earlier message", reaction.content),
        ReactionAction::Removed => "Removed a reaction from an earlier message".into(),
    };
    let (fallback, content) = (Some(said), wire.encode_to_vec());
    EncodedContent { fallback, content, ..of_type(standard::REACTION, 2) }.encode_to_vec()
}

/// A small file as a message's content. One that an envelope has no room for is refused when it is sent.
pub fn attachment_content(attachment: &Attachment) -> Vec<u8> {
    let mut parameters: BTreeMap<String, String> =
        [(standard::MIME_TYPE.into(), attachment.mime_type.clone())].into();
    parameters.extend(attachment.filename.clone().map(|name| (standard::FILENAME.into(), name)));
    let shown = attachment.filename.as_deref().unwrap_or("an attachment");
    let fallback = Some(format!("Can’t display {shown}: this app doesn’t support attachments"));
    let content = attachment.bytes.clone();
    EncodedContent { parameters, fallback, content, ..of_type(standard::ATTACHMENT, 1) }.encode_to_vec()
}

/// A read receipt as a message's content.
pub fn read_receipt_content() -> Vec<u8> {
    of_type(standard::READ_RECEIPT, 1).encode_to_vec()
}

/// The request to delete a message, as a message's content.
pub fn deletion_content(target: MessageId) -> Vec<u8> {
    let content = DeleteMessage { message_id: target.to_hex() }.encode_to_vec();
    EncodedContent { content, ..of_type(standard::DELETE_MESSAGE, 1) }.encode_to_vec()
}

/// A value of the app's own as a message's content.
///
/// # Errors
/// What the codec failed with.
pub fn codec_content<C: Codec>(codec: &C, value: &C::Value) -> Result<Vec<u8>, ContentError> {
    let (of, encoded) = guarded(|| Ok((codec.content_type(), codec.encode(value)?)))?;
    Ok(EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: of.authority,
            type_id: of.name,
            version_major: of.major,
            version_minor: of.minor,
        }),
        parameters: encoded.parameters.into_iter().collect(),
        fallback: encoded.fallback,
        content: encoded.bytes,
        compression: None,
    }
    .encode_to_vec())
}

/// Checks that bytes an app wants to send are an encoded `EncodedContent` with a type.
pub(crate) fn check(bytes: &[u8]) -> Result<(), ContentError> {
    typed(bytes).map(|_| ())
}

fn typed(bytes: &[u8]) -> Result<EncodedContent, ContentError> {
    let encoded =
        EncodedContent::decode(bytes).map_err(|error| ContentError::Malformed(error.to_string()))?;
    match &encoded.r#type {
        Some(named) if !named.authority_id.is_empty() && !named.type_id.is_empty() => Ok(encoded),
        _ => Err(ContentError::Malformed("it names no content type".into())),
    }
}

fn utf_8(name: &str, text: &str) -> EncodedContent {
    let parameters = [(standard::ENCODING.to_owned(), standard::UTF_8.to_owned())].into();
    EncodedContent { parameters, content: text.as_bytes().to_vec(), ..of_type(name, 1) }
}

fn of_type(name: &str, major: u32) -> EncodedContent {
    EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: standard::AUTHORITY.into(),
            type_id: name.into(),
            version_major: major,
            version_minor: 0,
        }),
        ..EncodedContent::default()
    }
}
