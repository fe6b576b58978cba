//! End-to-end encrypted messaging with durable receipt, processing and delivery.
