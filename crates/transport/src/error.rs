//! How a call or a session failed.

use std::time::Duration;

/// Why a call failed or a session ended.
///
/// Which side decided matters: [`TransportError::Cancelled`] is the backend's own word, while a cut
/// or a time limit on this side is [`TransportError::Unavailable`] or
/// [`TransportError::DeadlineExceeded`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The URL can't be connected to, whatever the network does.
    #[error("the backend's address is unusable: {0}")]
    BadEndpoint(String),
    /// The request is wrong. Never send it again unchanged.
    #[error("the request is invalid: {message}")]
    InvalidArgument {
        /// The backend's words, or this crate's when the request wasn't sent at all.
        message: String,
        /// Which envelope of a publish was refused, and why, when the backend said so.
        publish: Option<PublishRefusal>,
    },
    /// A message was longer than one side takes. After a publish, only a read of the topic tells
    /// whether it was stored.
    #[error("a message is too long: {message}")]
    OutOfRange {
        /// The peer's words.
        message: String,
    },
    /// What the request was built on has changed: read again, build again.
    #[error("the request was overtaken: {message}")]
    Aborted {
        /// The backend's words.
        message: String,
    },
    /// The backend can't be reached or can't serve now, or the connection was cut.
    #[error("the backend is unavailable: {message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// How long the backend asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer in time, by this side's limit or by the backend's.
    #[error("no answer in time: {message}")]
    DeadlineExceeded {
        /// Whose limit.
        message: String,
    },
    /// Too many requests, or too slow a reader.
    #[error("the backend's limits are exhausted: {message}")]
    ResourceExhausted {
        /// The backend's words.
        message: String,
        /// How long the backend asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Credentials are missing or refused.
    #[error("the backend refuses the credentials: {message}")]
    Unauthenticated {
        /// The backend's words.
        message: String,
    },
    /// The deployment refuses this client for good. The connection that was told so sends nothing more: every later
    /// call fails with the same words before any request.
    #[error("the deployment refuses this client: {message}")]
    Refused {
        /// The deployment's words.
        message: String,
    },
    /// The backend doesn't offer the call.
    #[error("the backend doesn't implement this: {message}")]
    Unimplemented {
        /// The backend's words.
        message: String,
    },
    /// The backend found one of its own invariants broken.
    #[error("the backend failed: {message}")]
    Internal {
        /// The backend's words.
        message: String,
    },
    /// The backend cancelled the call explicitly.
    #[error("the backend cancelled: {message}")]
    Cancelled {
        /// The backend's words.
        message: String,
    },
    /// The backend answered with a code that this protocol has no meaning for.
    #[error("the backend answered {code}: {message}")]
    Unexpected {
        /// The code's name.
        code: &'static str,
        /// The backend's words.
        message: String,
    },
    /// The peer broke the protocol. Nothing of the offending answer was used.
    #[error("the backend broke the protocol: {0}")]
    Protocol(String),
    /// This side closed the session.
    #[error("the session is closed")]
    Closed,
}

impl TransportError {
    /// An [`TransportError::Unavailable`] without a wish of the backend's.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument { message: message.into(), publish: None }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(message.into())
    }

    /// Whether the same call may succeed later, after a backoff.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Aborted { .. }
            | Self::Unavailable { .. }
            | Self::DeadlineExceeded { .. }
            | Self::ResourceExhausted { .. } => true,
            // Proxies answer so for what they can't express.
            Self::Unexpected { code, .. } => *code == "UNKNOWN",
            Self::BadEndpoint(_)
            | Self::InvalidArgument { .. }
            | Self::OutOfRange { .. }
            | Self::Unauthenticated { .. }
            | Self::Refused { .. }
            | Self::Unimplemented { .. }
            | Self::Internal { .. }
            | Self::Cancelled { .. }
            | Self::Protocol(_)
            | Self::Closed => false,
        }
    }

    /// How long the backend asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } | Self::ResourceExhausted { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Whether a failed publish is known to have stored nothing. Every other failure leaves it open.
    pub fn proves_nothing_stored(&self) -> bool {
        matches!(self, Self::InvalidArgument { .. })
    }
}

/// Which envelope of a publish was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRefusal {
    /// The lowest failing envelope; absent when the request as a whole is at fault.
    pub index: Option<u32>,
    /// The rule that failed.
    pub reason: RefusalReason,
    /// The backend's words.
    pub message: String,
}

/// The rule that a refused envelope failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// None that this client knows.
    Unspecified,
    /// The payload doesn't parse.
    MalformedPayload,
    /// The key package is invalid or outside its lifetime.
    InvalidKeyPackage,
    /// The identity update doesn't apply to the inbox's history.
    InvalidIdentityUpdate,
    /// A signature doesn't verify.
    InvalidSignature,
    /// The envelope or the request is too long.
    TooLarge,
}

impl RefusalReason {
    /// A short stable name for records and logs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::MalformedPayload => "malformed_payload",
            Self::InvalidKeyPackage => "invalid_key_package",
            Self::InvalidIdentityUpdate => "invalid_identity_update",
            Self::InvalidSignature => "invalid_signature",
            Self::TooLarge => "too_large",
        }
    }
}
