//! Decides what to fetch, send and process, and when. The only crate below the facade that reaches the network.
//!
//! An [`Engine`] runs four small drivers over one database and one backend connection:
//!
//! - the **receiver** keeps a stream open while somebody is interested, bidirectional or static ones as it is told,
//!   registers topics at their durable F, and admits what arrives;
//! - the **processor** attempts pending envelopes and Welcomes, and has their needs resolved;
//! - the **publisher** prepares and publishes what the outbox holds;
//! - **operations** (an explicit sync, a send that waits) fix their targets, query what no receiver supplies, and wait.
//!
//! # Invariants
//!
//! - Everything received goes through `receipt`'s admission, from the cursor it was asked for after; nothing else moves
//!   F (STR-060, STR-062).
//! - A target is fixed once; later traffic doesn't move it (PROC-015). Completion is computed from F, P, unresolved
//!   Welcomes and group state, never from what a connection did (PROC-016).
//! - Reconnecting resumes from durable F with the interests of that moment (STR-036).
//! - Wakes are hints: every driver looks at the database again (STR-078).
//!
//! # What it does not do
//!
//! It has no tables. What must survive a crash is in the database of the crates below; an operation that dies with its
//! process is started again by whoever wanted it.

mod admission;
mod backoff;
mod bidirectional;
mod catch_up;
mod deliver;
mod desired;
mod engine;
mod episode;
mod error;
mod fetch;
mod interests;
mod obligation;
mod operation;
mod owed_welcomes;
mod processor;
mod publisher;
mod receiver;
mod resolver;
mod static_receiver;
mod static_streams;

pub use backoff::Backoff;
pub use catch_up::{
    CatchUp, CatchUpChanges, ConnectionState, ProcessingState, RegistrationState, TopicStatus,
};
pub use engine::{Engine, EngineOptions};
pub use episode::{Episode, RECOVERY_BUDGET_CYCLES, RECOVERY_BUDGET_TIME, SUSTAINED_RECOVERY};
pub use error::SyncError;
pub use interests::{Interest, InterestEnd, Scope};
pub use obligation::{Cause, Obligation};
pub use operation::{SyncRequest, Synced};
pub use receiver::ReceiverKind;

use std::time::Duration;

/// How long a send waits for a healthy receiver to bring its echo before it queries for it (STR-114).
pub const RECEIVER_FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// How long, in healthy connection time, a referenced identity update may stay missing (STR-076). Exceeds the backend's
/// statement timeout of 5 s.
pub const IDENTITY_REFERENCE_WAIT: Duration = Duration::from_secs(30);
/// How long an operation runs when its caller names no deadline.
pub const BARRIER_TIMEOUT: Duration = Duration::from_secs(60);
/// How many dependency requests are under way at once in one process.
pub const MAX_DEPENDENCY_REQUESTS: usize = 8;
