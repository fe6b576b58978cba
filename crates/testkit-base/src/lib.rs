//! Clocks, store fixtures and polling for the tests of the lower crates.
//!
//! A dev-dependency only. It depends on the store and nothing above, so that no crate's unit tests see a second copy of
//! the crate under test.

mod clock;
mod eventually;
mod fixture;

pub use clock::TestClock;
pub use eventually::eventually;
pub use fixture::StoreFixture;
