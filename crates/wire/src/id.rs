//! Identifiers and positions whose types carry their shape.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{error::IdError, proto};

/// Writes the first four bytes and an ellipsis: enough to follow a value through a log, too little
/// to name it (STR-064).
pub(crate) fn write_short(f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8]) -> fmt::Result {
    write!(f, "{name}({}…)", hex::encode(&bytes[..bytes.len().min(4)]))
}

macro_rules! byte_id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// Takes the bytes as they are.
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// The bytes, by value.
            pub const fn to_bytes(self) -> [u8; $len] {
                self.0
            }

            /// Lowercase hex of all bytes.
            pub fn to_hex(&self) -> String {
                hex::encode(self.0)
            }

            /// Reads lowercase hex of exactly the right length.
            ///
            /// # Errors
            /// [`IdError::Hex`] for uppercase or other characters, [`IdError::Length`] otherwise.
            pub fn from_hex(text: &str) -> Result<Self, IdError> {
                lowercase_hex($what, text).map(Self)
            }
        }

        impl TryFrom<&[u8]> for $name {
            type Error = IdError;

            fn try_from(bytes: &[u8]) -> Result<Self, IdError> {
                let found = bytes.len();
                <[u8; $len]>::try_from(bytes)
                    .map(Self)
                    .map_err(|_| IdError::Length { what: $what, expected: $len, found })
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_short(f, stringify!($name), &self.0)
            }
        }
    };
}

/// For the identifiers whose full text an application or the wire may show.
macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::from_hex(text)
            }
        }
    };
}

fn lowercase_hex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], IdError> {
    // Two spellings of one id would be two keys wherever the text itself is signed or compared.
    if !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(IdError::Hex { what });
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| IdError::Length {
        what,
        expected: N,
        found: text.len() / 2,
    })?;
    Ok(bytes)
}

byte_id! {
    /// An inbox: the hash that its first identifier and nonce give.
    InboxId, 32, "inbox id"
}
text_id!(InboxId);

byte_id! {
    /// An installation's Ed25519 public key. Never displayed; [`InstallationKey::to_hex`] is for
    /// places that must spell it out, such as a text to be signed (STR-064).
    InstallationKey, 32, "installation key"
}

byte_id! {
    /// An MLS group: 16 random bytes.
    GroupId, 16, "group id"
}
text_id!(GroupId);

byte_id! {
    /// A message, the same on every client and over every rebuild of its ciphertext.
    MessageId, 32, "message id"
}
text_id!(MessageId);

byte_id! {
    /// The backend's hash of a stored envelope, kept as it came and never recomputed (STR-060).
    MessageHash, 32, "message hash"
}

byte_id! {
    /// SHA-256 of the MLS bytes in a group message: what an own echo is recognised by.
    PayloadIdentity, 32, "payload identity"
}

impl MessageId {
    /// Derives the id of a message: the same group, key and content always give the same id.
    pub fn derive(group: GroupId, idempotency_key: &str, content: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(group.as_bytes());
        hash.update([0x09]);
        hash.update(idempotency_key.as_bytes());
        hash.update([0x09]);
        hash.update(content);
        Self(hash.finalize().into())
    }
}

impl PayloadIdentity {
    /// Identifies the `data` of a group message.
    pub fn of(group_message_data: &[u8]) -> Self {
        Self(Sha256::digest(group_message_data).into())
    }
}

impl TryFrom<&proto::backend::MessageHash> for MessageHash {
    type Error = IdError;

    fn try_from(hash: &proto::backend::MessageHash) -> Result<Self, IdError> {
        match &hash.hash {
            Some(proto::backend::message_hash::Hash::Sha256(bytes)) => bytes.as_slice().try_into(),
            None => Err(IdError::Missing { what: "message hash" }),
        }
    }
}

impl From<MessageHash> for proto::backend::MessageHash {
    fn from(hash: MessageHash) -> Self {
        Self { hash: Some(proto::backend::message_hash::Hash::Sha256(hash.0.to_vec())) }
    }
}

/// The id that the backend gave a stored envelope: 1 to `i64::MAX`, unique over all topics.
/// Order means something on one topic only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SequenceId(u64);

impl SequenceId {
    /// The least id there is.
    pub const MIN: Self = Self(1);
    /// The greatest id there is.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The id.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The id as databases hold it; never negative.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }
}

impl TryFrom<u64> for SequenceId {
    type Error = IdError;

    fn try_from(id: u64) -> Result<Self, IdError> {
        if (Self::MIN.0..=Self::MAX.0).contains(&id) {
            Ok(Self(id))
        } else {
            Err(IdError::SequenceId { found: id.into() })
        }
    }
}

impl TryFrom<i64> for SequenceId {
    type Error = IdError;

    fn try_from(id: i64) -> Result<Self, IdError> {
        u64::try_from(id)
            .ok()
            .and_then(|id| Self::try_from(id).ok())
            .ok_or(IdError::SequenceId { found: id.into() })
    }
}

impl From<SequenceId> for u64 {
    fn from(id: SequenceId) -> Self {
        id.0
    }
}

impl fmt::Debug for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place between envelopes of one topic: everything at or below it is behind. 0 to `i64::MAX`;
/// as the start of a read it is exclusive.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Cursor(u64);

impl Cursor {
    /// Before every envelope.
    pub const ZERO: Self = Self(0);
    /// At or after every envelope.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The position.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position as databases hold it; never negative.
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }

    /// The envelope at this position, or `None` at the beginning.
    pub fn sequence_id(self) -> Option<SequenceId> {
        SequenceId::try_from(self.0).ok()
    }

    /// Whether the envelope lies at or below this position.
    pub fn covers(self, id: SequenceId) -> bool {
        id.0 <= self.0
    }
}

impl From<SequenceId> for Cursor {
    fn from(id: SequenceId) -> Self {
        Self(id.0)
    }
}

impl TryFrom<u64> for Cursor {
    type Error = IdError;

    fn try_from(position: u64) -> Result<Self, IdError> {
        if position <= SequenceId::MAX.0 {
            Ok(Self(position))
        } else {
            Err(IdError::Cursor { found: position.into() })
        }
    }
}

impl TryFrom<i64> for Cursor {
    type Error = IdError;

    fn try_from(position: i64) -> Result<Self, IdError> {
        u64::try_from(position).map(Self).map_err(|_| IdError::Cursor { found: position.into() })
    }
}

impl From<Cursor> for u64 {
    fn from(cursor: Cursor) -> Self {
        cursor.0
    }
}

impl From<Cursor> for proto::backend::Cursor {
    fn from(cursor: Cursor) -> Self {
        Self { sequence_id: cursor.0 }
    }
}

impl From<SequenceId> for proto::backend::Cursor {
    fn from(id: SequenceId) -> Self {
        Self { sequence_id: id.0 }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
