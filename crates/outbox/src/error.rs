use highwater_delivery::DeliveryError;
use highwater_mls::MlsError;
use highwater_store::StoreError;
use highwater_wire::GroupId;

/// Why an outbox operation failed. Nothing durable changed when one of these is returned from a transaction that is
/// then rolled back, as [`Store::write`](highwater_store::Store::write) does for every error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The MLS state failed.
    #[error(transparent)]
    Mls(#[from] MlsError),
    /// The message records failed.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// No such group here; check the id, or sync first.
    #[error("group {0} is not known to this client")]
    UnknownGroup(GroupId),
    /// The group is known, but this installation isn't a member of it now.
    #[error("group {0} is inactive: this installation was removed from it")]
    InactiveGroup(GroupId),
    /// This installation has no registered inbox yet.
    #[error("this installation is not registered with an inbox yet")]
    NotRegistered,
    /// The request can never succeed as it stands.
    #[error("refused: {0}")]
    Refused(String),
    /// A stored row can't be read: the database was written by something else, or damaged.
    #[error("a stored outbox row is damaged: {0}")]
    Damaged(&'static str),
}

impl OutboxError {
    /// Whether the same call can succeed later without a change of its arguments.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Mls(error) => error.is_retryable(),
            Self::Delivery(error) => error.is_retryable(),
            _ => false,
        }
    }
}

impl From<sqlx::Error> for OutboxError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(StoreError::from(error))
    }
}
