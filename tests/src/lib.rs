//! Whole-system tests of Highwater; the tests are in `tests/`.
//!
//! [`World`] and [`Peer`] put the crates below `sync` together without a network: real encrypted databases, real MLS
//! groups, and a backend that is a vector per topic. A test decides itself what arrives, when, and in which order.
//!
//! [`Inside`] and [`Outsider`] are for tests of whole clients over a real backend: the one looks into a client's database
//! from beside it, the other reads and publishes what no client would.

mod foreign;
mod image;
mod inside;
mod outsider;
mod peer;
pub mod raw;
mod view;
mod world;

pub use foreign::{Foreign, RawCommit, RawUpdate, credential};
pub use image::PeerImage;
pub use inside::{Inside, Kept, Positions};
pub use outsider::{Outsider, garbage};
pub use peer::{Peer, ProcessReport, deletion_of, text_content};
pub use view::Settled;
pub use world::World;
