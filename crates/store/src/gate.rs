use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const PENDING: u8 = 0;
const ADMITTED: u8 = 1;
const CANCELLED: u8 = 2;

/// Decides, once, whether a transaction may commit (PROC-052). The writer admits it as the last thing before COMMIT; a
/// caller cancels it. Whoever comes first decides, and the other learns so. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct CommitGate(Arc<AtomicU8>);

impl CommitGate {
    /// A gate that nothing has been decided at.
    pub fn pending() -> Self {
        Self(Arc::new(AtomicU8::new(PENDING)))
    }

    /// Lets the commit pass. Whether it may: false once the gate was cancelled.
    pub fn admit(&self) -> bool {
        self.decide(ADMITTED)
    }

    /// Closes the gate. Whether it is closed: false once the commit was admitted.
    pub fn cancel(&self) -> bool {
        self.decide(CANCELLED)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) == CANCELLED
    }

    fn decide(&self, wanted: u8) -> bool {
        match self.0.compare_exchange(PENDING, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(decided) => decided == wanted,
        }
    }
}

/// How a gated transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOutcome<T> {
    /// The gate admitted it, and it is durable.
    Committed(T),
    /// The gate was cancelled first, and nothing of it is durable.
    Cancelled,
}

/// Cancels the gate of a caller who went away.
pub(crate) struct CancelOnDrop(pub(crate) CommitGate);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: PROC-052.
    #[test]
    fn whoever_swaps_first_decides_and_stays_right() {
        let gate = CommitGate::pending();
        assert!(gate.admit());
        assert!(!gate.clone().cancel());
        assert!(gate.admit());
        let gate = CommitGate::pending();
        assert!(gate.cancel());
        assert!(!gate.clone().admit());
        assert!(gate.cancel());
    }
}
