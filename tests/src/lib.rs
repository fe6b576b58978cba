//! Whole-system tests of Highwater; the tests are in `tests/`.
//!
//! [`World`] and [`Peer`] put the crates below `sync` together without a network: real encrypted databases, real MLS
//! groups, and a backend that is a vector per topic. A test decides itself what arrives, when, and in which order.

mod foreign;
mod peer;
pub mod raw;
mod view;
mod world;

pub use foreign::{Foreign, RawCommit, RawUpdate, credential};
pub use peer::{Peer, PeerImage, ProcessReport, deletion_of, text_content};
pub use world::World;
