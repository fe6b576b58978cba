//! How much may be pending (STR-066). Fixed numbers, none of them a setting of the app.
//!
//! Bytes are counted as
//! [`stored_bytes`](highwater_wire::ReceivedEnvelope::stored_bytes): payload and metadata. Rows are
//! bounded as well, so that many tiny envelopes are bounded too.

use std::fmt;

use highwater_wire::TopicKind;

const MIB: u64 = 1024 * 1024;

/// A bound, or a load, in rows and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// Envelopes.
    pub rows: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

impl Quantity {
    /// Whether this much is within `bound`, in rows and in bytes.
    pub fn fits(self, bound: Self) -> bool {
        self.rows <= bound.rows && self.bytes <= bound.bytes
    }

    /// This and one more envelope of `bytes`.
    pub(crate) fn with(self, bytes: u64) -> Self {
        Self { rows: self.rows + 1, bytes: self.bytes.saturating_add(bytes) }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { rows: self.rows.saturating_add(other.rows), bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub(crate) fn less(self, other: Self) -> Self {
        Self { rows: self.rows.saturating_sub(other.rows), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// The most that one call of [`admit`](crate::admit) stores.
pub const ADMISSION_BATCH: Quantity = Quantity { rows: 128, bytes: 32 * MIB };
/// The most that one topic of any kind holds pending.
pub const PER_TOPIC: Quantity = Quantity { rows: 1_024, bytes: 64 * MIB };
/// The most that all group topics together hold pending.
pub const GROUP: Quantity = Quantity { rows: 8_192, bytes: 128 * MIB };
/// The most that all Welcome topics together hold pending.
pub const WELCOME: Quantity = Quantity { rows: 1_024, bytes: 64 * MIB };
/// The most that all identity topics together hold pending.
pub const IDENTITY: Quantity = Quantity { rows: 4_096, bytes: 32 * MIB };

/// The budget of a kind; `None` for the kinds that are never received in order.
pub const fn of_kind(kind: TopicKind) -> Option<Quantity> {
    match kind {
        TopicKind::GroupMessage => Some(GROUP),
        TopicKind::Welcome => Some(WELCOME),
        TopicKind::IdentityUpdate => Some(IDENTITY),
        TopicKind::KeyPackage | TopicKind::CommitLogEntry => None,
    }
}

/// Which bound stopped receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// The envelope alone exceeds [`ADMISSION_BATCH`]. Waiting doesn't help.
    Batch,
    /// The topic holds as much as one topic may ([`PER_TOPIC`]).
    Topic,
    /// The kind's budget is used up, or so far used up that a topic with this much pending must
    /// leave the rest to others.
    Kind,
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch => "one admission batch",
            Self::Topic => "the topic",
            Self::Kind => "the topic's kind",
        })
    }
}
