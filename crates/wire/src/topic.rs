//! Topics: one kind byte, then an identifier whose length the kind fixes.

use std::fmt;

use crate::{GroupId, InboxId, InstallationKey, error::TopicError, id::write_short, proto};

/// What a topic carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TopicKind {
    /// Messages of one group; identified by the group id.
    GroupMessage = 0x00,
    /// Welcomes of one installation (or one random destination that pointers lead to).
    Welcome = 0x01,
    /// The identity log of one inbox.
    IdentityUpdate = 0x02,
    /// Key packages of one installation; only the newest counts, so it has no ordered read.
    KeyPackage = 0x03,
    /// Commit log entries of one group: stored and served only.
    CommitLogEntry = 0x04,
}

impl TopicKind {
    /// All kinds, by kind byte.
    pub const ALL: [Self; 5] =
        [Self::GroupMessage, Self::Welcome, Self::IdentityUpdate, Self::KeyPackage, Self::CommitLogEntry];

    /// The kind byte.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The kind that a kind byte names.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x00 => Some(Self::GroupMessage),
            0x01 => Some(Self::Welcome),
            0x02 => Some(Self::IdentityUpdate),
            0x03 => Some(Self::KeyPackage),
            0x04 => Some(Self::CommitLogEntry),
            _ => None,
        }
    }

    /// A short stable name for logs, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GroupMessage => "group",
            Self::Welcome => "welcome",
            Self::IdentityUpdate => "identity",
            Self::KeyPackage => "key_package",
            Self::CommitLogEntry => "commit_log",
        }
    }

    /// Whether Query, Subscribe and SubscribeStatic serve it.
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Self::KeyPackage)
    }

    /// Length of the identifier in bytes.
    pub const fn identifier_len(self) -> usize {
        match self {
            Self::GroupMessage | Self::CommitLogEntry => GroupId::LEN,
            Self::Welcome | Self::IdentityUpdate | Self::KeyPackage => 32,
        }
    }
}

/// One topic. Ordered as its bytes are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    kind: TopicKind,
    /// The first `kind.identifier_len()` bytes count, the rest are 0.
    identifier: [u8; 32],
}

impl Topic {
    /// The messages of a group.
    pub fn group(group: GroupId) -> Self {
        Self::short(TopicKind::GroupMessage, group)
    }

    /// The Welcomes of an installation.
    pub const fn welcome(installation: InstallationKey) -> Self {
        Self { kind: TopicKind::Welcome, identifier: installation.to_bytes() }
    }

    /// The random Welcome topic that pointers lead to.
    pub const fn welcome_destination(destination: [u8; 32]) -> Self {
        Self { kind: TopicKind::Welcome, identifier: destination }
    }

    /// The identity log of an inbox.
    pub const fn identity(inbox: InboxId) -> Self {
        Self { kind: TopicKind::IdentityUpdate, identifier: inbox.to_bytes() }
    }

    /// The key packages of an installation.
    pub const fn key_package(installation: InstallationKey) -> Self {
        Self { kind: TopicKind::KeyPackage, identifier: installation.to_bytes() }
    }

    /// The commit log of a group.
    pub fn commit_log(group: GroupId) -> Self {
        Self::short(TopicKind::CommitLogEntry, group)
    }

    fn short(kind: TopicKind, group: GroupId) -> Self {
        let mut identifier = [0; 32];
        identifier[..GroupId::LEN].copy_from_slice(group.as_bytes());
        Self { kind, identifier }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// For no bytes, an unknown kind, or an identifier of the wrong length.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TopicError> {
        let (&first, rest) = bytes.split_first().ok_or(TopicError::Empty)?;
        let kind = TopicKind::from_byte(first).ok_or(TopicError::UnknownKind { found: first })?;
        if rest.len() != kind.identifier_len() {
            return Err(TopicError::IdentifierLength { kind, found: rest.len() });
        }
        let mut identifier = [0; 32];
        identifier[..rest.len()].copy_from_slice(rest);
        Ok(Self { kind, identifier })
    }

    /// The wire form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.identifier().len());
        bytes.push(self.kind.byte());
        bytes.extend_from_slice(self.identifier());
        bytes
    }

    /// Reads lowercase hex of the wire form.
    ///
    /// # Errors
    /// [`TopicError::Hex`], or as [`Topic::from_bytes`].
    pub fn from_hex(text: &str) -> Result<Self, TopicError> {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(TopicError::Hex);
        }
        Self::from_bytes(&hex::decode(text).map_err(|_| TopicError::Hex)?)
    }

    /// Lowercase hex of the wire form. Names installations in full: not for logs (STR-064).
    pub fn to_hex(&self) -> String {
        hex::encode(self.to_bytes())
    }

    /// What it carries.
    pub const fn kind(&self) -> TopicKind {
        self.kind
    }

    /// The identifier after the kind byte.
    pub fn identifier(&self) -> &[u8] {
        &self.identifier[..self.kind.identifier_len()]
    }

    /// The group of a message or commit log topic.
    pub fn group_id(&self) -> Option<GroupId> {
        match self.kind {
            TopicKind::GroupMessage | TopicKind::CommitLogEntry => GroupId::try_from(self.identifier()).ok(),
            _ => None,
        }
    }

    /// The inbox of an identity topic.
    pub fn inbox_id(&self) -> Option<InboxId> {
        (self.kind == TopicKind::IdentityUpdate).then(|| InboxId::from_bytes(self.identifier))
    }

    /// The installation of a Welcome or key package topic. For a Welcome topic that pointers lead
    /// to, this is the random destination and no installation has it as its key.
    pub fn installation(&self) -> Option<InstallationKey> {
        matches!(self.kind, TopicKind::Welcome | TopicKind::KeyPackage)
            .then(|| InstallationKey::from_bytes(self.identifier))
    }

    /// The message that carries it.
    pub fn to_proto(&self) -> proto::backend::Topic {
        proto::backend::Topic { topic: self.to_bytes() }
    }
}

impl TryFrom<&proto::backend::Topic> for Topic {
    type Error = TopicError;

    fn try_from(topic: &proto::backend::Topic) -> Result<Self, TopicError> {
        Self::from_bytes(&topic.topic)
    }
}

impl TryFrom<proto::backend::Topic> for Topic {
    type Error = TopicError;

    fn try_from(topic: proto::backend::Topic) -> Result<Self, TopicError> {
        Self::from_bytes(&topic.topic)
    }
}

impl From<Topic> for proto::backend::Topic {
    fn from(topic: Topic) -> Self {
        topic.to_proto()
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_short(f, self.kind.name(), self.identifier())
    }
}
