//! The streaming backend: publish, reads, stream sessions.
//!
//! Owns: the store of envelopes behind one trait ([`EnvelopeStore`]: [`SqliteStore`], [`PostgresStore`]) and its
//! `backend_*` tables; what may be stored (admission); the two kinds of stream; the server around
//! them ([`Server`]).
//!
//! Invariants:
//! - A publish stores all its envelopes or none. `(topic, hash)` is stored once.
//! - Sequence ids are unique over all topics and allocated after every lock of their publish is held;
//!   on one topic id order is commit order, and no id is ever given out twice.
//! - Every reader of a topic sees a prefix: ascending, nothing left out above its start (STR-010).
//! - A stream that is slow, silent or gone costs the tailer and the other streams nothing (STR-031).
//!
//! Decisions about a stream are the plain state machine in `session`; `subscribe` drives it. Nothing
//! else is shared between instances than the database.
//!
//! Deliberately absent: authorisation, any look inside encrypted payloads, TLS (it ends in front of
//! the server), and durable state of readers: their positions are theirs.

mod admission;
mod choice;
mod config;
mod connection;
mod counted;
mod handoff;
mod health;
mod metrics;
mod monitor;
mod postgres;
mod publish;
mod query;
mod refusal;
mod registry;
mod server;
mod session;
mod settings;
mod sqlite;
pub mod store;
mod subscribe;
mod tailer;
mod wallets;
mod web;

pub use config::{
    ConfigError, CorsOrigins, DatabaseConfig, Limits, PostgresConfig, ServerConfig, Timing, WalletRoute,
};
pub use postgres::PostgresStore;
pub use registry::Activity;
pub use server::{ServeError, Server, StartError};
pub use settings::{LogFormat, LogSettings, Settings, SettingsError};
pub use sqlite::SqliteStore;
pub use store::{EnvelopeStore, StoreError};
