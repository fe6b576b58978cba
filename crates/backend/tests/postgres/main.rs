//! What only a database shared by several instances can get wrong: allocation in another order than
//! commit, lost wakes, lost connections.

mod boundary;
mod chaos;
#[path = "../server/fixture.rs"]
#[allow(dead_code, reason = "the server suite uses the rest")]
mod fixture;
mod follower;
mod lost;
