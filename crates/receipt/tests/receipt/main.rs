//! Receipt through its public interface, over real encrypted databases.

mod admission;
mod capacity;
mod interruption;
mod model;
mod support;
