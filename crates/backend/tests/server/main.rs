//! The server as a peer sees it: a real tonic client over loopback, a real SQLite file.

mod fault;
#[allow(dead_code, reason = "the suite of PostgreSQL uses the rest of it")]
mod fixture;
mod health;
mod lifecycle;
mod metrics;
mod people;
mod private;
mod publish;
mod read;
mod subscribe;
mod wallets;
mod web;

/// What all of this is stored in; the suite of PostgreSQL runs parts of it again.
const ENGINE: fixture::Engine = fixture::Engine::Sqlite;
