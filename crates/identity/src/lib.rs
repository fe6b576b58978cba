//! The association log: which identifiers and installations belong to an inbox.
//!
//! Owns: how an inbox's id is derived; the text that an identity update signs; the rules by which
//! an update turns one [`AssociationState`] into the next; the [`fold`] of a whole log.
//!
//! Invariants:
//! - The fold is a pure function of the log and of the verdicts on contract wallets: two clients
//!   that hold the same log get the same state, and the same first error.
//! - All actions of an update apply or none does; there is no partial state.
//! - Only [`AssociationState::apply`] makes a state, so whoever holds one, or reads back one that it
//!   stored, holds a verified one.
//! - A signature is used by one update of an inbox and by no later one.
//! - A verdict that is missing is [`Invalid::Unverified`], never "invalid": it alone is worth a
//!   retry.
//! - `Debug` and error texts show at most four bytes of an identifier (STR-064).
//!
//! Deliberately absent: storage, network, clocks. Contract wallets are judged elsewhere and come
//! back as [`Verdicts`]. Whoever needs the state at exactly N folds the log up to N and knows
//! itself whether an update has that id (STR-076).

mod action;
mod error;
mod identifier;
pub mod sign;
mod signature;
mod state;
mod update;
mod verdict;

use highwater_wire::InboxId;
use sha2::{Digest as _, Sha256};

pub use error::{Invalid, InvalidHistory, Scheme};
pub use identifier::{Address, MemberIdentifier, PasskeyKey};
pub use state::{AssociationState, LogEntry, Member, fold};
pub use update::signature_text;
pub use verdict::{Verdicts, VerificationRequest, required_verifications};

/// The inbox that `identifier` opens with `nonce`: SHA-256 of the identifier's text and the
/// decimal nonce, with nothing between them.
pub fn inbox_id(identifier: &str, nonce: u64) -> InboxId {
    let mut hash = Sha256::new();
    hash.update(identifier.as_bytes());
    hash.update(nonce.to_string().as_bytes());
    InboxId::from_bytes(hash.finalize().into())
}
