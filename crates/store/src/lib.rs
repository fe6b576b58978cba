//! The encrypted database file and the one way to write it.
