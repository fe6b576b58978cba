//! Outgoing intents and their exact-bytes attempts.
