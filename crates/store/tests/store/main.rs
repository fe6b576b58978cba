//! The store through its public interface, on real files.

mod cancel;
mod close;
mod encryption;
mod opening;
mod processes;
mod support;
mod transactions;
