//! The encrypted database file of one client, and the one way to write it.
//!
//! This crate owns the file, its key, its schema bookkeeping, the writer lock, and the hints that something was
//! committed. It owns no position and no message: those are tables of the crates above, which hand over their
//! [`Migrations`] and get a [`WriteTx`].
//!
//! # Invariants
//!
//! - Nothing reaches the disk unencrypted: every connection gets the key before anything else, and a build without a
//!   cipher refuses to open (STR-064, PROC-036).
//! - A write is one `BEGIN IMMEDIATE … COMMIT` in a task of its own. A caller that goes away never splits it, and every
//!   closure sees state that was loaded after the writer lock was held, across processes (STR-070, STR-071).
//! - A connection whose state isn't known is thrown away, never reused.
//! - A failed open leaves the files as they were.
//! - Wakes are hints, raised after commits; commits of other processes are found by polling (STR-078).
//!
//! # What it does not do
//!
//! It doesn't know what is stored, never reaches the network, and never repairs or replaces a file that it can't open.

mod audit;
mod clock;
mod connect;
mod error;
mod gate;
mod key;
mod migrations;
mod open;
mod poll;
mod readers;
mod store;
mod tx;
mod writer;

pub use audit::{Audit, Violation, audit};
pub use clock::{Clock, SystemClock};
pub use error::{OpenError, StoreError};
pub use gate::{CommitGate, GateOutcome};
pub use key::{DatabaseId, DatabaseKey, KeyError};
pub use migrations::Migrations;
pub use open::OpenOptions;
pub use store::Store;
pub use tx::{ReadTx, Reads, WriteTx};

use std::time::Duration;

/// How often an open store looks for commits of other processes (STR-079).
pub const ACTIVE_DATABASE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a statement waits for another process's lock before it reports [`StoreError::Busy`].
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
