//! The state of an inbox after some prefix of its log.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{InboxId, InstallationKey, SequenceId, proto::associations::IdentityUpdate};
use serde::{Deserialize, Serialize};

use crate::{
    Invalid, InvalidHistory, MemberIdentifier, Verdicts,
    action::Signatures,
    signature::{SignedText, Spent},
    update::Update,
};

/// One entry of an inbox's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// Where it stands.
    pub sequence_id: SequenceId,
    /// What it says.
    pub update: IdentityUpdate,
}

/// What a state knows of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who added it; `None` for the one that the inbox began with.
    pub added_by: Option<MemberIdentifier>,
    /// Where a passkey member can be asked to sign, if its update said so.
    pub relying_party: Option<String>,
}

/// An inbox after a prefix of its log: who belongs to it, and who can take members away.
///
/// Only [`AssociationState::apply`] makes one, so holding it means that every update of the prefix
/// was verified. Its encoding is stored, and trusted when read back: a change of the fields is a
/// change of the schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationState {
    pub(crate) inbox_id: InboxId,
    pub(crate) recovery: MemberIdentifier,
    pub(crate) recovery_relying_party: Option<String>,
    pub(crate) members: BTreeMap<MemberIdentifier, Member>,
    pub(crate) spent: BTreeSet<Spent>,
    pub(crate) entries: u32,
}

impl AssociationState {
    /// The state that `update` makes of `previous`, which is `None` before the log's first entry.
    /// All actions apply, in order, or none does.
    ///
    /// # Errors
    /// [`Invalid`] says which rule the update breaks; [`Invalid::Unverified`] that a verdict is
    /// missing and the update may still hold.
    pub fn apply(
        previous: Option<&Self>,
        inbox: InboxId,
        update: &IdentityUpdate,
        verdicts: &Verdicts,
    ) -> Result<Self, Invalid> {
        let update = Update::parse(update)?;
        if update.inbox != inbox || previous.is_some_and(|state| state.inbox_id != inbox) {
            return Err(Invalid::WrongInbox);
        }
        let text = SignedText::new(update.text());
        let mut signatures = Signatures::new(&text, verdicts, previous.map(|state| &state.spent));
        let mut state = previous.cloned();
        for action in &update.actions {
            state = Some(action.apply(state, inbox, &mut signatures)?);
        }
        let mut state = state.ok_or(Invalid::NoActions)?;
        state.spent.append(&mut signatures.into_used());
        state.entries += 1;
        Ok(state)
    }

    /// The inbox.
    pub fn inbox_id(&self) -> InboxId {
        self.inbox_id
    }

    /// Who alone may revoke members and name the next recovery identifier. Need not be a member.
    pub fn recovery(&self) -> &MemberIdentifier {
        &self.recovery
    }

    /// Where a recovery passkey can be asked to sign, if its update said so.
    pub fn recovery_relying_party(&self) -> Option<&str> {
        self.recovery_relying_party.as_deref()
    }

    /// All current members.
    pub fn members(&self) -> &BTreeMap<MemberIdentifier, Member> {
        &self.members
    }

    /// Whether it is a current member.
    pub fn is_member(&self, identifier: &MemberIdentifier) -> bool {
        self.members.contains_key(identifier)
    }

    /// Whether it is a current installation.
    pub fn has_installation(&self, key: InstallationKey) -> bool {
        self.is_member(&MemberIdentifier::Installation(key))
    }

    /// The current installations.
    pub fn installations(&self) -> BTreeSet<InstallationKey> {
        self.members
            .keys()
            .filter_map(|member| match member {
                MemberIdentifier::Installation(key) => Some(*key),
                MemberIdentifier::Ethereum(_) | MemberIdentifier::Passkey { .. } => None,
            })
            .collect()
    }

    /// How many updates made this state; at least 1.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

/// The state after the whole of `log`, or `None` for an empty one.
///
/// # Errors
/// The first entry that doesn't apply to those before it, and why.
pub fn fold(
    inbox: InboxId,
    log: &[LogEntry],
    verdicts: &Verdicts,
) -> Result<Option<AssociationState>, InvalidHistory> {
    let mut state: Option<AssociationState> = None;
    let mut last = None;
    for entry in log {
        let at = entry.sequence_id;
        if last.is_some_and(|last| last >= at) {
            return Err(InvalidHistory { at, reason: Invalid::LogOrder });
        }
        last = Some(at);
        let next = AssociationState::apply(state.as_ref(), inbox, &entry.update, verdicts)
            .map_err(|reason| InvalidHistory { at, reason })?;
        state = Some(next);
    }
    Ok(state)
}
