//! A disk that fails when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::vfs;

/// What a disk does from some operation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it works.
    None,
    /// One operation fails, the ones after it work.
    FailOnce,
    /// There is no room: every write fails, everything else works.
    Full,
    /// Nothing changes on it any more, as for a process that is killed there. What was written before stays.
    Stop,
}

/// What [`Disk`] is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Bytes of a file.
    Write,
    /// A shorter file, a synced file, a file gone.
    Other,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Works,
    Fails,
    Full,
}

/// A disk under SQLite that counts the operations which change something and fails at one of them. Reading always works.
///
/// It is the machine's own file system in between. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<State>,
    name: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    done: AtomicU64,
    fault: AtomicU8,
    at: AtomicU64,
    struck: AtomicBool,
}

impl Disk {
    /// A disk that works, known to SQLite under a name of its own from here on.
    ///
    /// # Panics
    /// When SQLite refuses it.
    pub fn new() -> Self {
        let state = Arc::new(State::default());
        let name = vfs::register(Arc::clone(&state));
        Self { state, name: name.into() }
    }

    /// The name under which a store finds it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts counting anew. `fault` comes with the operation after `after` others.
    pub fn fail_after(&self, after: u64, fault: Fault) {
        self.state.fault.store(Fault::None as u8, Ordering::SeqCst);
        self.state.done.store(0, Ordering::SeqCst);
        self.state.at.store(after, Ordering::SeqCst);
        self.state.struck.store(false, Ordering::SeqCst);
        self.state.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// Works again.
    pub fn heal(&self) {
        self.state.fault.store(Fault::None as u8, Ordering::SeqCst);
    }

    /// How many operations there were since [`Self::fail_after`], failed ones included.
    pub fn operations(&self) -> u64 {
        self.state.done.load(Ordering::SeqCst)
    }

    /// Whether the fault came since [`Self::fail_after`].
    pub fn has_failed(&self) -> bool {
        self.state.struck.load(Ordering::SeqCst)
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Counts an operation and says how it ends.
    pub(crate) fn operation(&self, operation: Operation) -> Verdict {
        let nth = self.done.fetch_add(1, Ordering::SeqCst);
        let fault = self.fault.load(Ordering::SeqCst);
        let at = self.at.load(Ordering::SeqCst);
        let verdict = match fault {
            _ if nth < at => Verdict::Works,
            fault if fault == Fault::FailOnce as u8 && nth == at => Verdict::Fails,
            fault if fault == Fault::Full as u8 && operation == Operation::Write => Verdict::Full,
            fault if fault == Fault::Stop as u8 => Verdict::Fails,
            _ => Verdict::Works,
        };
        if verdict != Verdict::Works {
            self.struck.store(true, Ordering::SeqCst);
        }
        verdict
    }
}
