//! The encrypted database file and the one way to write it.
//!
//! # What it owns
//!
//! - The file: SQLCipher in WAL mode with `synchronous=FULL`, opened with a raw 32-byte key that every connection gives
//!   before anything else (PROC-036, STR-064). [`Store::open`] says what is wrong with a file it can't use and leaves it
//!   as it was.
//! - The writer. [`Store::write`] holds the one write transaction there is, across connections and processes, from
//!   before its first read until it is committed or rolled back (STR-070, STR-071). Dropping the caller's future
//!   doesn't split it. [`Store::write_gated`] lets a caller withdraw until the last moment before COMMIT (PROC-052).
//! - Snapshots. [`Store::read`] runs on connections of its own that can't write.
//! - Wake hints. [`Store::wakes`] changes after every commit of this process, and within
//!   [`ACTIVE_DATABASE_POLL_INTERVAL`] of one of another process (STR-078, STR-079).
//! - The identity of the database, the versions of every owner's tables, and the clock.
//!
//! # Invariants
//!
//! - A connection whose transaction state isn't known is closed, never used again.
//! - Tables are changed by whoever is named in them: an owner `x` has tables `x_*` and brings [`Migrations`] for them.
//! - After [`Store::close`] no connection is open and no lock is held.
//! - No error, log line or `Debug` form contains the key or a bound value.
//!
//! # What it deliberately doesn't do
//!
//! It knows no table but `store_*`, retries no transaction (a closure may have effects), and offers no nesting:
//! a `write` inside a `write` waits for itself forever.

mod audit;
mod clock;
mod code;
mod connect;
mod error;
mod gate;
mod id;
mod inspect;
mod keep;
mod key;
mod open;
mod poll;
mod read;
mod schema;
mod store;
mod version;
mod write;

use std::time::Duration;

pub use audit::{Audit, Violation, audit};
pub use clock::{Clock, SystemClock};
pub use error::{OpenError, StoreError};
pub use gate::{CommitGate, GateOutcome};
pub use id::{DatabaseId, DatabaseIdError};
pub use keep::Kept;
pub use key::{DatabaseKey, KeyError};
pub use open::OpenOptions;
pub use read::ReadTx;
pub use schema::Migrations;
pub use store::Store;
pub use version::Version;
pub use write::WriteTx;

/// The longest pause between two checks for commits of other processes (STR-079).
pub const ACTIVE_DATABASE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a transaction waits for another process's lock before it fails with [`StoreError::Busy`].
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What both kinds of transaction can do: read.
pub trait Reads: Send {
    /// The connection, for queries. Transaction statements on it are this crate's business alone.
    fn conn(&mut self) -> &mut sqlx::SqliteConnection;

    /// The store's clock: nanoseconds since the Unix epoch.
    fn now_ns(&self) -> i64;
}
