//! The association log through its public interface, with real keys of every kind.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

mod actors;
mod additions;
mod builders;
mod contract_wallets;
mod creation;
mod encoding;
mod log;
mod passkeys;
mod recovery;
mod signatures;
mod text;
mod whole_updates;
