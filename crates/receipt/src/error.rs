use highwater_store::StoreError;
use highwater_wire::{IdError, Topic, TopicError, TopicKind};

use crate::{Budget, ReceivedPosition};

/// Why positions or pending envelopes couldn't be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// The database failed. Nothing changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored row can't be read: the database was written by something else, or damaged.
    #[error("a stored receipt row is damaged: {0}")]
    Damaged(&'static str),
    /// Topics of this kind have no received position.
    #[error("{} topics are not received in order", .0.name())]
    NotReceived(TopicKind),
}

impl ReceiptError {
    /// Whether the same call can succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Damaged(_) | Self::NotReceived(_) => false,
        }
    }
}

impl From<sqlx::Error> for ReceiptError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}

impl From<IdError> for ReceiptError {
    fn from(_: IdError) -> Self {
        Self::Damaged("a position or hash has the wrong shape")
    }
}

impl From<TopicError> for ReceiptError {
    fn from(_: TopicError) -> Self {
        Self::Damaged("a topic has the wrong shape")
    }
}

/// Why a prefix was not admitted. Pending envelopes and F are as they were.
///
/// `Gap`, `Capacity` and `NotReceived` are found before anything is written, so the transaction can
/// go on with other topics after them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The prefix starts above F: what lies between was not received. Read again from `received`.
    #[error("a prefix of {topic:?} starts above the received position {}", received.cursor())]
    Gap {
        /// The topic.
        topic: Topic,
        /// F, the exclusive start of the read that supplies what is missing.
        received: ReceivedPosition,
    },
    /// Not even the first new envelope fits. Retry when pending envelopes were settled.
    #[error("no envelope of {topic:?} fits what is left for {by}")]
    Capacity {
        /// The topic.
        topic: Topic,
        /// The exhausted bound.
        by: Budget,
        /// F, unchanged.
        received: ReceivedPosition,
    },
    /// The database failed, or the topic's kind isn't received at all.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
}

impl AdmitError {
    /// Whether admission of the same envelopes can succeed later: after a read from F for a gap,
    /// after processing for a used-up budget.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Gap { .. } => true,
            Self::Capacity { by, .. } => *by != Budget::Batch,
            Self::Receipt(error) => error.is_retryable(),
        }
    }
}

impl From<StoreError> for AdmitError {
    fn from(error: StoreError) -> Self {
        Self::Receipt(error.into())
    }
}

impl From<sqlx::Error> for AdmitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Receipt(error.into())
    }
}
