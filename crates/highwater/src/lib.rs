//! End-to-end encrypted messaging in which receipt, processing and delivery are three separate durable positions.
//!
//! An app opens a [`Client`] over one encrypted database. What the backend sent is durable before anything is done with
//! it (F, received); it is applied in order or refused for good (P, processed); and the app gets each message, in order
//! within a conversation, until it has acknowledged it (D, delivered). A crash or a dropped connection never turns one
//! into another.
//!
//! ```no_run
//! use highwater::{Client, Database, DatabaseKey, LocalWallet};
//!
//! # async fn example(bob: highwater::InboxId) -> Result<(), highwater::Error> {
//! let client = Client::builder()
//!     .database(Database::file("alice.db", DatabaseKey::generate()))
//!     .backend("http://127.0.0.1:5050")
//!     .signer(LocalWallet::generate()) // signs the identity update, once
//!     .open()
//!     .await?;
//! let group = client.create_group([bob]).await?;
//! group.send_text("hello").await?;
//! let mut messages = client.messages().all_groups().open().await?; // the one default consumer
//! while let Some(item) = messages.next().await { // asking for the next item acknowledges the last
//!     let item = item?;
//!     println!("{} {}", item.cursor, item.message.text()?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An item that was out when the app was killed comes again. What is sent because of it goes out once, under a key of the
//! item's own:
//!
//! ```no_run
//! # async fn example(client: &highwater::Client, item: highwater::Item) -> Result<(), highwater::Error> {
//! let message = item.message;
//! let group = client.group(message.group_id).await?;
//! let key = format!("answer to {}", message.id); // the same key and content are one message
//! group.send(highwater::text_content("noted"), Some(key)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - Opening a registered database needs neither a signer nor the network; the network is first touched by the first
//!   operation that needs it. Everything that only reads works while the backend is down.
//! - There is one default consumer per database, over all processes. A second is refused with an error for which
//!   [`Error::is_already_active`] holds.
//! - An item is acknowledged when the next one is asked for (or a callback returned `Ok`), and in no other way.
//! - What an app queued is durable before the call returns, and goes out as the same bytes until its outcome is known.
//!
//! # Logs
//!
//! What is logged here, through `tracing`, names things by short forms and shows no payload and no key. OpenMLS below has
//! logs of its own, through `log`: at `DEBUG` and below they show ciphertext and what keys are derived from. An app that
//! keeps logs that fine leaves out the target `openmls`, as the command `highwater` does whatever it is asked for.
//!
//! # What it does not do
//!
//! It has no tables and decides nothing about envelopes: each position belongs to the crate that owns it. It re-exports
//! only what its own functions take or return, and what their errors are made of.

mod audit;
mod builder;
mod callback;
mod catch_up;
mod change;
mod client;
mod content;
mod conversations;
mod disappearing;
mod ending;
mod error;
mod group;
mod handoff;
mod history;
mod live;
mod message;
mod network;
mod registration;
mod replay;
mod selection;
mod send;
mod signer;
mod status;
mod stream;

pub use audit::AuditReport;
pub use builder::{ClientBuilder, Database};
pub use callback::Subscription;
pub use catch_up::CatchUpChanges;
pub use change::{NewConversation, NewGroup};
pub use client::{Client, SyncReport};
pub use content::{
    Attachment, Codec, CodecError, Content, ContentError, ContentType, Custom, Encoded, MembershipChange,
    Reaction, ReactionAction, ReactionSchema, Reply, attachment_content, codec_content, deletion_content,
    markdown_content, reaction_content, read_receipt_content, reply_content, text_content,
};
pub use conversations::{ConversationStream, Conversations};
pub use ending::{CallbackError, CloseReason};
pub use error::Error;
pub use group::{Group, Member};
pub use handoff::{Handoff, HandoffError};
pub use history::{History, HistoryPage};
pub use message::{Item, Message};
pub use replay::{Replay, ReplayStream};
pub use selection::Messages;
pub use send::Sent;
pub use signer::{LocalWallet, Signer, SignerError};
pub use status::{GroupProgress, HeldEnvelope, Status, TopicProgress};
pub use stream::MessageStream;

pub use highwater_delivery::{
    Consent, ConsumerError, ConversationKind, ConversationState, CursorError, DeliveryCursor, DeliveryError,
    DeliveryNumber, MessageStatus,
};
pub use highwater_join::JoinError;
pub use highwater_mls::MlsError;
pub use highwater_outbox::{OutboxError, Outcome};
pub use highwater_processing::ProcessingError;
pub use highwater_receipt::ReceiptError;
pub use highwater_store::{DatabaseId, DatabaseKey, OpenError, StoreError, Violation};
pub use highwater_sync::{
    CatchUp, Cause, ConnectionState, Obligation, ProcessingState, ReceiverKind, RegistrationState, SyncError,
    TopicStatus,
};
pub use highwater_transport::TransportError;
pub use highwater_wire::{
    Cursor, GroupId, IdError, InboxId, InstallationKey, MessageId, SequenceId, Topic, TopicKind,
};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
