//! A disk that fails when it is told to: under the whole store, encryption included, and over a real file system.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use libsqlite3_sys as ffi;

use crate::vfs;

/// The page size of an encrypted database.
const PAGE: i64 = 4096;

/// What is done to a file, as far as it changes something and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file comes into being.
    Create,
    /// Bytes are written.
    Write,
    /// A file gets another length.
    Truncate,
    /// What was written becomes durable.
    Sync,
    /// A file goes away.
    Delete,
}

/// Which of the database's files it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The database.
    Main,
    /// Its write-ahead log.
    Wal,
    /// Its rollback journal, which it has until it is switched to the WAL.
    Journal,
    /// Anything else.
    Other,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with an I/O error, and later ones work.
    FailOnce,
    /// The operation and every later write find the disk full, until [`Disk::heal`].
    Full,
    /// The process is killed: half of a write comes about, nothing after it does, and the files stay as they are.
    Stop,
}

/// A disk. Its faults reach every connection that was opened with its [`Disk::vfs`] name.
#[derive(Debug)]
pub struct Disk {
    name: String,
    state: &'static State,
}

impl Disk {
    /// A disk that works. It stays registered to the end of the process: tests use one for many databases.
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("test-disk-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let state: &'static State = Box::leak(Box::default());
        vfs::register(&name, state);
        Self { name, state }
    }

    /// What the store's options take.
    pub fn vfs(&self) -> &str {
        &self.name
    }

    /// Forgets the past, works again, and lets the `at`-th operation from now on meet the fault: 0 is the next one.
    pub fn arm(&self, at: usize, fault: Fault) {
        self.state.become_now(Now { plan: Some((at, fault)), ..Now::default() });
    }

    /// Lets the next operation of this sort wait, and its connection with it, until [`Disk::heal`].
    pub fn hold(&self, operation: Operation, kind: Kind) {
        self.state.lock().to_hold = Some((operation, kind));
    }

    /// Whether an operation waits.
    pub fn holds(&self) -> bool {
        self.state.lock().holds
    }

    /// From now on reads of this page of the database fail; the first page is 1.
    pub fn spoil_page(&self, page: u32) {
        self.state.lock().bad_page = Some(page);
    }

    /// Works again. What was done is still counted.
    pub fn heal(&self) {
        let mut now = self.state.lock();
        (now.plan, now.mode, now.bad_page) = (None, Mode::Good, None);
        (now.to_hold, now.holds) = (None, false);
        self.state.goes_on.notify_all();
    }

    /// Forgets the past, and works.
    pub fn reset(&self) {
        self.state.become_now(Now::default());
    }

    /// What was done since the past was last forgotten.
    pub fn operations(&self) -> Vec<(Operation, Kind)> {
        self.state.lock().done.clone()
    }

    /// Which operation met the armed fault.
    pub fn struck(&self) -> Option<(Operation, Kind)> {
        self.state.lock().struck
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    now: Mutex<Now>,
    /// Nothing has to wait any more.
    goes_on: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    done: Vec<(Operation, Kind)>,
    plan: Option<(usize, Fault)>,
    struck: Option<(Operation, Kind)>,
    mode: Mode,
    bad_page: Option<u32>,
    to_hold: Option<(Operation, Kind)>,
    holds: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Good,
    Full,
    Stopped,
}

/// What becomes of an operation. Failures carry SQLite's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes,
    Fails(i32),
    /// A write that is half done.
    Torn(i32),
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_now(&self, now: Now) {
        *self.lock() = now;
        self.goes_on.notify_all();
    }

    /// An operation that changes a file.
    pub(crate) fn change(&self, operation: Operation, kind: Kind) -> Verdict {
        let mut now = self.lock();
        if now.to_hold == Some((operation, kind)) {
            (now.to_hold, now.holds) = (None, true);
            now = self.goes_on.wait_while(now, |now| now.holds).unwrap_or_else(PoisonError::into_inner);
        }
        let failure = failure(operation);
        if now.mode == Mode::Stopped {
            return Verdict::Fails(failure);
        }
        let index = now.done.len();
        now.done.push((operation, kind));
        let strikes = now.plan.filter(|(at, _)| *at == index).map(|(_, fault)| fault);
        if strikes.is_some() {
            now.struck = Some((operation, kind));
        }
        match strikes {
            Some(Fault::FailOnce) => return Verdict::Fails(failure),
            Some(Fault::Full) => now.mode = Mode::Full,
            Some(Fault::Stop) => {
                now.mode = Mode::Stopped;
                return Verdict::Torn(failure);
            }
            None => {}
        }
        match now.mode == Mode::Full && operation == Operation::Write {
            true => Verdict::Fails(ffi::SQLITE_FULL),
            false => Verdict::Passes,
        }
    }

    /// Anything that changes nothing, with the code of its failure.
    pub(crate) fn look(&self, failure: i32) -> Verdict {
        if self.is_stopped() { Verdict::Fails(failure) } else { Verdict::Passes }
    }

    pub(crate) fn read(&self, kind: Kind, at: i64, length: i32) -> Verdict {
        let now = self.lock();
        let spoilt = now.bad_page.is_some_and(|page| {
            let start = (i64::from(page) - 1) * PAGE;
            kind == Kind::Main && at < start + PAGE && at + i64::from(length) > start
        });
        match spoilt || now.mode == Mode::Stopped {
            true => Verdict::Fails(ffi::SQLITE_IOERR_READ),
            false => Verdict::Passes,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().mode == Mode::Full
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().mode == Mode::Stopped
    }
}

fn failure(operation: Operation) -> i32 {
    match operation {
        Operation::Create => ffi::SQLITE_CANTOPEN,
        Operation::Write => ffi::SQLITE_IOERR_WRITE,
        Operation::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
        Operation::Sync => ffi::SQLITE_IOERR_FSYNC,
        Operation::Delete => ffi::SQLITE_IOERR_DELETE,
    }
}
