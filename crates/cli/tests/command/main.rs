//! The command line, through the real binary: its lines, its exit status, and what it survives.

mod bad_input;
mod by_hand;
mod demo;
mod killed;
mod offline;
mod support;
