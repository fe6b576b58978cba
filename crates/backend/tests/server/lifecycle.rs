//! Starts, restarts and ends.
