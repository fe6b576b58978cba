//! Welcomes: unwrap, validate, install at the anchor.
