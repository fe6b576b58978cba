use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const PENDING: u8 = 0;
const ADMITTED: u8 = 1;
const CANCELLED: u8 = 2;

/// Decides, in one atomic step, between committing a gated write and cancelling it (PROC-052).
///
/// The writer admits immediately before `COMMIT`; whoever lost interest cancels. Whichever comes first stands.
#[derive(Clone, Debug, Default)]
pub struct CommitGate(Arc<AtomicU8>);

impl CommitGate {
    /// A gate that nobody has decided.
    pub fn pending() -> Self {
        Self::default()
    }

    /// Cancels the write, unless its commit was admitted. Says whether it is cancelled.
    pub fn cancel(&self) -> bool {
        self.decide(CANCELLED)
    }

    /// Admits the commit, unless it was cancelled. Says whether it is admitted.
    pub(crate) fn admit(&self) -> bool {
        self.decide(ADMITTED)
    }

    fn decide(&self, decision: u8) -> bool {
        match self.0.compare_exchange(PENDING, decision, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(earlier) => earlier == decision,
        }
    }
}

/// How a gated write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOutcome<T> {
    /// Committed.
    Committed(T),
    /// Rolled back, because the gate was cancelled first.
    Cancelled,
}
