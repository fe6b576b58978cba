//! Local delivery through its public interface, over real encrypted databases.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acknowledgement;
mod cancellation;
mod consumer;
mod conversations;
mod deletion;
mod history;
mod locks;
mod messages;
mod model;
mod owners;
mod ownership;
mod reads;
mod replay;
mod support;
