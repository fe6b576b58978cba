//! Things that begin and end: each is counted at its end, also when it is only dropped.

use std::time::Instant;

use tonic::{Code, Status};

use super::{EndLabels, Method, Metrics, StreamKind};

/// What ends without an answer is the caller's doing.
const CANCELLED: &str = "cancelled";

/// An open stream.
#[derive(Debug)]
pub(crate) struct OpenSession {
    metrics: Metrics,
    kind: StreamKind,
    reason: &'static str,
}

impl OpenSession {
    pub(super) fn new(metrics: Metrics, kind: StreamKind) -> Self {
        metrics.0.sessions[kind as usize].inc();
        Self { metrics, kind, reason: CANCELLED }
    }

    /// How it ends; `None` is OK.
    pub(crate) fn ends(&mut self, status: Option<&Status>) {
        self.reason = status.map_or("ok", |status| name(status.code()));
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.metrics.0.sessions[self.kind as usize].dec();
        let labels = EndLabels { kind: self.kind, reason: self.reason };
        self.metrics.0.sessions_ended.get_or_create(&labels).inc();
    }
}

/// A unary call under way; a publish if it has no method.
#[derive(Debug)]
pub(crate) struct Call {
    metrics: Metrics,
    method: Option<Method>,
    started: Instant,
    outcome: &'static str,
}

impl Call {
    pub(super) fn new(metrics: Metrics, method: Option<Method>) -> Self {
        Self { metrics, method, started: Instant::now(), outcome: CANCELLED }
    }

    /// It was answered.
    pub(crate) fn answered<T>(mut self, answer: &Result<T, Status>) {
        self.outcome = match (answer, self.method) {
            (Ok(_), None) => "stored",
            (Ok(_), Some(_)) => "ok",
            (Err(status), _) => name(status.code()),
        };
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.metrics.called(self.method, self.outcome, self.started.elapsed());
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => CANCELLED,
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}
