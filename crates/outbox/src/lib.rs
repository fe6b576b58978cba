//! What this client wants to say, and the exact bytes it said it with.
//!
//! An **intent** is one change an app asked for: a message, or a change of a group. An **attempt** is the exact bytes
//! prepared for an intent. This crate owns both, and the Welcomes that a confirmed commit still owes.
//!
//! # Invariants
//!
//! - Nothing goes on the wire before its exact bytes, its payload identity and the MLS state it was made from are
//!   durable, in one transaction (STR-110).
//! - An intent has at most one current attempt. While its publish outcome is ambiguous the same bytes are offered again
//!   and again; only an echo or a commit that proves the attempt superseded makes room for a new one (STR-111).
//! - Queue order is publish order within a group. A prepared change blocks every later intent of its group until its
//!   echo resolves it (STR-112).
//! - An attempt is matched by its payload identity and by nothing else (STR-113).
//! - The Welcomes of a commit are sealed in the transaction that applies its echo, because only then is their anchor
//!   known, and are kept as exact bytes until each was accepted.
//!
//! # What it does not do
//!
//! It never publishes, and it doesn't know where identity states or key packages come from: they are arguments, and
//! what is missing is returned as [`Need`](highwater_mls::Need) values.

mod audit;
mod change;
mod create;
mod echo;
mod error;
mod intent;
mod prepare;
mod publish;
mod rows;
mod welcome;

use highwater_store::Migrations;

pub use audit::audit;
pub use create::{CreateGroup, create_group};
pub use echo::{
    MatchedAttempt, MatchedIntent, echo_applied, echo_rejected, echo_stale, epoch_advanced, matching,
    membership_ended,
};
pub use error::OutboxError;
pub use intent::{
    ChangeRequest, IntentId, Outcome, groups_with_work, outcome, queue_change, queue_message,
    unresolved_intents,
};
pub use prepare::{Inputs, Next, Prepare, next, prepare};
pub use publish::{Attempt, AttemptId, awaited_echo, publishable, refused, replied};
pub use welcome::{OwedWelcome, owed_welcomes, welcome_accepted, welcome_refused};

/// The tables of this crate.
pub const MIGRATIONS: Migrations =
    Migrations { owner: "outbox", steps: &[include_str!("../migrations/1.sql")] };
