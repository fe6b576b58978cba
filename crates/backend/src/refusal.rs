//! Why a publish is refused, and the status that says so.

use bytes::Bytes;
use highwater_wire::proto::backend::{PublishError, publish_error::Reason};
use prost::Message as _;
use prost_types::Any;
use tonic::{Code, Status};

use crate::store::StoreError;

const TYPE_URL: &str = "type.googleapis.com/xmtp.backend.v1.PublishError";

/// A definite refusal: resending the same request can't help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(Reason::MalformedPayload, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(Reason::TooLarge, message)
    }

    /// INVALID_ARGUMENT with the machine-readable detail; `index` is absent when the request as a
    /// whole is at fault.
    pub(crate) fn status(self, index: Option<usize>) -> Status {
        let message = match index {
            Some(index) => format!("envelope {index}: {}", self.message),
            None => self.message.clone(),
        };
        let detail = PublishError {
            index: index.map(|index| u32::try_from(index).unwrap_or(u32::MAX)),
            reason: self.reason.into(),
            message: self.message,
        };
        let status = tonic_types::pb::Status {
            code: Code::InvalidArgument.into(),
            message: message.clone(),
            details: vec![Any { type_url: TYPE_URL.to_owned(), value: detail.encode_to_vec() }],
        };
        Status::with_details(Code::InvalidArgument, message, Bytes::from(status.encode_to_vec()))
    }
}

/// What a caller is told when the store failed.
pub(crate) fn store_status(error: StoreError) -> Status {
    match error {
        StoreError::Unavailable(_) => {
            tracing::warn!(%error, "store unavailable");
            Status::unavailable("the store is unavailable; retry with backoff")
        }
        StoreError::WentBack(_) => {
            tracing::error!(%error, "the database was swapped for an older copy");
            Status::unavailable("the store went back; reconnect")
        }
        StoreError::TimedOut(_) => {
            tracing::warn!(%error, "store too slow");
            Status::deadline_exceeded("the store took too long; retry with backoff")
        }
        StoreError::Corrupt(_) => {
            tracing::error!(%error, "stored value breaks an invariant");
            Status::internal("a stored value breaks an invariant")
        }
    }
}

/// What a stream is told when something it can't do without failed: it is over, whatever the reason
/// (STR-035).
pub(crate) fn stream_status(error: StoreError) -> Status {
    match error {
        StoreError::TimedOut(_) => Status::unavailable("the store took too long; reconnect"),
        error => store_status(error),
    }
}
