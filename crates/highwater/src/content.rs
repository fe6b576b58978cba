//! What messages say: the forms an app can read, and those it must be told about as they came.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::str::FromStr as _;

use highwater_wire::InboxId;
use highwater_wire::proto::contents::{Compression, ContentTypeId, EncodedContent, GroupUpdated};
use prost::Message as _;

const AUTHORITY: &str = "xmtp.org";
const TEXT: &str = "text";
const GROUP_UPDATED: &str = "group_updated";
const ENCODING: &str = "encoding";
const UTF_8: &str = "UTF-8";
/// Decompression stops here, whatever the sender claims.
const MAX_DECOMPRESSED_BYTES: u64 = 16 * 1024 * 1024;

/// Why content could not be read or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// It has another type.
    #[error("the message is no text but {0}")]
    NotText(String),
    /// It is not what its type says.
    #[error("the content is malformed: {0}")]
    Malformed(String),
    /// It would be longer than 16 MiB uncompressed.
    #[error("the content is longer than 16 MiB uncompressed")]
    TooLong,
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
    /// The transcript of a change of the group, made here from the applied commit.
    Membership(MembershipChange),
    /// Anything else, as it came.
    Opaque(Opaque),
}

/// Content that no codec here reads, or whose codec failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Its type, where it names one.
    pub content_type: Option<ContentType>,
    /// The type's parameters.
    pub parameters: BTreeMap<String, String>,
    /// Text to show instead, if the sender gave any.
    pub fallback: Option<String>,
    /// The content's bytes; the whole stored bytes where they aren't even an `EncodedContent`.
    pub bytes: Vec<u8>,
    /// Why the codec of this type failed, if there is one.
    pub error: Option<ContentError>,
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
    /// Fields that changed: name, old and new value.
    pub fields: Vec<(String, Option<String>, Option<String>)>,
}

/// Encodes text as a message's content.
pub fn text_content(text: &str) -> Vec<u8> {
    EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: AUTHORITY.into(),
            type_id: TEXT.into(),
            version_major: 1,
            version_minor: 0,
        }),
        parameters: [(ENCODING.to_owned(), UTF_8.to_owned())].into(),
        fallback: None,
        content: text.as_bytes().to_vec(),
        compression: None,
    }
    .encode_to_vec()
}

/// Checks that bytes an app wants to send are an encoded `EncodedContent` with a type.
pub(crate) fn check(bytes: &[u8]) -> Result<(), ContentError> {
    let encoded =
        EncodedContent::decode(bytes).map_err(|error| ContentError::Malformed(error.to_string()))?;
    match encoded.r#type {
        Some(named) if !named.authority_id.is_empty() && !named.type_id.is_empty() => Ok(()),
        _ => Err(ContentError::Malformed("it names no content type".into())),
    }
}

impl Content {
    /// Reads stored content. Never fails: what can't be read is kept as it came, so that one message can't stop a
    /// stream (PROC-045).
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let Ok(encoded) = EncodedContent::decode(bytes) else {
            return Self::Opaque(Opaque {
                content_type: None,
                parameters: BTreeMap::new(),
                fallback: None,
                bytes: bytes.to_vec(),
                error: Some(ContentError::Malformed("it is no EncodedContent".into())),
            });
        };
        let codec = match encoded.r#type.as_ref() {
            Some(named) if named.authority_id == AUTHORITY && named.version_major == 1 => {
                match named.type_id.as_str() {
                    TEXT => Some(read_text as fn(&EncodedContent) -> Result<Self, ContentError>),
                    GROUP_UPDATED => Some(read_membership as _),
                    _ => None,
                }
            }
            _ => None,
        };
        match codec.map(|read| read(&encoded)) {
            Some(Ok(content)) => content,
            Some(Err(error)) => Self::Opaque(Opaque::new(encoded, Some(error))),
            None => Self::Opaque(Opaque::new(encoded, None)),
        }
    }
}

impl Opaque {
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
        }
    }

    /// The type's name for people.
    pub(crate) fn name(&self) -> String {
        self.content_type.as_ref().map_or_else(|| "of no known type".into(), ToString::to_string)
    }
}

fn read_text(encoded: &EncodedContent) -> Result<Content, ContentError> {
    if let Some(encoding) = encoded.parameters.get(ENCODING)
        && encoding != UTF_8
    {
        return Err(ContentError::Malformed("its encoding is not UTF-8".into()));
    }
    let text = String::from_utf8(uncompressed(encoded)?)
        .map_err(|_| ContentError::Malformed("it is not UTF-8".into()))?;
    Ok(Content::Text(text))
}

fn read_membership(encoded: &EncodedContent) -> Result<Content, ContentError> {
    let updated = GroupUpdated::decode(uncompressed(encoded)?.as_slice())
        .map_err(|error| ContentError::Malformed(error.to_string()))?;
    let inboxes = |named: &[highwater_wire::proto::contents::group_updated::Inbox]| {
        named
            .iter()
            .map(|inbox| InboxId::from_str(&inbox.inbox_id))
            .collect::<Result<BTreeSet<_>, _>>()
            .map_err(|error| ContentError::Malformed(error.to_string()))
    };
    Ok(Content::Membership(MembershipChange {
        initiated_by: InboxId::from_str(&updated.initiated_by_inbox_id).ok(),
        added: inboxes(&updated.added_inboxes)?,
        removed: inboxes(&updated.removed_inboxes)?,
        left: inboxes(&updated.left_inboxes)?,
        fields: updated
            .metadata_field_changes
            .into_iter()
            .map(|change| (change.field_name, change.old_value, change.new_value))
            .collect(),
    }))
}

fn uncompressed(encoded: &EncodedContent) -> Result<Vec<u8>, ContentError> {
    let Some(compression) = encoded.compression else {
        return Ok(encoded.content.clone());
    };
    let content = encoded.content.as_slice();
    match Compression::try_from(compression) {
        Ok(Compression::Deflate) => inflate(flate2::read::ZlibDecoder::new(content)),
        Ok(Compression::Gzip) => inflate(flate2::read::GzDecoder::new(content)),
        Err(_) => Err(ContentError::Malformed(format!("unknown compression {compression}"))),
    }
}

fn inflate(reader: impl std::io::Read) -> Result<Vec<u8>, ContentError> {
    let mut bytes = Vec::new();
    let read = reader
        .take(MAX_DECOMPRESSED_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ContentError::Malformed(error.to_string()))?;
    if read as u64 > MAX_DECOMPRESSED_BYTES { Err(ContentError::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn encoded(change: impl FnOnce(&mut EncodedContent)) -> Vec<u8> {
        let mut content = EncodedContent::decode(text_content("hello").as_slice()).unwrap();
        change(&mut content);
        content.encode_to_vec()
    }

    #[test]
    fn text_comes_back_as_it_was() {
        assert_eq!(Content::read(&text_content("grüße 🌊")), Content::Text("grüße 🌊".into()));
        assert_eq!(check(&text_content("x")), Ok(()));
    }

    /// Shows: PROC-045.
    #[test]
    fn content_whose_codec_fails_is_kept_with_its_error_and_its_bytes() {
        let Content::Opaque(opaque) = Content::read(&encoded(|content| content.content = vec![0xff])) else {
            panic!("text that is not UTF-8 was read as text");
        };
        assert_eq!(opaque.bytes, [0xff]);
        assert!(matches!(opaque.error, Some(ContentError::Malformed(_))));
        let Content::Opaque(noise) = Content::read(&[0xff, 0xff]) else {
            panic!("noise was read as content");
        };
        assert_eq!(noise.bytes, [0xff, 0xff]);
    }

    #[test]
    fn another_major_version_is_another_type() {
        let bytes = encoded(|content| {
            content.r#type.as_mut().unwrap().version_major = 2;
            content.fallback = Some("update your app".into());
        });
        let Content::Opaque(opaque) = Content::read(&bytes) else {
            panic!("version 2 was read by the codec of version 1");
        };
        assert_eq!(opaque.error, None);
        assert_eq!(opaque.fallback.as_deref(), Some("update your app"));
    }

    #[test]
    fn compressed_text_is_read_and_a_bomb_is_not_unpacked() {
        let deflate = |content: &[u8]| {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        };
        let compressed = |content: &[u8]| {
            encoded(|encoded| {
                encoded.content = deflate(content);
                encoded.compression = Some(Compression::Deflate as i32);
            })
        };
        assert_eq!(Content::read(&compressed(b"hello")), Content::Text("hello".into()));
        let bomb = vec![b'a'; MAX_DECOMPRESSED_BYTES as usize + 1];
        let Content::Opaque(opaque) = Content::read(&compressed(&bomb)) else {
            panic!("a bomb was unpacked");
        };
        assert_eq!(opaque.error, Some(ContentError::TooLong));
    }

    #[test]
    fn bytes_without_a_content_type_are_not_sent() {
        let bytes = encoded(|content| content.r#type = None);
        assert!(matches!(check(&bytes), Err(ContentError::Malformed(_))));
        assert!(matches!(check(&[0xff]), Err(ContentError::Malformed(_))));
    }
}
