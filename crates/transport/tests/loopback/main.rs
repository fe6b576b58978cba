//! A connection against a scripted backend, over real gRPC on loopback.

#![allow(clippy::unwrap_used)]

mod receiver;
mod requests;
mod scripted;
