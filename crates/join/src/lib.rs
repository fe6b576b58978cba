//! Welcomes: unwrap, validate, install at the anchor.
//!
//! Each Welcome on this installation's Welcome topic is attempted on its own; one that can't be settled now delays no
//! other. An attempt is one transaction through the owners of everything a join touches: MLS state, P and F at the
//! anchor, the conversation's discovery, the transcript, the key package, and the Welcome's own completion.
//!
//! # Invariants
//!
//! - A pending Welcome is either settled (joined, rejected, expired: one outcome row) or still pending in `receipt`;
//!   never both, never neither (STR-084).
//! - A failed installation leaves the earlier group state, the key package and the pending Welcome as they were.
//! - A join never rewinds P and never overwrites newer active state (STR-082).
//! - A retention deadline is set once; neither a retry nor a restart extends it (STR-115).
//!
//! # What it does not do
//!
//! It never reaches the network: missing identity states and prefixes come back as [`Need`](highwater_mls::Need)s. It
//! does not publish the fresh key package that a join makes due.

mod attempt;
mod audit;
mod error;
mod existing;
mod hold;
mod outcome;

use highwater_store::Migrations;

pub use attempt::{JoinReport, attempt};
pub use audit::audit;
pub use error::JoinError;
pub use existing::{Existing, LocalGroup, existing};
pub use hold::{HeldWelcome, POINTER_RETENTION, RETENTION, held, next_retry, ready};
pub use outcome::{WelcomeOutcome, outcomes, unresolved};

/// The tables of this crate.
pub const MIGRATIONS: Migrations =
    Migrations { owner: "join", steps: &[include_str!("../migrations/1.sql")] };
