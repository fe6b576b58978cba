//! From "add these people" to the exact MLS change, as a plain function of the group and of verified states.

use std::collections::{BTreeMap, BTreeSet};

use highwater_identity::AssociationState;
use highwater_mls::{Change, Components, ConversationType, Member, MembershipEntry, Need, read_key_package};
use highwater_wire::{InboxId, InstallationKey, SequenceId};

use crate::{ChangeRequest, Inputs};

pub(crate) enum Built {
    Change(Change),
    /// The group already is as asked: the winner of a race did it.
    Fulfilled,
    Needs(Vec<Need>),
    Refused(String),
}

/// Whose newest identity state building the change looks at.
pub(crate) fn inboxes(request: &ChangeRequest, me: InboxId) -> BTreeSet<InboxId> {
    match request {
        ChangeRequest::AddMembers(added) => added.iter().copied().chain([me]).collect(),
        ChangeRequest::RefreshMembership(refreshed) => refreshed.clone(),
        ChangeRequest::RemoveMembers(_) | ChangeRequest::SetName(_) | ChangeRequest::SetDescription(_) => {
            BTreeSet::new()
        }
    }
}

pub(crate) fn build(
    request: &ChangeRequest,
    me: InboxId,
    components: &Components,
    members: &[Member],
    inputs: &Inputs,
) -> Built {
    match request {
        ChangeRequest::AddMembers(added) => {
            let missing: BTreeSet<_> =
                added.iter().copied().filter(|inbox| !components.membership.contains_key(inbox)).collect();
            if missing.is_empty() {
                return Built::Fulfilled;
            }
            if let (ConversationType::Dm, Some(pair)) = (components.conversation, &components.dm_pair)
                && !missing.is_subset(pair)
            {
                return Built::Refused("a DM never changes its inboxes".into());
            }
            // The creator's entry starts at zero; its first commit raises it and brings the creator's other devices.
            let unraised = components.membership.get(&me).is_some_and(|entry| entry.sequence_id == 0);
            let touched = missing.iter().copied().chain(unraised.then_some(me)).collect();
            raise(&touched, components, members, inputs)
        }
        ChangeRequest::RefreshMembership(refreshed) => {
            let present =
                refreshed.iter().copied().filter(|inbox| components.membership.contains_key(inbox)).collect();
            raise(&present, components, members, inputs)
        }
        ChangeRequest::RemoveMembers(removed) => remove(removed, me, components, members),
        ChangeRequest::SetName(name) if *name == components.name => Built::Fulfilled,
        ChangeRequest::SetName(name) => Built::Change(Change::Name(name.clone())),
        ChangeRequest::SetDescription(text) if *text == components.description => Built::Fulfilled,
        ChangeRequest::SetDescription(text) => Built::Change(Change::Description(text.clone())),
    }
}

/// Brings the entries of `touched` up to their newest states, with the leaves that follow from it.
fn raise(touched: &BTreeSet<InboxId>, components: &Components, members: &[Member], inputs: &Inputs) -> Built {
    let mut states = BTreeMap::new();
    let mut needs = Vec::new();
    for inbox in touched {
        match inputs.identity.get(inbox) {
            None => needs.push(Need::InboxHead { inbox: *inbox }),
            Some(None) => return Built::Refused(format!("inbox {inbox} is not registered")),
            Some(Some((sequence_id, state))) => {
                states.insert(*inbox, (*sequence_id, state));
            }
        }
    }
    if !needs.is_empty() {
        return Built::Needs(needs);
    }
    let gained = gained(&states, members);
    let unknown: BTreeSet<_> =
        gained.keys().copied().filter(|key| !inputs.key_packages.contains_key(key)).collect();
    if !unknown.is_empty() {
        return Built::Needs(vec![Need::KeyPackages { installations: unknown }]);
    }
    enter(&states, &gained, components, members, inputs)
}

/// Installations that the states have and the tree has not.
fn gained(
    states: &BTreeMap<InboxId, (SequenceId, &AssociationState)>,
    members: &[Member],
) -> BTreeMap<InstallationKey, InboxId> {
    let present: BTreeSet<_> = members.iter().map(|member| member.installation).collect();
    states
        .iter()
        .flat_map(|(inbox, (_, state))| state.installations().into_iter().map(|key| (key, *inbox)))
        .filter(|(key, _)| !present.contains(key))
        .collect()
}

fn enter(
    states: &BTreeMap<InboxId, (SequenceId, &AssociationState)>,
    gained: &BTreeMap<InstallationKey, InboxId>,
    components: &Components,
    members: &[Member],
    inputs: &Inputs,
) -> Built {
    let mut upsert = BTreeMap::new();
    let mut add_leaves = Vec::new();
    let mut remove_leaves = BTreeSet::new();
    for (inbox, (sequence_id, state)) in states {
        let mut failed = BTreeSet::new();
        let mut usable = members.iter().filter(|member| member.inbox == *inbox).count();
        for installation in gained.iter().filter(|(_, owner)| *owner == inbox).map(|(key, _)| key) {
            match inputs.key_packages.get(installation).and_then(Option::as_ref) {
                Some(bytes) if read_key_package(bytes, *installation, *inbox).is_ok() => {
                    usable += 1;
                    add_leaves.push(bytes.clone());
                }
                _ => {
                    failed.insert(*installation);
                }
            }
        }
        if usable == 0 {
            return Built::Refused(format!("no installation of inbox {inbox} has a usable key package"));
        }
        let kept = state.installations();
        remove_leaves.extend(
            members
                .iter()
                .filter(|member| member.inbox == *inbox && !kept.contains(&member.installation))
                .map(|member| member.installation),
        );
        let entry = MembershipEntry { sequence_id: sequence_id.get(), failed };
        if components.membership.get(inbox) != Some(&entry) {
            upsert.insert(*inbox, entry);
        }
    }
    if upsert.is_empty() && add_leaves.is_empty() && remove_leaves.is_empty() {
        return Built::Fulfilled;
    }
    Built::Change(Change::Membership { upsert, remove: BTreeSet::new(), add_leaves, remove_leaves })
}

fn remove(removed: &BTreeSet<InboxId>, me: InboxId, components: &Components, members: &[Member]) -> Built {
    let present: BTreeSet<_> =
        removed.iter().copied().filter(|inbox| components.membership.contains_key(inbox)).collect();
    if present.is_empty() {
        return Built::Fulfilled;
    }
    if components.conversation == ConversationType::Dm {
        return Built::Refused("a DM never changes its inboxes".into());
    }
    if present.contains(&me) {
        return Built::Refused("a member can't remove itself".into());
    }
    if !components.admins.contains(&me) && !components.super_admins.contains(&me) {
        return Built::Refused("only admins remove members".into());
    }
    let remove_leaves = members
        .iter()
        .filter(|member| present.contains(&member.inbox))
        .map(|member| member.installation)
        .collect();
    Built::Change(Change::Membership {
        upsert: BTreeMap::new(),
        remove: present,
        add_leaves: Vec::new(),
        remove_leaves,
    })
}
