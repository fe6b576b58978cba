//! Whole-system tests of Highwater; the tests are in `tests/`.
//!
//! [`World`] and [`Peer`] put the crates below `sync` together without a network: real encrypted databases, real MLS
//! groups, and a backend that is a vector per topic. A test decides itself what arrives, when, and in which order.

mod peer;
mod template;
mod world;

pub use peer::{Peer, ProcessReport};
pub use template::Template;
pub use world::World;
