//! One group inside one attempt.
//!
//! A [`Trial`] is loaded after the writer is held, changed in memory, and either stored in the same transaction or
//! dropped. Nothing of it outlives the attempt (STR-071).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use ed25519_dalek::SigningKey;
use highwater_store::WriteTx;
use highwater_wire::GroupId;
use openmls::extensions::AppDataDictionary;
use openmls::group::{MlsGroup, PastEpochDeletion};
use openmls::prelude::LeafNodeIndex;

use crate::overlay::{Label, Overlay, OverlayError};
use crate::profile::{create_config, credential, satisfies};
use crate::provider::{InstallationSigner, Provider};
use crate::{Components, Member, MlsError, installation, key_package, rows, status};

/// A group's MLS state in memory, with what this attempt changed in it.
///
/// `Send`, so that a blocking thread can take it for heavy work.
pub struct Trial {
    id: GroupId,
    pub(crate) provider: Provider,
    pub(crate) group: MlsGroup,
    join_epoch: u64,
    /// Decoded at most once for a group state.
    pub(crate) components: OnceLock<Arc<Components>>,
    /// Derived at most once: it costs as much as a signature.
    signing: OnceLock<SigningKey>,
    /// What is on record, unless the group is new.
    recorded: Option<status::GroupState>,
    pub(crate) journal: Journal,
}

/// What happened to the message secrets since they were last written down.
///
/// OpenMLS rewrites all message secrets with each message, so an attempt writes them down once, at its end. To drop
/// the last message alone, the group is then loaded as it was last written down and given the messages before it again.
#[derive(Default)]
pub(crate) struct Journal {
    /// The application messages processed since.
    messages: Vec<Vec<u8>>,
    /// How many of them precede the mark.
    at_mark: usize,
    /// Something else used secrets, too, so repeating the messages wouldn't restore them.
    unrepeatable: bool,
}

impl Journal {
    pub(crate) fn message(&mut self, data: &[u8]) {
        self.messages.push(data.to_vec());
    }

    pub(crate) fn other_use(&mut self) {
        self.unrepeatable = true;
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Trial {
    /// Loads a group, `None` if there is no MLS state of it.
    pub async fn load(tx: &mut WriteTx, id: GroupId) -> Result<Option<Self>, MlsError> {
        Self::over(id, rows::load(tx, id).await?)
    }

    /// [`Self::load`] for several groups, in one query and in the order given.
    pub async fn load_together(
        tx: &mut WriteTx,
        groups: &[GroupId],
    ) -> Result<Vec<(GroupId, Option<Self>)>, MlsError> {
        let loaded = rows::load_together(tx, groups).await?;
        loaded.into_iter().map(|(id, overlay)| Ok((id, Self::over(id, overlay)?))).collect()
    }

    fn over(id: GroupId, overlay: Overlay) -> Result<Option<Self>, MlsError> {
        let provider = Provider::new(overlay);
        let Some(group) = load_group(&provider, id)? else {
            return Ok(None);
        };
        let join_epoch =
            provider.overlay.read(Label::JoinEpoch, Vec::new())?.ok_or(MlsError::Damaged("join epoch"))?;
        let mut trial = Self::of(id, provider, group, join_epoch);
        trial.recorded = Some(trial.state());
        Ok(Some(trial))
    }

    /// Creates a group that holds only this installation, with its components in place from the first epoch on.
    ///
    /// # Errors
    /// [`MlsError::GroupExists`]; [`MlsError::NoInstallation`] or [`MlsError::NoInbox`] before there is an installation
    /// with an inbox; [`MlsError::InvalidChange`] for components over their limits.
    pub async fn create(tx: &mut WriteTx, id: GroupId, components: Components) -> Result<Self, MlsError> {
        let invalid = |component| MlsError::InvalidChange(format!("component {component:#06x}"));
        components.bounds().map_err(invalid)?;
        Components::decode(&components.encode()).map_err(invalid)?;
        let owner = installation(tx).await?.ok_or(MlsError::NoInstallation)?;
        let inbox = owner.inbox.ok_or(MlsError::NoInbox)?;
        let provider = Provider::new(rows::load(tx, id).await?);
        if load_group(&provider, id)?.is_some() {
            return Err(MlsError::GroupExists);
        }
        let config = create_config(components.encode(), key_package::leaf_lifetime(tx.now_ns()))?;
        let group = MlsGroup::new_with_group_id(
            &provider,
            &InstallationSigner(owner.signing()),
            &config,
            mls_id(id),
            credential(inbox, owner.key),
        )
        .map_err(MlsError::library)?;
        provider.overlay.write(Label::JoinEpoch, Vec::new(), &0_u64)?;
        let mut trial = Self::of(id, provider, group, 0);
        trial.write_secrets()?;
        Ok(trial)
    }

    fn of(id: GroupId, provider: Provider, group: MlsGroup, join_epoch: u64) -> Self {
        let journal = Journal::default();
        Self {
            id,
            provider,
            group,
            join_epoch,
            components: OnceLock::new(),
            signing: OnceLock::new(),
            recorded: None,
            journal,
        }
    }

    /// Writes the changed rows: a few multi-row statements, whatever happened before.
    pub async fn store(&mut self, tx: &mut WriteTx) -> Result<(), MlsError> {
        Self::store_together(tx, [self]).await
    }

    /// [`Self::store`] for several groups, in as few statements.
    pub async fn store_together<'t>(
        tx: &mut WriteTx,
        trials: impl IntoIterator<Item = &'t mut Self>,
    ) -> Result<(), MlsError> {
        let mut trials: Vec<_> = trials.into_iter().collect();
        for trial in &mut trials {
            trial.provider.overlay.settle();
            trial.write_secrets()?;
        }
        rows::store(tx, trials.iter().map(|trial| &trial.provider.overlay)).await?;
        for trial in trials {
            let state = trial.state();
            if trial.recorded != Some(state) {
                status::put(tx, trial.id, &state).await?;
                trial.recorded = Some(state);
            }
        }
        Ok(())
    }

    /// The installation's key.
    pub(crate) fn signing_key(&self) -> Result<&SigningKey, MlsError> {
        if let Some(signing) = self.signing.get() {
            return Ok(signing);
        }
        let signing = installation::loaded_signing_key(&self.provider.overlay)?;
        Ok(self.signing.get_or_init(|| signing))
    }

    fn state(&self) -> status::GroupState {
        status::GroupState { epoch: self.epoch(), join_epoch: self.join_epoch, active: self.is_active() }
    }

    /// From here on changes can be dropped with [`Self::rollback_to_mark`]. An earlier mark is given up: what changed
    /// since it stays.
    ///
    /// # Errors
    /// [`MlsError::Library`] if the secrets used so far can't be written down.
    pub fn mark(&mut self) -> Result<(), MlsError> {
        self.provider.overlay.settle();
        if self.journal.unrepeatable {
            self.write_secrets()?;
        }
        self.provider.overlay.mark();
        self.journal.at_mark = self.journal.messages.len();
        Ok(())
    }

    /// Drops every change since the mark, and every mutable object that knew of them.
    ///
    /// # Errors
    /// After an error the trial must be dropped.
    pub fn rollback_to_mark(&mut self) -> Result<(), MlsError> {
        self.provider.overlay.drop_layer();
        let group = load_group(&self.provider, self.id)?;
        self.group = group.ok_or(MlsError::Damaged("the group below the mark"))?;
        self.components = OnceLock::new();
        let mut messages = std::mem::take(&mut self.journal.messages);
        messages.truncate(self.journal.at_mark);
        self.journal.clear();
        for data in &messages {
            let message = crate::input::parse(data).map_err(MlsError::library)?;
            self.group.process_message(&self.provider, message).map_err(MlsError::library)?;
        }
        self.write_secrets()
    }

    /// Writes the message secrets down, below any mark. Right only while the group's secrets are those of the mark.
    pub(crate) fn write_secrets(&mut self) -> Result<(), MlsError> {
        self.journal.clear();
        write_secrets(&self.provider, &mut self.group)
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.id
    }

    /// The current epoch.
    pub fn epoch(&self) -> u64 {
        self.group.epoch().as_u64()
    }

    /// The epoch in which this installation joined, 0 for its creator.
    pub fn join_epoch(&self) -> u64 {
        self.join_epoch
    }

    /// Whether this installation still is a member.
    pub fn is_active(&self) -> bool {
        self.group.is_active()
    }

    /// The references of the standalone proposals of the current epoch that are stored.
    pub fn stored_proposals(&self) -> BTreeSet<Vec<u8>> {
        self.group.pending_proposals().map(|it| it.proposal_reference_ref().as_slice().to_vec()).collect()
    }

    /// What all members of an epoch have in common and nobody else; equal only for equal group states.
    pub fn epoch_authenticator(&self) -> Vec<u8> {
        self.group.epoch_authenticator().as_slice().to_vec()
    }

    /// The components as of the current epoch.
    pub fn components(&self) -> Result<Arc<Components>, MlsError> {
        if let Some(components) = self.components.get() {
            return Ok(Arc::clone(components));
        }
        let decoded = Components::decode(self.dictionary()?);
        let components = Arc::new(decoded.map_err(|_| MlsError::Damaged("components"))?);
        Ok(Arc::clone(self.components.get_or_init(|| components)))
    }

    pub(crate) fn dictionary(&self) -> Result<&AppDataDictionary, MlsError> {
        let extension = self.group.extensions().app_data_dictionary();
        extension.map(|extension| extension.dictionary()).ok_or(MlsError::Damaged("dictionary"))
    }

    /// Refuses work in a group that requires a newer client.
    pub(crate) fn unmet_floor(&self) -> Result<Option<String>, MlsError> {
        let floor = self.components()?.minimum_version.clone();
        Ok(floor.filter(|floor| !satisfies(Some(floor))))
    }

    /// The leaves of the current epoch, in tree order.
    pub fn members(&self) -> Vec<Member> {
        self.leaves().into_values().collect()
    }

    /// This installation's leaf.
    ///
    /// # Errors
    /// [`MlsError::Inactive`] after it was removed.
    pub fn me(&self) -> Result<Member, MlsError> {
        let leaf = self.group.own_leaf_node().filter(|_| self.is_active()).ok_or(MlsError::Inactive)?;
        Member::read(leaf.credential(), leaf.signature_key().as_slice()).ok_or(MlsError::Damaged("own leaf"))
    }

    /// Leaves whose credential isn't one of this profile never get in, so none is left out here.
    pub(crate) fn leaves(&self) -> BTreeMap<LeafNodeIndex, Member> {
        let members = self
            .group
            .members()
            .filter_map(|leaf| Some((leaf.index, Member::read(&leaf.credential, &leaf.signature_key)?)));
        members.collect()
    }
}

pub(crate) fn mls_id(id: GroupId) -> openmls::group::GroupId {
    openmls::group::GroupId::from_slice(id.as_bytes())
}

fn load_group(provider: &Provider, id: GroupId) -> Result<Option<MlsGroup>, MlsError> {
    Ok(MlsGroup::load(&provider.overlay, &mls_id(id))?)
}

/// Has OpenMLS write the message secrets of a group, which [`Overlay`](crate::overlay::Overlay) otherwise only notes.
/// Nothing is older than the beginning of time, so nothing is deleted.
pub(crate) fn write_secrets(provider: &Provider, group: &mut MlsGroup) -> Result<(), MlsError> {
    if !provider.overlay.secrets_stale() {
        return Ok(());
    }
    provider.overlay.take_secrets(true);
    let written = group.delete_past_epoch_secrets(provider, PastEpochDeletion::before_timestamp(UNIX_EPOCH));
    provider.overlay.take_secrets(false);
    written.map_err(MlsError::library)
}

impl From<OverlayError> for MlsError {
    fn from(error: OverlayError) -> Self {
        match error {
            OverlayError::Decode(label) => Self::Damaged(label.name()),
            other => Self::library(other),
        }
    }
}
