//! Streams over the wire.
