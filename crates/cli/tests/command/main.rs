//! The command line, through the real binary: its lines, its exit status, and what it survives.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod bad_input;
mod by_hand;
mod contents;
mod demo;
mod handled;
mod killed;
mod offline;
mod secrets;
mod serve;
mod support;
mod unread;
