//! What can be wrong with something that arrived.

use std::io;

use crate::{Cursor, SequenceId, Topic, TopicKind};

/// An identifier or position of the wrong shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The wrong number of bytes.
    #[error("{what} must be {expected} bytes, found {found}")]
    Length {
        /// Which identifier.
        what: &'static str,
        /// Bytes it has.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// Text that isn't lowercase hex.
    #[error("{what} must be lowercase hex")]
    Hex {
        /// Which identifier.
        what: &'static str,
    },
    /// The field is absent.
    #[error("{what} is missing")]
    Missing {
        /// Which identifier.
        what: &'static str,
    },
    /// Not 1 to `i64::MAX`.
    #[error("sequence id {found} is not in 1..=i64::MAX")]
    SequenceId {
        /// The number found.
        found: i128,
    },
    /// Not 0 to `i64::MAX`.
    #[error("cursor {found} is not in 0..=i64::MAX")]
    Cursor {
        /// The number found.
        found: i128,
    },
}

impl IdError {
    /// Never: the same bytes stay wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Bytes that are no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// No bytes, or the field is absent.
    #[error("the topic is empty")]
    Empty,
    /// A kind byte that names no kind.
    #[error("unknown topic kind {found:#04x}")]
    UnknownKind {
        /// The byte found.
        found: u8,
    },
    /// An identifier of the wrong length for its kind.
    #[error("a {} topic has an identifier of {} bytes, found {found}", kind.name(), kind.identifier_len())]
    IdentifierLength {
        /// The kind that the first byte names.
        kind: TopicKind,
        /// Bytes found.
        found: usize,
    },
    /// Text that isn't lowercase hex.
    #[error("the topic must be lowercase hex")]
    Hex,
}

impl TopicError {
    /// Never: the same bytes stay wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Why a batch is no continuation of the prefix it claims to continue (STR-060, PROC-001).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// A part of the envelope is absent.
    #[error("the envelope has no {what}")]
    Missing {
        /// Which part.
        what: &'static str,
    },
    /// The topic is malformed.
    #[error("the envelope's topic is malformed: {0}")]
    Topic(#[from] TopicError),
    /// The envelope belongs to another topic than the read.
    #[error("an envelope of {found:?} came in a read of {expected:?}")]
    WrongTopic {
        /// The topic being read.
        expected: Topic,
        /// The topic the envelope names.
        found: Topic,
    },
    /// The sequence id or the hash has the wrong shape.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The id is not above the one before it, or not above the exclusive start.
    #[error("sequence id {found} is not above {last}")]
    NotIncreasing {
        /// The position reached before.
        last: Cursor,
        /// The id that came next.
        found: SequenceId,
    },
    /// `server_ns` doesn't fit the range of times.
    #[error("server time {found} ns is not in 0..=i64::MAX")]
    ServerTime {
        /// The number found.
        found: u64,
    },
}

impl PrefixError {
    /// Never for the same batch: the peer broke the protocol. A new read from the received position
    /// may do better, after a backoff.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Why compressed content can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A number that names no compression.
    #[error("unknown compression {found}")]
    Unknown {
        /// The number found.
        found: i32,
    },
    /// It was not compressed as it says.
    #[error(transparent)]
    Damaged(#[from] io::Error),
    /// It would be longer than 16 MiB.
    #[error("the content is longer than 16 MiB uncompressed")]
    TooLong,
}

impl CompressionError {
    /// Never: the same bytes stay wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
