//! The facade through its public interface, against a real backend.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod callbacks;
mod contents;
mod conversations;
mod discovered;
mod ends;
mod handoffs;
mod opening;
mod refused;
mod sending;
mod streams;
