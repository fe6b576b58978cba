//! A connection against a scripted backend, over real gRPC on loopback.

#![allow(clippy::unwrap_used)]

mod failures;
mod lookups;
mod newest;
mod publish;
mod query;
mod receiver;
mod scripted;
mod scripted_static;
mod static_receiver;
mod tls;
