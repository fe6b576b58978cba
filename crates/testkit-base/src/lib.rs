//! Clocks and store fixtures for the lower crates' tests.
