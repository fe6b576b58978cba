//! D: the messages an app can see, the order it sees them in, and how far it got.
//!
//! Owns: message and conversation records, delivery numbers and the cursors made of them, the
//! delivered position D of every group, and who the default consumer is. This is the only crate
//! whose SQL changes any of them.
//!
//! # Invariants
//!
//! - A message gets a delivery number when it becomes deliverable, in the same transaction: greater
//!   than every number before, never changed, never given again, not even after the content is gone
//!   (STR-090, PROC-024). The database refuses anything else.
//! - Only Published messages have one; an Unpublished or Failed message is never handed to a reader
//!   (STR-103, PROC-025).
//! - D never falls. It moves over an item that the app acknowledged, or over one that the filter
//!   excluded, and for nothing else: not by receipt, processing, closing or reconnecting
//!   (STR-091, PROC-026). The database refuses to lower it.
//! - One [`DefaultConsumer`] per database, over all processes. Each handoff and each move of D checks
//!   its token in the transaction that makes it (STR-096, PROC-031).
//! - At most one item is out. It is acknowledged when the app asks for the next one, or says so; a
//!   dropped future, a dropped consumer or a crash leaves it to be handed out again (STR-094,
//!   PROC-052).
//! - A [`ReplayReader`] neither reads nor moves D (STR-100, PROC-034).
//!
//! # What it does not do
//!
//! It never waits for the network, doesn't know what a topic or an epoch is, and looks into content
//! only to see what a deletion may touch (PROC-037). Consent filters what is handed out and nothing else (PROC-046).

mod audit;
mod candidates;
mod consumer;
mod conversation;
mod cursor;
mod deletion;
mod error;
mod expiry;
mod history;
mod ids;
mod insert;
mod local_read;
mod message;
mod ownership;
mod position;
mod replay;
mod selection;

use highwater_store::Migrations;

pub use audit::audit;
pub use consumer::{DefaultConsumer, Item};
pub use conversation::{
    Consent, Conversation, ConversationKind, ConversationState, ConversationType, ConversationsRevision,
    active_groups, conversation, conversation_states, conversations, conversations_revision,
    discovered_through, dms_with, put_conversation, set_consent, set_name, set_state,
};
pub use cursor::{CursorError, DeliveryCursor};
pub use deletion::{Deletion, DeletionRefusal, apply_deletion};
pub use error::{ConsumerError, DeliveryError};
pub use expiry::next_expiry;
pub use history::{HistoryPage, HistoryQuery, Order, history};
pub use insert::{Inserted, confirm, delete, erase_expired, fail, insert_published, insert_unpublished};
pub use local_read::{MAX_LOCAL_READ_BYTES, MAX_LOCAL_READ_ROWS};
pub use message::{MessageKind, MessageStatus, NewMessage, StoredMessage, message, unpublished};
pub use ownership::{ConsumerOwner, DEFAULT_CONSUMER_LEASE, owner};
pub use position::{DeliveredPosition, DeliveryNumber, delivered, last_number, positions};
pub use replay::ReplayReader;
pub use selection::{Scope, Selection};

/// The tables of this crate.
pub const MIGRATIONS: Migrations =
    Migrations { owner: "delivery", steps: &[include_str!("../migrations/1.sql")] };
