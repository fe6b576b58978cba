//! The store through its public interface, on real files.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod cancel;
mod close;
mod encryption;
mod opening;
mod processes;
mod support;
mod transactions;
