//! The rules of groups. Pure: the same facts, place and states give every client the same answer.

use highwater_identity::AssociationState;
use highwater_wire::{InboxId, SequenceId};

use crate::components::{ConversationType, MembershipEntry, id};
use crate::facts::CommitFacts;
use crate::profile::satisfies;
use crate::{InputFailure, Snapshots};

/// How a commit breaks the rules of its group. Always terminal: every member sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyViolation {
    /// A proposal came from outside the group.
    #[error("a proposal is not from a member")]
    NotFromMember,
    /// A leaf's credential isn't one of this protocol.
    #[error("a leaf's credential names no inbox")]
    MalformedCredential,
    /// A leaf came back as another inbox's or installation's.
    #[error("a leaf changed its identity")]
    IdentityChanged,
    /// An update's payload doesn't fit its component.
    #[error("the update of component {component:#06x} is malformed")]
    MalformedUpdate {
        /// Which.
        component: u16,
    },
    /// A component's new value isn't what its table demands.
    #[error("component {component:#06x} is malformed")]
    MalformedComponent {
        /// Which.
        component: u16,
    },
    /// A write-once component was written again.
    #[error("component {component:#06x} can't change")]
    WriteOnce {
        /// Which.
        component: u16,
    },
    /// A component that always exists was removed.
    #[error("component {component:#06x} can't be removed")]
    ComponentRemoved {
        /// Which.
        component: u16,
    },
    /// The proposer may not make this change.
    #[error("the sender has no authority over component {component:#06x}")]
    Unauthorized {
        /// Which.
        component: u16,
    },
    /// A DM gained or lost an inbox.
    #[error("a DM never changes its inboxes")]
    DmInboxes,
    /// A membership entry went back to an earlier identity update.
    #[error("a membership entry fell")]
    EntryFell,
    /// A membership entry names no identity update.
    #[error("a membership entry is zero")]
    EntryZero,
    /// A membership entry names an id that no envelope can have.
    #[error("a membership entry is out of range")]
    EntryOutOfRange,
    /// A membership entry names an identity update at or after the commit itself.
    #[error("a membership entry is not before the commit")]
    EntryNotBefore,
    /// A leaf's inbox has no membership entry.
    #[error("a leaf has no membership entry")]
    LeafWithoutEntry,
    /// Leaves of the creator's inbox changed while its entry is still zero.
    #[error("leaves changed without raising the entry")]
    EntryNotRaised,
    /// A leaf isn't an installation of its inbox at the state its entry names.
    #[error("a leaf does not belong to its inbox")]
    ForeignLeaf,
    /// A leaf stayed although its inbox lost the installation.
    #[error("a revoked installation kept its leaf")]
    RevokedLeaf,
    /// A leaf was removed although its inbox still has the installation and stays.
    #[error("an installation was removed without cause")]
    RemovedWithoutCause,
    /// An installation of a touched inbox is neither a leaf nor marked as failed.
    #[error("an installation is neither added nor marked as failed")]
    InstallationMissing,
}

impl PolicyViolation {
    /// Every violation, where it names a component with any.
    pub const ALL: [Self; 19] = [
        Self::NotFromMember,
        Self::MalformedCredential,
        Self::IdentityChanged,
        Self::MalformedUpdate { component: id::NAME },
        Self::MalformedComponent { component: id::NAME },
        Self::WriteOnce { component: id::CREATOR },
        Self::ComponentRemoved { component: id::ADMINS },
        Self::Unauthorized { component: id::ADMINS },
        Self::DmInboxes,
        Self::EntryFell,
        Self::EntryZero,
        Self::EntryOutOfRange,
        Self::EntryNotBefore,
        Self::LeafWithoutEntry,
        Self::EntryNotRaised,
        Self::ForeignLeaf,
        Self::RevokedLeaf,
        Self::RemovedWithoutCause,
        Self::InstallationMissing,
    ];

    /// A stable code for records.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFromMember => "policy_not_from_member",
            Self::MalformedCredential => "policy_malformed_credential",
            Self::IdentityChanged => "policy_identity_changed",
            Self::MalformedUpdate { .. } => "policy_malformed_update",
            Self::MalformedComponent { .. } => "policy_malformed_component",
            Self::WriteOnce { .. } => "policy_write_once",
            Self::ComponentRemoved { .. } => "policy_component_removed",
            Self::Unauthorized { .. } => "policy_unauthorized",
            Self::DmInboxes => "policy_dm_inboxes",
            Self::EntryFell => "policy_entry_fell",
            Self::EntryZero => "policy_entry_zero",
            Self::EntryOutOfRange => "policy_entry_out_of_range",
            Self::EntryNotBefore => "policy_entry_not_before",
            Self::LeafWithoutEntry => "policy_leaf_without_entry",
            Self::EntryNotRaised => "policy_entry_not_raised",
            Self::ForeignLeaf => "policy_foreign_leaf",
            Self::RevokedLeaf => "policy_revoked_leaf",
            Self::RemovedWithoutCause => "policy_removed_without_cause",
            Self::InstallationMissing => "policy_installation_missing",
        }
    }
}

/// Judges a commit at its place in the topic: the rules of its components, and its leaves against verified identity
/// states.
///
/// # Errors
/// [`InputFailure::Policy`] is a terminal refusal. [`InputFailure::GroupVersion`] means that the commit is right and
/// raises the floor above this version. [`InputFailure::Library`] means that a state of
/// [`CommitFacts::required_identity`] wasn't given.
pub fn check_commit(facts: &CommitFacts, at: SequenceId, snapshots: &Snapshots) -> Result<(), InputFailure> {
    check_rules(facts)?;
    for (inbox, sequence_id) in facts.required_identity() {
        if sequence_id >= at {
            return Err(PolicyViolation::EntryNotBefore.into());
        }
        let state = snapshots.get(&(inbox, sequence_id)).ok_or_else(|| {
            InputFailure::Library(format!("no identity state of {inbox:?} at {sequence_id} was given"))
        })?;
        check_leaves(facts, inbox, state)?;
    }
    check_floor(facts)
}

/// The rules that need no identity state.
pub(crate) fn check_rules(facts: &CommitFacts) -> Result<(), PolicyViolation> {
    if facts.identity_changed {
        return Err(PolicyViolation::IdentityChanged);
    }
    for action in &facts.actions {
        if !may(facts, action.by, action.component, action.deletes) {
            return Err(PolicyViolation::Unauthorized { component: action.component });
        }
    }
    check_dm(facts)?;
    for (inbox, entry) in &facts.after.membership {
        check_entry(facts, *inbox, entry)?;
    }
    let without_entry = |(inbox, leaves): (&InboxId, &std::collections::BTreeSet<_>)| {
        !leaves.is_empty() && !facts.after.membership.contains_key(inbox)
    };
    if facts.leaves.iter().any(without_entry) {
        return Err(PolicyViolation::LeafWithoutEntry);
    }
    Ok(())
}

pub(crate) fn check_floor(facts: &CommitFacts) -> Result<(), InputFailure> {
    match &facts.after.minimum_version {
        Some(floor) if !satisfies(Some(floor)) => Err(InputFailure::GroupVersion(floor.clone())),
        _ => Ok(()),
    }
}

/// The fixed authority of this protocol. A DM has no admins; what they would decide, either of the two does, the floor
/// excepted.
fn may(facts: &CommitFacts, who: InboxId, component: u16, deletes: bool) -> bool {
    let super_admin = facts.before.super_admins.contains(&who);
    let admin = super_admin || facts.before.admins.contains(&who);
    match component {
        id::SUPER_ADMINS | id::ADMINS | id::MINIMUM_VERSION => super_admin,
        id::MEMBERSHIP => admin || !deletes,
        id::DISAPPEAR_FROM | id::DISAPPEAR_IN => admin || facts.before.conversation == ConversationType::Dm,
        _ => true,
    }
}

/// The one inbox of a DM that wasn't there at its creation comes with a commit; after that nothing changes.
fn check_dm(facts: &CommitFacts) -> Result<(), PolicyViolation> {
    let Some(pair) = &facts.after.dm_pair else {
        return Ok(());
    };
    let gone = facts.before.membership.keys().any(|inbox| !facts.after.membership.contains_key(inbox));
    let foreign = facts.after.membership.keys().any(|inbox| !pair.contains(inbox));
    if gone || foreign { Err(PolicyViolation::DmInboxes) } else { Ok(()) }
}

fn check_entry(facts: &CommitFacts, inbox: InboxId, entry: &MembershipEntry) -> Result<(), PolicyViolation> {
    let before = facts.before.membership.get(&inbox).map(|entry| entry.sequence_id);
    if before.is_some_and(|before| entry.sequence_id < before) {
        return Err(PolicyViolation::EntryFell);
    }
    if entry.sequence_id == 0 {
        // The creator made its entry before anything had a sequence id.
        if inbox != facts.after.creator || before != Some(0) {
            return Err(PolicyViolation::EntryZero);
        }
        let moved = facts.added.iter().chain(&facts.removed).any(|member| member.inbox == inbox);
        return if moved { Err(PolicyViolation::EntryNotRaised) } else { Ok(()) };
    }
    match SequenceId::try_from(entry.sequence_id) {
        Ok(_) => Ok(()),
        Err(_) => Err(PolicyViolation::EntryOutOfRange),
    }
}

/// The leaves of an inbox are its installations at the named state, less those marked as failed.
fn check_leaves(
    facts: &CommitFacts,
    inbox: InboxId,
    state: &AssociationState,
) -> Result<(), PolicyViolation> {
    let installations = state.installations();
    let leaves = &facts.leaves[&inbox];
    if let Some(foreign) = leaves.iter().find(|leaf| !installations.contains(*leaf)) {
        let added = facts.added.iter().any(|member| member.installation == *foreign);
        return Err(if added { PolicyViolation::ForeignLeaf } else { PolicyViolation::RevokedLeaf });
    }
    let of_inbox = facts.removed.iter().filter(|member| member.inbox == inbox);
    for removed in of_inbox {
        // One that comes back with the same commit lost only its old keys.
        if installations.contains(&removed.installation) && !leaves.contains(&removed.installation) {
            return Err(PolicyViolation::RemovedWithoutCause);
        }
    }
    let failed = facts.after.membership.get(&inbox).map(|entry| &entry.failed);
    let expected = |key| leaves.contains(key) || failed.is_some_and(|failed| failed.contains(key));
    if installations.iter().all(expected) { Ok(()) } else { Err(PolicyViolation::InstallationMissing) }
}
