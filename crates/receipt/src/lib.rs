//! F: what was durably received, and the envelopes that wait to be processed.
//!
//! Owns: the received position F of every topic, the pending envelopes, and the budgets that bound
//! them. This is the only crate whose SQL changes either.
//!
//! # Invariants
//!
//! - Every envelope of a topic after its starting anchor and at or below F is pending here, or was
//!   applied or terminally rejected (STR-061, PROC-002). F never falls; the database refuses it.
//! - F moves in two ways only: with the envelopes it covers, in one transaction ([`admit`]), or to
//!   the anchor of a join that was installed ([`anchor`]). No target, push, publish reply or
//!   newest-envelope result can move it (STR-062): [`ReceivedPosition`] has no public constructor
//!   and nothing but an [`OrderedPrefix`](highwater_wire::OrderedPrefix) is admitted (STR-060).
//! - A topic has at most one pending row per sequence id, and none above F.
//! - What is pending stays within its [`budgets`]: group, Welcome and identity envelopes have
//!   separate ones (STR-063, STR-066, PROC-020). A budget that is used up stops receipt, never
//!   drops a row and never moves F.
//!
//! # What it does not do
//!
//! It doesn't know what an envelope means, who may process it or in which order topics take turns;
//! that a received envelope is authentic is for processing to find out (STR-064). It never decides
//! what to fetch.

mod admission;
mod audit;
pub mod budgets;
mod capacity;
mod error;
mod pending;
mod position;
mod settle;

use highwater_store::Migrations;

pub use admission::{Admission, admit};
pub use audit::audit;
pub use budgets::Budget;
pub use capacity::{Room, may_receive, may_receive_many, room};
pub use error::{AdmitError, ReceiptError};
pub use pending::{
    PendingEnvelope, PendingPart, PendingTopic, pending, pending_after, pending_ids, pending_one,
    pending_together, pending_topics,
};
pub use position::{ReceivedPosition, received, received_many, topics};
pub use settle::{anchor, settle_one, settle_through, settle_together};

/// The tables of this crate.
pub const MIGRATIONS: Migrations =
    Migrations { owner: "receipt", steps: &[include_str!("../migrations/1.sql")] };
