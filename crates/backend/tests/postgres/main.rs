//! What only a database shared by several instances can get wrong: allocation in another order than
//! commit, lost wakes, lost connections.

mod boundary;
mod chaos;
#[path = "../server/fault.rs"]
mod fault;
#[path = "../server/fixture.rs"]
#[allow(dead_code, reason = "the server suite uses the rest")]
mod fixture;
mod follower;
mod lost;
#[path = "../server/people.rs"]
#[allow(dead_code, reason = "the server suite uses the rest")]
mod people;
#[path = "../server/publish.rs"]
mod publish;
#[path = "../server/read.rs"]
mod read;
#[path = "../server/subscribe.rs"]
mod subscribe;

/// What is stored in by the parts of the server's own suite that run here again.
const ENGINE: fixture::Engine = fixture::Engine::Postgres;
