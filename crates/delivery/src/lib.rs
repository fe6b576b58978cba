//! D: messages, conversations, delivery numbers, consumer ownership.
