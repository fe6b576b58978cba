//! P: ordered processing.
