//! **P**: how far each group and identity topic was processed, and everything that moves it.
//!
//! An **attempt** is one bounded transaction: it takes the writer, loads fresh state, applies or terminally rejects a
//! run of the topic's pending envelopes from its head, and commits their effects together with P. It stops before the
//! first envelope that can be neither applied nor rejected, which is then **held**. Topics with short backlogs share an
//! attempt and stay independent in it.
//!
//! # Invariants
//!
//! - `P ≤ F`, P never falls, and every envelope at or below P was applied or has a recorded rejection (PROC-005).
//! - All effects of an envelope (MLS state, messages, outbox outcome, removal of its pending row) commit with the P that
//!   covers it, or none do (PROC-008).
//! - A rejection rests on the ordered prefix, the installed state and verified identity states alone (PROC-011). A local
//!   failure is never one.
//! - An identity state is verified, for exactly one inbox at exactly one sequence id, or it isn't there (STR-076).
//!
//! # What it does not do
//!
//! It never reaches the network: what an attempt lacks it returns as [`Need`](highwater_mls::Need) values, and it is
//! called again with their [`Resolutions`](highwater_mls::Resolutions). Welcomes are `join`'s; when to attempt what is
//! decided by the [`Scheduler`], which somebody else drives.

mod attempt;
mod audit;
pub mod disposition;
mod effects;
mod error;
mod group;
mod hold;
mod identity;
mod position;
mod question;
mod reason;
mod rejection;
mod run;
mod scheduler;

use highwater_store::Migrations;

pub use attempt::{Hold, MAX_ATTEMPT_ROWS, MAX_ATTEMPT_TOPICS, Report, Stop, attempt, attempt_together};
pub use audit::audit;
pub use error::ProcessingError;
pub use hold::{HeldHead, held, requires_newer_version};
pub use identity::{latest_snapshot, snapshot, snapshots};
pub use position::{AnchorRule, ProcessedPosition, positions, processed, set_anchor};
pub use reason::{HoldCause, Reason};
pub use rejection::{Rejection, rejections};
pub use scheduler::{Action, Event, Scheduler};

/// The tables of this crate.
pub const MIGRATIONS: Migrations =
    Migrations { owner: "processing", steps: &[include_str!("../migrations/1.sql")] };
