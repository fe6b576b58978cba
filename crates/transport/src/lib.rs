//! One connection to one backend, and what can be said about everything that comes back over it.
//!
//! Owns: ordered reads, newest-envelope reads, publishes, identity look-ups, and single receiver
//! sessions, bidirectional and static, with the way they ended.
//!
//! Invariants:
//! - Ordered envelopes leave this crate only as [`OrderedPrefix`](highwater_wire::OrderedPrefix)es,
//!   each checked from the exclusive start that the read or the registration was asked for
//!   (STR-060, PROC-001).
//! - A publish sends the bytes it was given, and its receipts are one per envelope, in order.
//! - A session accepts messages only of registrations that the backend has acknowledged and not
//!   yet acknowledged the end of (STR-006, STR-007, STR-008). A peer that breaks the order ends it.
//! - What arrived and wasn't taken yet is bounded ([`MAX_FETCHED_ROWS`], [`MAX_FETCHED_BYTES`]).
//!   While the bound holds back reading, nothing counts as silence.
//! - A failure caused on this side of the wire is never reported as one that the backend decided.
//!
//! Deliberately absent: any database, any position that outlives a call or a session, reconnecting,
//! backoff, and all judgement about what a payload means.

mod arrived;
mod connection;
mod error;
mod fetched;
mod identity;
mod pace;
mod publish;
mod query;
mod receiver;
mod session;
mod static_receiver;
mod static_session;
mod status;

pub use connection::{ConnectOptions, Connection};
pub use error::{PublishRefusal, RefusalReason, TransportError};
pub use fetched::{MAX_FETCHED_BYTES, MAX_FETCHED_ROWS};
pub use identity::WalletSignature;
pub use publish::PublishReceipt;
pub use query::QueryPage;
pub use receiver::{Receiver, ReceiverEnd, ReceiverEvent};
pub use session::UpdateId;
pub use static_receiver::{StaticEvent, StaticReceiver};
