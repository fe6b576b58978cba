//! What processing, joining and the outbox promise, over real databases and real groups, with a test that decides what
//! arrives when.
#![allow(clippy::unwrap_used, reason = "a test that can't set up its world has failed")]

mod commits;
mod disk;
mod garbage;
mod joining;
mod model;
mod sending;
mod table;
mod turns;
