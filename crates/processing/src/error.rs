use highwater_delivery::DeliveryError;
use highwater_mls::MlsError;
use highwater_outbox::OutboxError;
use highwater_receipt::ReceiptError;
use highwater_store::StoreError;
use highwater_wire::Topic;

/// Why an attempt could not be carried out. The transaction rolled back: P, pending rows and MLS state are as before.
///
/// What an envelope itself does wrong is never an error, but a [`Disposition`](crate::disposition::Disposition).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessingError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Pending envelopes could not be read or removed.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The MLS state could not be loaded or stored.
    #[error(transparent)]
    Mls(#[from] MlsError),
    /// The outbox could not record an echo.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The messages could not be stored.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// This kind of topic has no processed position.
    #[error("topic {0:?} has no processed position")]
    NotProcessed(Topic),
    /// The position isn't where the caller's rule requires it (STR-082); nothing was written.
    #[error("the processed position of {topic:?} does not permit this anchor")]
    AnchorRefused {
        /// The group's topic.
        topic: Topic,
    },
    /// The runtime is being shut down.
    #[error("processing was stopped")]
    Stopped,
    /// A stored row can't be read: the database was written by something else, or damaged.
    #[error("a stored processing row is damaged: {0}")]
    Damaged(&'static str),
}

impl ProcessingError {
    /// Whether the same attempt can succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Mls(error) => error.is_retryable(),
            Self::Outbox(error) => error.is_retryable(),
            Self::Delivery(error) => error.is_retryable(),
            Self::Stopped => true,
            _ => false,
        }
    }
}

impl From<sqlx::Error> for ProcessingError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}
