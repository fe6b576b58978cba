//! The wire schema, and the step from "arrived" to "well formed".
//!
//! Owns: the code generated from `proto/`; identifiers and positions ([`Topic`], [`SequenceId`],
//! [`Cursor`], …) that can't hold a value of the wrong shape; [`OrderedPrefix`], the only form in
//! which envelopes can be admitted; what [`compression`] does to content; the protocol's [`limits`].
//!
//! Invariants:
//! - A [`SequenceId`] is in `1..=i64::MAX`, a [`Cursor`] in `0..=i64::MAX`.
//! - An [`OrderedPrefix`] belongs to one topic, starts at a known exclusive position, and its ids
//!   rise strictly, over all batches of one read (STR-060, PROC-001). There is no other constructor
//!   than [`PrefixCursor::extend`].
//! - A [`MessageHash`] is the backend's and is never recomputed.
//! - `Debug` forms show at most four bytes of an identifier and nothing of a payload (STR-064).
//!
//! Deliberately absent: I/O, storage, MLS, and any judgement about what a payload means.

pub mod compression;
pub mod error;
mod id;
pub mod limits;
mod prefix;
pub mod proto;
mod topic;

pub use error::{CompressionError, IdError, PrefixError, TopicError};
pub use id::{
    Cursor, GroupId, InboxId, InstallationKey, MessageHash, MessageId, PayloadIdentity, SequenceId,
};
pub use prefix::{OrderedPrefix, PrefixCursor, ReceivedEnvelope, received};
pub use topic::{Topic, TopicKind};

/// The compiled schema, for reflection and for tests that pin its numbers.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/highwater.fds"));
