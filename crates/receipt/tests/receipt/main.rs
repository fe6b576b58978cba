//! Receipt through its public interface, over real encrypted databases.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod capacity;
mod interruption;
mod model;
mod properties;
mod support;
