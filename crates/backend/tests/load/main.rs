//! Many streams, rude readers, killed servers. Short by default; `HIGHWATER_SOAK` set runs the full size.

mod churn;
mod deaf;
mod fairness;
#[path = "../server/fixture.rs"]
#[allow(dead_code, reason = "the server suite uses the rest")]
mod fixture;
#[path = "../postgres/follower.rs"]
mod follower;
mod killed;
mod unread;

const ENGINE: fixture::Engine = fixture::Engine::Sqlite;

/// How much of something: enough for every run, or as much as the soak takes.
fn size(short: usize, full: usize) -> usize {
    if std::env::var_os("HIGHWATER_SOAK").is_some() { full } else { short }
}
