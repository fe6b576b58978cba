//! F: durable receipt and pending envelopes.
