//! From a gRPC status to a [`TransportError`].

use std::error::Error as _;

use highwater_wire::proto::backend::{PublishError, publish_error::Reason};
use prost::Message as _;
use tonic::{Code, Status, TimeoutExpired};
use tonic_types::StatusExt as _;

use crate::{PublishRefusal, RefusalReason, TransportError};

const PUBLISH_ERROR: &str = "/xmtp.backend.v1.PublishError";

impl From<Status> for TransportError {
    fn from(status: Status) -> Self {
        // A status that the peer sent was read from headers and has no source; one that this side
        // made of a broken connection or an expired timer has.
        if status.source().is_some() { local(&status) } else { remote(&status) }
    }
}

fn local(status: &Status) -> TransportError {
    let message = with_causes(status);
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<TimeoutExpired>() {
            return TransportError::DeadlineExceeded { message };
        }
        cause = error.source();
    }
    match status.code() {
        Code::DeadlineExceeded => TransportError::DeadlineExceeded { message },
        Code::ResourceExhausted => TransportError::ResourceExhausted { message, retry_after: None },
        _ => TransportError::unavailable(message),
    }
}

/// "transport error" alone helps nobody.
fn with_causes(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

fn remote(status: &Status) -> TransportError {
    let message = status.message().to_owned();
    match status.code() {
        Code::InvalidArgument => TransportError::InvalidArgument { message, publish: refusal(status) },
        Code::OutOfRange => TransportError::OutOfRange { message },
        Code::Aborted => TransportError::Aborted { message },
        Code::Unavailable => TransportError::Unavailable { message, retry_after: retry_after(status) },
        Code::DeadlineExceeded => TransportError::DeadlineExceeded { message },
        Code::ResourceExhausted => {
            TransportError::ResourceExhausted { message, retry_after: retry_after(status) }
        }
        Code::Unauthenticated => TransportError::Unauthenticated { message },
        Code::PermissionDenied => TransportError::Refused { message },
        Code::Unimplemented => TransportError::Unimplemented { message },
        Code::Internal | Code::DataLoss => TransportError::Internal { message },
        Code::Cancelled => TransportError::Cancelled { message },
        Code::Unknown => unexpected("UNKNOWN", message),
        Code::NotFound => unexpected("NOT_FOUND", message),
        Code::AlreadyExists => unexpected("ALREADY_EXISTS", message),
        Code::FailedPrecondition => unexpected("FAILED_PRECONDITION", message),
        Code::Ok => unexpected("OK", message),
    }
}

fn unexpected(code: &'static str, message: String) -> TransportError {
    TransportError::Unexpected { code, message }
}

fn retry_after(status: &Status) -> Option<std::time::Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn refusal(status: &Status) -> Option<PublishRefusal> {
    let details = tonic_types::Status::decode(status.details()).ok()?.details;
    let detail = details.iter().find(|detail| detail.type_url.ends_with(PUBLISH_ERROR))?;
    let found = PublishError::decode(detail.value.as_slice()).ok()?;
    Some(PublishRefusal { index: found.index, reason: reason(found.reason()), message: found.message })
}

fn reason(reason: Reason) -> RefusalReason {
    match reason {
        Reason::Unspecified => RefusalReason::Unspecified,
        Reason::MalformedPayload => RefusalReason::MalformedPayload,
        Reason::InvalidKeyPackage => RefusalReason::InvalidKeyPackage,
        Reason::InvalidIdentityUpdate => RefusalReason::InvalidIdentityUpdate,
        Reason::InvalidSignature => RefusalReason::InvalidSignature,
        Reason::TooLarge => RefusalReason::TooLarge,
    }
}
