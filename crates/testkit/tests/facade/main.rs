//! The facade through its public interface, against a real backend.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod callbacks;
mod conversations;
mod opening;
mod sending;
mod streams;
