//! What a commit does, as facts that policy can judge without any MLS object.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::proto::contents::GroupUpdated;
use highwater_wire::{InboxId, InstallationKey, SequenceId};
use openmls::extensions::AppDataDictionary;
use openmls::group::{QueuedProposal, StagedCommit};
use openmls::messages::proposals::{AppDataUpdateOperation, AppDataUpdateProposal, Proposal};
use openmls::prelude::{LeafNode, LeafNodeIndex, Sender};

use crate::codec::{Collection, Mutation};
use crate::components::{Components, id};
use crate::{InputFailure, Member, PolicyViolation, dictionary, transcript};

/// Everything about a commit that the rules of groups depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFacts {
    /// Who made it.
    pub committer: Member,
    /// The leaves it adds.
    pub added: Vec<Member>,
    /// The leaves it removes.
    pub removed: Vec<Member>,
    /// The components before it.
    pub before: Components,
    /// The components after it.
    pub after: Components,
    pub(crate) actions: Vec<Action>,
    /// A leaf came out of the commit as another inbox's or installation's.
    pub(crate) identity_changed: bool,
    /// The leaves after the commit of every inbox whose entry or leaves it touches.
    pub(crate) leaves: BTreeMap<InboxId, BTreeSet<InstallationKey>>,
}

/// One update of a component, and who proposed it: the proposer answers for it, whoever commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) by: InboxId,
    pub(crate) component: u16,
    /// For the membership: an entry is deleted.
    pub(crate) deletes: bool,
}

impl CommitFacts {
    /// The identity states that [`check_commit`](crate::check_commit) needs: each inbox whose entry or leaves the
    /// commit touches, at the update its entry names.
    pub fn required_identity(&self) -> Vec<(InboxId, SequenceId)> {
        let entries = self.leaves.keys().filter_map(|inbox| {
            let entry = self.after.membership.get(inbox)?;
            Some((*inbox, SequenceId::try_from(entry.sequence_id).ok()?))
        });
        entries.collect()
    }

    /// What the commit changed, for people.
    pub fn group_updated(&self) -> GroupUpdated {
        transcript::group_updated(self)
    }

    /// [`Self::group_updated`] as the content of a stored message: an encoded `EncodedContent`.
    pub fn transcript(&self) -> Vec<u8> {
        transcript::content(&self.group_updated())
    }
}

/// The group as a commit finds it.
pub(crate) struct Before<'a> {
    pub(crate) dictionary: &'a AppDataDictionary,
    pub(crate) members: &'a BTreeMap<LeafNodeIndex, Member>,
}

/// Reads the facts out of a staged commit. What already makes it unacceptable, whoever its members are, is an error.
pub(crate) fn read(
    before: &Before<'_>,
    committer: LeafNodeIndex,
    staged: &StagedCommit,
) -> Result<CommitFacts, InputFailure> {
    kinds(staged)?;
    let member =
        |index: LeafNodeIndex| before.members.get(&index).copied().ok_or(PolicyViolation::NotFromMember);
    let updates: Vec<_> = staged.app_data_update_proposals().collect();
    let updated =
        dictionary::apply(before.dictionary, updates.iter().map(|update| update.app_data_update_proposal()))?;
    let staged_dictionary = staged.group_context().extensions().app_data_dictionary();
    if staged_dictionary.map(|extension| extension.dictionary()) != Some(&updated.dictionary) {
        return Err(InputFailure::Library("the staged dictionary differs from its updates".into()));
    }
    let committer = member(committer)?;
    let malformed = |component| PolicyViolation::MalformedComponent { component };
    let mut facts = CommitFacts {
        committer,
        added: Vec::new(),
        removed: Vec::new(),
        before: Components::decode(before.dictionary)
            .map_err(|_| InputFailure::Library("the group's own components don't decode".into()))?,
        after: Components::decode(&updated.dictionary).map_err(malformed)?,
        actions: Vec::new(),
        identity_changed: false,
        leaves: BTreeMap::new(),
    };
    for update in &updates {
        let by = proposer(update.sender(), before)?.inbox;
        facts.actions.push(action(by, update.app_data_update_proposal()));
    }
    for add in staged.add_proposals() {
        facts.added.push(leaf_member(add.add_proposal().key_package().leaf_node())?);
    }
    for remove in staged.remove_proposals() {
        facts.removed.push(member(remove.remove_proposal().removed())?);
    }
    facts.identity_changed = identity_changed(before, committer, staged)?;
    facts.leaves = touched_leaves(before, &facts);
    Ok(facts)
}

/// A PSK is refused for good; any other kind outside the profile is held for a version that knows it.
fn kinds(staged: &StagedCommit) -> Result<(), InputFailure> {
    if staged.psk_proposals().next().is_some() {
        return Err(InputFailure::PskInCommit);
    }
    staged.queued_proposals().try_for_each(|queued| accepted_kind(queued.proposal()))
}

/// Which proposals this profile takes part in.
pub(crate) fn accepted_kind(proposal: &Proposal) -> Result<(), InputFailure> {
    let kind = match proposal {
        Proposal::Add(_) | Proposal::Update(_) | Proposal::Remove(_) | Proposal::AppDataUpdate(_) => {
            return Ok(());
        }
        Proposal::PreSharedKey(_) => "psk",
        Proposal::ReInit(_) => "reinit",
        Proposal::ExternalInit(_) => "external_init",
        Proposal::GroupContextExtensions(_) => "group_context_extensions",
        Proposal::SelfRemove => "self_remove",
        Proposal::AppEphemeral(_) => "app_ephemeral",
        Proposal::Custom(_) => "custom",
    };
    Err(InputFailure::HeldProposal(kind))
}

fn proposer(sender: &Sender, before: &Before<'_>) -> Result<Member, PolicyViolation> {
    match sender {
        Sender::Member(index) => before.members.get(index).copied(),
        _ => None,
    }
    .ok_or(PolicyViolation::NotFromMember)
}

fn action(by: InboxId, update: &AppDataUpdateProposal) -> Action {
    let component = update.component_id();
    let deletes = match update.operation() {
        AppDataUpdateOperation::Update(payload) if component == id::MEMBERSHIP => Collection::Map
            .read_mutations(payload.as_slice())
            .is_ok_and(|list| list.iter().any(|mutation| matches!(mutation, Mutation::Delete(_)))),
        _ => false,
    };
    Action { by, component, deletes }
}

fn leaf_member(leaf: &LeafNode) -> Result<Member, PolicyViolation> {
    Member::read(leaf.credential(), leaf.signature_key().as_slice())
        .ok_or(PolicyViolation::MalformedCredential)
}

/// Update proposals and the committer's new leaf must stay whose they were.
fn identity_changed(
    before: &Before<'_>,
    committer: Member,
    staged: &StagedCommit,
) -> Result<bool, PolicyViolation> {
    if let Some(leaf) = staged.update_path_leaf_node()
        && leaf_member(leaf)? != committer
    {
        return Ok(true);
    }
    let updates = staged.queued_proposals().filter_map(|queued: &QueuedProposal| {
        let Proposal::Update(update) = queued.proposal() else {
            return None;
        };
        Some((queued.sender(), update.leaf_node()))
    });
    for (sender, leaf) in updates {
        if leaf_member(leaf)? != proposer(sender, before)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn touched_leaves(before: &Before<'_>, facts: &CommitFacts) -> BTreeMap<InboxId, BTreeSet<InstallationKey>> {
    let (old, new) = (&facts.before.membership, &facts.after.membership);
    let entries = old.keys().chain(new.keys()).filter(|inbox| old.get(*inbox) != new.get(*inbox));
    let moved = facts.added.iter().chain(&facts.removed).map(|member| &member.inbox);
    let mut leaves: BTreeMap<InboxId, BTreeSet<_>> =
        entries.chain(moved).map(|inbox| (*inbox, BTreeSet::new())).collect();
    for member in before.members.values().filter(|member| !facts.removed.contains(member)) {
        if let Some(of_inbox) = leaves.get_mut(&member.inbox) {
            of_inbox.insert(member.installation);
        }
    }
    for member in &facts.added {
        leaves.entry(member.inbox).or_default().insert(member.installation);
    }
    leaves
}
