//! MLS groups over trial state, key packages, Welcomes, and the rules of groups.
//!
//! Owns: the installation's key and key packages; the MLS state of every group; the group [`Components`] in the MLS
//! app data dictionary; the facts about why an input failed ([`InputFailure`], [`WelcomeFailure`]); the pure policy
//! that every commit is judged by ([`check_commit`]).
//!
//! # Invariants
//!
//! - Mutable MLS state lives inside one transaction. A [`Trial`] is loaded after the writer is held, and stored in the
//!   same transaction or dropped (STR-070, STR-071).
//! - A failure leaves no trace: [`Trial::mark`] and [`Trial::rollback_to_mark`] enclose one envelope, and a rollback
//!   discards every mutable object and loads the state below.
//! - A commit is applied only as a [`StagedCommit`], whose facts passed the rules; a Welcome only as a [`CheckedJoin`].
//!   Neither can be made any other way.
//! - An own commit is applied only when its echo is read back, through the checks of anyone's commit.
//! - Key packages survive the Welcomes that use them; only [`retire_key_packages`] destroys their keys.
//!
//! # What it does not do
//!
//! It knows no network and no positions. Which failure is a rejection and which a hold is decided by those who know
//! the order of a topic; here are only the facts.
//!
//! # Limits of OpenMLS
//!
//! It compares the lifetime of an added key package with the clock of whoever processes the commit. Because a clock is
//! no evidence (PROC-011), that failure is reported as [`InputFailure::Library`], which is held, and key packages are
//! replaced at half their lifetime to leave others time.

mod audit;
mod codec;
mod commit;
mod components;
mod dictionary;
mod error;
mod facts;
mod input;
mod installation;
mod join;
mod key_package;
mod merge;
mod needs;
mod overlay;
mod pointer;
mod policy;
mod process;
mod profile;
mod provider;
mod recipient;
mod rows;
mod status;
mod storage;
mod transcript;
mod trial;
mod welcome;

#[cfg(test)]
mod tests;

use highwater_store::Migrations;

pub use audit::audit;
pub use commit::{Change, PreparedCommit};
pub use components::{Components, ConversationType, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MembershipEntry};
pub use error::MlsError;
pub use facts::CommitFacts;
pub use input::{Header, Input, InputFailure, MessageType};
pub use installation::{Installation, create_installation, installation, registered, set_registration};
pub use join::{CheckedJoin, StagedJoin};
pub use key_package::{
    KeyPackageId, PreparedKeyPackage, key_package_owed, key_package_published, prepare_key_package,
    retire_key_packages,
};
pub use merge::{Merged, StagedCommit};
pub use needs::{Need, Proof, Resolution, Resolutions, Snapshots};
pub use pointer::{Pointer, seal_welcomes};
pub use policy::{PolicyViolation, check_commit};
pub use profile::{CLIENT_VERSION, Member, RETAINED_EPOCHS};
pub use recipient::{Recipient, WrapperKey, read_key_package};
pub use status::{GroupState, delete_group, epoch, group_state, groups};
pub use transcript::join_transcript;
pub use trial::Trial;
pub use welcome::{OpenedWelcome, Unwrapped, WelcomeDisposition, WelcomeFailure, open_welcome, seal_welcome};

/// The tables of this crate.
pub const MIGRATIONS: Migrations = Migrations { owner: "mls", steps: &[include_str!("../migrations/1.sql")] };
