use std::time::Duration;

use highwater_delivery::DeliveryError;
use highwater_join::JoinError;
use highwater_mls::MlsError;
use highwater_outbox::OutboxError;
use highwater_processing::ProcessingError;
use highwater_receipt::{AdmitError, ReceiptError};
use highwater_store::StoreError;
use highwater_transport::TransportError;

use crate::Obligation;

/// Why an operation did not do what it was asked for. Whatever it committed before stays committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend could not be reached, or answered with an error.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Received envelopes could not be admitted.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The received positions could not be read.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// An attempt could not be carried out.
    #[error(transparent)]
    Processing(#[from] ProcessingError),
    /// A join attempt could not be carried out.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// An intent could not be read or recorded.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The conversations could not be read.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The MLS state could not be read or written.
    #[error(transparent)]
    Mls(#[from] MlsError),
    /// The deadline came, or the connection failed, with work left.
    #[error("{} of the operation's obligations are unfinished", .0.len())]
    Incomplete(Vec<Obligation>),
    /// Everything that could be finished was; what is left is held for a reason that waiting doesn't cure.
    #[error("{} of the operation's obligations are blocked", .0.len())]
    Blocked(Vec<Obligation>),
    /// A publishing round failed; what is owed stays owed.
    #[error("not published yet: {reason}")]
    NotPublished {
        /// Why, in words.
        reason: String,
        /// Whether the next round can succeed.
        retryable: bool,
    },
    /// The engine was shut down.
    #[error("the client is closed")]
    Closed,
}

impl SyncError {
    /// Whether the same operation can succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Transport(error) => error.is_retryable(),
            Self::Admit(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Processing(error) => error.is_retryable(),
            Self::Join(error) => error.is_retryable(),
            Self::Outbox(error) => error.is_retryable(),
            Self::Delivery(error) => error.is_retryable(),
            Self::Mls(error) => error.is_retryable(),
            Self::NotPublished { retryable, .. } => *retryable,
            Self::Incomplete(_) => true,
            Self::Blocked(_) | Self::Closed => false,
        }
    }

    /// How long the backend asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transport(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether trying anything else on the same connection now would fail the same way.
    pub(crate) fn is_connection_wide(&self) -> bool {
        matches!(self, Self::Closed | Self::Store(_))
            || self.is_refusal()
            || matches!(self, Self::Transport(error) if error.is_retryable())
    }

    /// Whether the deployment refuses this client, so that nothing is sent any more.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Transport(TransportError::Refused { .. }))
    }

    /// The unfinished obligations, where there are any.
    pub fn obligations(&self) -> &[Obligation] {
        match self {
            Self::Incomplete(obligations) | Self::Blocked(obligations) => obligations,
            _ => &[],
        }
    }
}
