//! Making messages and commits of our own.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{InboxId, InstallationKey};
use openmls::component::ComponentData;
use openmls::group::CreateCommitError;
use openmls::messages::proposals::{AppDataUpdateProposal, Proposal};
use openmls::prelude::LeafNodeIndex;
use openmls_traits::OpenMlsProvider as _;

use crate::policy::{check_floor, check_rules};
use crate::provider::InstallationSigner;
use crate::recipient::{recipient, validated};
use crate::{Components, InputFailure, MembershipEntry, MlsError, Recipient, Trial, dictionary};

/// A change of a group, to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Entries and leaves, together.
    Membership {
        /// Entries to add or replace.
        upsert: BTreeMap<InboxId, MembershipEntry>,
        /// Inboxes to remove.
        remove: BTreeSet<InboxId>,
        /// Key packages of the leaves to add.
        add_leaves: Vec<Vec<u8>>,
        /// Leaves to remove.
        remove_leaves: BTreeSet<InstallationKey>,
    },
    /// A new name, empty for none.
    Name(String),
    /// A new description, empty for none.
    Description(String),
    /// New disappearing settings, in ns.
    Disappearing {
        /// From which send time on.
        from: Option<i64>,
        /// How long after sending.
        within: Option<i64>,
    },
    /// The whole new admin sets.
    Admins {
        /// Who may remove members.
        admins: BTreeSet<InboxId>,
        /// Who may also change these sets.
        super_admins: BTreeSet<InboxId>,
    },
    /// A new floor for the versions of clients, as semantic version.
    MinimumVersion(String),
    /// Nothing but fresh keys; it ends the epoch.
    Update,
}

/// A commit ready to publish. Its effects wait in the group until [`Trial::merge_own`].
#[derive(Clone, Debug)]
pub struct PreparedCommit {
    /// The `GroupMessage.data`.
    pub data: Vec<u8>,
    /// The MLS Welcome, if leaves were added: to be sealed for each of [`Self::added`] once the commit has its place.
    pub welcome: Option<Vec<u8>>,
    /// The installations the Welcome is for.
    pub added: Vec<Recipient>,
}

impl Trial {
    /// Encrypts an application message, as the `data` of a group message.
    ///
    /// # Errors
    /// [`MlsError::Inactive`], [`MlsError::GroupVersion`], [`MlsError::ProposalsPending`].
    pub fn encrypt(&mut self, plaintext: &[u8]) -> Result<Vec<u8>, MlsError> {
        self.may_send()?;
        if self.group.has_pending_proposals() {
            return Err(MlsError::ProposalsPending);
        }
        let signing = self.signing_key()?.clone();
        let signer = InstallationSigner(&signing);
        self.journal.other_use();
        let message = self.group.create_message(&self.provider, &signer, plaintext);
        message.map_err(MlsError::library)?.to_bytes().map_err(MlsError::library)
    }

    /// Commits a change. The commit stays pending until its echo, or until another's commit wins the epoch.
    ///
    /// Proposals of others are never taken up; they end with the epoch.
    ///
    /// # Errors
    /// [`MlsError::CommitPending`] while another own commit waits; [`MlsError::InvalidChange`] for what the group's
    /// rules don't permit; [`MlsError::KeyPackage`]; and as [`Self::encrypt`].
    pub fn commit(&mut self, change: Change) -> Result<PreparedCommit, MlsError> {
        self.may_send()?;
        if self.group.pending_commit().is_some() {
            return Err(MlsError::CommitPending);
        }
        let plan = self.plan(change)?;
        let prepared = self.build(plan)?;
        let own = self.own_pending_commit()?.ok_or(MlsError::CommitPending)?;
        if let Err(violation) = check_rules(own.facts()) {
            self.clear_pending_commit()?;
            return Err(MlsError::InvalidChange(violation.to_string()));
        }
        // A floor above this very version would shut this client out of what it just made.
        if let Err(InputFailure::GroupVersion(floor)) = check_floor(own.facts()) {
            self.clear_pending_commit()?;
            return Err(MlsError::GroupVersion(floor));
        }
        Ok(prepared)
    }

    fn plan(&self, change: Change) -> Result<Plan, MlsError> {
        let before = self.components()?;
        let mut after = Components::clone(&before);
        let mut plan = Plan::default();
        match change {
            Change::Membership { upsert, remove, add_leaves, remove_leaves } => {
                after.membership.extend(upsert);
                after.membership.retain(|inbox, _| !remove.contains(inbox));
                plan.add = add_leaves;
                plan.remove = self.leaves_of(&remove_leaves)?;
            }
            Change::Name(name) => after.name = name,
            Change::Description(description) => after.description = description,
            Change::Disappearing { from, within } => {
                (after.disappear_from, after.disappear_in) = (from, within);
            }
            Change::Admins { admins, super_admins } => {
                (after.admins, after.super_admins) = (admins, super_admins);
            }
            Change::MinimumVersion(version) => after.minimum_version = Some(version),
            Change::Update => plan.fresh_keys = true,
        }
        let invalid = |component| MlsError::InvalidChange(format!("component {component:#06x}"));
        after.bounds().map_err(invalid)?;
        plan.updates = before.updates(&after);
        Ok(plan)
    }

    fn leaves_of(&self, installations: &BTreeSet<InstallationKey>) -> Result<Vec<LeafNodeIndex>, MlsError> {
        let leaves = self.leaves();
        let found: Vec<_> = leaves
            .iter()
            .filter(|(_, member)| installations.contains(&member.installation))
            .map(|(leaf, _)| *leaf)
            .collect();
        if found.len() == installations.len() {
            Ok(found)
        } else {
            Err(MlsError::InvalidChange("an installation to remove is no member".into()))
        }
    }

    fn build(&mut self, plan: Plan) -> Result<PreparedCommit, MlsError> {
        let packages = plan.add.iter().map(|bytes| validated(bytes)).collect::<Result<Vec<_>, _>>()?;
        let added = packages.iter().map(recipient).collect::<Result<Vec<_>, _>>()?;
        let updates: Vec<AppDataUpdateProposal> = plan.updates.into_iter().map(proposal).collect();
        let updated = dictionary::apply(self.dictionary()?, &updates).map_err(MlsError::library)?;
        let signing = self.signing_key()?.clone();
        let proposals = updates.into_iter().map(|update| Proposal::AppDataUpdate(Box::new(update)));
        let mut builder = self
            .group
            .commit_builder()
            .consume_proposal_store(false)
            .force_self_update(plan.fresh_keys)
            .propose_removals(plan.remove)
            .propose_adds(packages)
            .add_proposals(proposals)
            .load_psks(&self.provider.overlay)
            .map_err(refused)?;
        let mut updater = builder.app_data_dictionary_updater();
        for (component, value) in updated.changes {
            match value {
                Some(value) => updater.set(ComponentData::from_parts(component, value.into())),
                None => updater.remove(&component),
            }
        }
        let changes = updater.changes();
        builder.with_app_data_dictionary_updates(changes);
        let bundle = builder
            .build(self.provider.rand(), self.provider.crypto(), &InstallationSigner(&signing), |_| true)
            .map_err(refused)?
            .stage_commit(&self.provider)
            .map_err(MlsError::library)?;
        self.journal.other_use();
        let data = bundle.commit().to_bytes().map_err(MlsError::library)?;
        let welcome = bundle.into_welcome_msg().map(|welcome| welcome.to_bytes());
        Ok(PreparedCommit { data, welcome: welcome.transpose().map_err(MlsError::library)?, added })
    }
}

#[derive(Default)]
struct Plan {
    updates: Vec<(u16, Option<Vec<u8>>)>,
    add: Vec<Vec<u8>>,
    remove: Vec<LeafNodeIndex>,
    fresh_keys: bool,
}

fn proposal((component, payload): (u16, Option<Vec<u8>>)) -> AppDataUpdateProposal {
    match payload {
        Some(payload) => AppDataUpdateProposal::update(component, payload),
        None => AppDataUpdateProposal::remove(component),
    }
}

fn refused(error: CreateCommitError) -> MlsError {
    match error {
        CreateCommitError::LibraryError(error) => MlsError::library(error),
        other => MlsError::InvalidChange(other.to_string()),
    }
}
