//! Whole clients against a real backend: killed, frozen, held up, and several to one database.
//!
//! Short by default; `HIGHWATER_SOAK` set runs the full size.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]
#![allow(clippy::print_stderr, reason = "a failed test says its seed")]

mod capacity;
mod closing;
mod disappearing;
mod frozen;
mod handing_out;
mod identity_wait;
mod killed;
mod owners;
mod process;
mod readers;
mod shared;
mod static_streams;
mod stream_ends;
mod traffic;

/// The size of a run: in CI, or when there is time.
fn size<T>(short: T, full: T) -> T {
    if std::env::var_os("HIGHWATER_SOAK").is_some() { full } else { short }
}

/// A seed for this run, said so that a failure can be repeated with `HIGHWATER_SEED`.
fn seed() -> u64 {
    let given = std::env::var("HIGHWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("HIGHWATER_SEED={seed}");
    seed
}
