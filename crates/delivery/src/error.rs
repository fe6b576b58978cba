use highwater_store::StoreError;
use highwater_wire::{GroupId, IdError, MessageId};

use crate::CursorError;

/// Why records couldn't be read or changed. Nothing durable changed when one of these is returned
/// from a transaction that is then rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cursor can't be used here.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// No such message.
    #[error("message {0} is not stored here")]
    UnknownMessage(MessageId),
    /// No such conversation.
    #[error("conversation {0} is not stored here")]
    UnknownConversation(GroupId),
    /// A stored row can't be read: the database was written by something else, or damaged.
    #[error("a stored delivery row is damaged: {0}")]
    Damaged(&'static str),
}

impl DeliveryError {
    /// Whether the same call can succeed later without a change of its arguments.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Cursor(_) | Self::UnknownMessage(_) | Self::UnknownConversation(_) | Self::Damaged(_) => {
                false
            }
        }
    }
}

impl From<sqlx::Error> for DeliveryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}

impl From<IdError> for DeliveryError {
    fn from(_: IdError) -> Self {
        Self::Damaged("an id or a position has the wrong shape")
    }
}

/// Why the default consumer can't be had, or why it ended. After any of these from a
/// [`DefaultConsumer`](crate::DefaultConsumer) that consumer hands out nothing more (PROC-040);
/// the item that was out, if its acknowledgement isn't stored, is the next one that a new consumer
/// gets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// Another consumer of this database is alive (STR-023). It releases on close; if its process
    /// dies, acquiring succeeds at once; if it freezes, or its lock file was removed, once `until_ns`
    /// has passed.
    #[error("the default consumer is active in process {process}")]
    AlreadyActive {
        /// The operating system's id of the process that owns it.
        process: u32,
        /// When its lease ends, unless renewed: nanoseconds since the Unix epoch.
        until_ns: i64,
    },
    /// Another consumer took over, after this one let its lease run out (PROC-031).
    #[error("another consumer took over after this one's lease had run out")]
    OwnershipLost,
    /// This consumer ended with an error before. Open a new one.
    #[error("this consumer has ended; open a new one")]
    Ended,
    /// The lock file beside the database couldn't be opened or locked.
    #[error("the consumer's lock file failed: {0}")]
    Lock(#[source] std::io::Error),
    /// More consumers of this database are frozen than there are lock files for.
    #[error("every lock file of the default consumer is held by a frozen process")]
    NoLockFree,
    /// Records couldn't be read or changed.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

impl ConsumerError {
    /// Whether opening a consumer again, without a change of anything else, can succeed
    /// (PROC-043). Ownership conflicts are for the app to settle.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::AlreadyActive { .. } | Self::OwnershipLost | Self::NoLockFree => false,
            Self::Ended | Self::Lock(_) => true,
            Self::Delivery(error) => error.is_retryable(),
        }
    }
}

impl From<StoreError> for ConsumerError {
    fn from(error: StoreError) -> Self {
        Self::Delivery(error.into())
    }
}

impl From<sqlx::Error> for ConsumerError {
    fn from(error: sqlx::Error) -> Self {
        Self::Delivery(error.into())
    }
}
