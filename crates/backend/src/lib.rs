//! The streaming backend: publish, reads, stream sessions.
