use highwater_delivery::DeliveryError;
use highwater_mls::MlsError;
use highwater_processing::ProcessingError;
use highwater_receipt::ReceiptError;
use highwater_store::StoreError;

/// Why a join attempt could not be carried out. Nothing changed: the Welcome stays pending with its keys.
///
/// What a Welcome itself does wrong is never an error, but a [`JoinReport`](crate::JoinReport).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pending Welcome could not be read or settled.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// The MLS state could not be read or stored.
    #[error(transparent)]
    Mls(#[from] MlsError),
    /// The positions could not be set.
    #[error(transparent)]
    Processing(#[from] ProcessingError),
    /// The conversation could not be stored.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// A stored row can't be read: the database was written by something else, or damaged.
    #[error("a stored join row is damaged: {0}")]
    Damaged(&'static str),
}

impl JoinError {
    /// Whether the same attempt can succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Mls(error) => error.is_retryable(),
            Self::Processing(error) => error.is_retryable(),
            Self::Delivery(error) => error.is_retryable(),
            Self::Damaged(_) => false,
        }
    }
}

impl From<sqlx::Error> for JoinError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}
