//! Decides what to fetch, send and process, and when.
