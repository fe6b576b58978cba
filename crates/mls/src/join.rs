//! Joining a group: a Welcome, staged, checked, installed. Each step consumes the one before.

use std::collections::{BTreeMap, BTreeSet};

use highwater_store::WriteTx;
use highwater_wire::{GroupId, InboxId, InstallationKey, SequenceId};
use openmls::framing::{MlsMessageBodyIn, MlsMessageIn};
use openmls::group::{StagedWelcome, WelcomeError};
use openmls::prelude::CreationFromExternalError;
use tls_codec::Deserialize as _;

use crate::components::ConversationType;
use crate::key_package::{self, KeyPackageId};
use crate::overlay::{Label, OverlayError};
use crate::profile::{SUITE, join_config, satisfies};
use crate::provider::Provider;
use crate::trial::write_secrets;
use crate::{Components, Member, MlsError, OpenedWelcome, Snapshots, WelcomeFailure, rows, status};

/// A Welcome that MLS accepts. Nothing of it is stored.
pub struct StagedJoin {
    provider: Provider,
    staged: StagedWelcome,
    group: GroupId,
    anchor: SequenceId,
    package: KeyPackageId,
    components: Components,
    members: Vec<Member>,
    me: Member,
    adder: Member,
}

impl StagedJoin {
    /// Decrypts and validates an MLS Welcome with the key package it was sealed to, and no other.
    pub async fn stage(tx: &mut WriteTx, opened: OpenedWelcome) -> Result<Self, WelcomeFailure> {
        let OpenedWelcome { welcome, anchor, package } = opened;
        let provider = Provider::new(key_package::load_only(tx, package).await?);
        let (group, staged) = stage(&provider, &welcome)?;
        let context = staged.group_context();
        let dictionary = context.extensions().app_data_dictionary();
        let dictionary = dictionary.ok_or(WelcomeFailure::Malformed("no components"))?;
        let components = Components::decode(dictionary.dictionary())
            .map_err(|component| WelcomeFailure::MalformedComponent { component })?;
        let members = staged
            .members()
            .map(|leaf| Member::read(&leaf.credential, &leaf.signature_key))
            .collect::<Option<Vec<_>>>()
            .ok_or(WelcomeFailure::MalformedCredential)?;
        let adder = staged.welcome_sender().map_err(local)?;
        let adder = Member::read(adder.credential(), adder.signature_key().as_slice())
            .ok_or(WelcomeFailure::MalformedCredential)?;
        let me = staged.own_leaf_node().ok_or(WelcomeFailure::OwnLeafAbsent)?;
        let me = Member::read(me.credential(), me.signature_key().as_slice())
            .ok_or(WelcomeFailure::MalformedCredential)?;
        Ok(Self { provider, staged, group, anchor, package, components, members, me, adder })
    }

    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The epoch it leads into.
    pub fn epoch(&self) -> u64 {
        self.staged.group_context().epoch().as_u64()
    }

    /// The commit that added this installation.
    pub fn anchor(&self) -> SequenceId {
        self.anchor
    }

    /// The leaves, this installation's included.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The group's components.
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Who sent the Welcome: the leaf whose signature it bears, never an outer field.
    pub fn adder(&self) -> Member {
        self.adder
    }

    /// The identity states that [`Self::check`] needs: of every member inbox, at the update its entry names.
    pub fn required_identity(&self) -> Vec<(InboxId, SequenceId)> {
        let entries = self.components.membership.iter();
        entries
            .filter_map(|(inbox, entry)| Some((*inbox, SequenceId::try_from(entry.sequence_id).ok()?)))
            .collect()
    }

    /// Checks the bounds, entries and leaves of the group against verified identity states. `welcome_id` is the
    /// Welcome envelope's own sequence id.
    pub fn check(self, welcome_id: SequenceId, snapshots: &Snapshots) -> Result<CheckedJoin, WelcomeFailure> {
        if self.anchor >= welcome_id {
            return Err(WelcomeFailure::AnchorNotBefore);
        }
        self.check_entries(welcome_id)?;
        self.check_leaves(snapshots)?;
        self.check_dm()?;
        match &self.components.minimum_version {
            Some(floor) if !satisfies(Some(floor)) => Err(WelcomeFailure::GroupVersion(floor.clone())),
            _ => Ok(CheckedJoin(self)),
        }
    }

    fn check_entries(&self, welcome_id: SequenceId) -> Result<(), WelcomeFailure> {
        for (inbox, entry) in &self.components.membership {
            match entry.sequence_id {
                0 if *inbox == self.components.creator => {}
                0 => return Err(WelcomeFailure::EntryZero),
                id if id >= welcome_id.get() => return Err(WelcomeFailure::EntryNotBefore),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_leaves(&self, snapshots: &Snapshots) -> Result<(), WelcomeFailure> {
        if !self.members.contains(&self.me) {
            return Err(WelcomeFailure::OwnLeafAbsent);
        }
        let mut leaves: BTreeMap<InboxId, BTreeSet<InstallationKey>> = BTreeMap::new();
        for member in &self.members {
            leaves.entry(member.inbox).or_default().insert(member.installation);
        }
        if leaves.keys().any(|inbox| !self.components.membership.contains_key(inbox)) {
            return Err(WelcomeFailure::LeafWithoutEntry);
        }
        for (inbox, sequence_id) in self.required_identity() {
            let state = snapshots.get(&(inbox, sequence_id)).ok_or(WelcomeFailure::MissingSnapshot)?;
            let installations = state.installations();
            let leaves = leaves.remove(&inbox).unwrap_or_default();
            if !leaves.is_subset(&installations) {
                return Err(WelcomeFailure::ForeignLeaf);
            }
            let failed = &self.components.membership[&inbox].failed;
            if installations.iter().any(|key| !leaves.contains(key) && !failed.contains(key)) {
                return Err(WelcomeFailure::InstallationMissing);
            }
        }
        Ok(())
    }

    fn check_dm(&self) -> Result<(), WelcomeFailure> {
        if self.components.conversation != ConversationType::Dm {
            return Ok(());
        }
        let inboxes: BTreeSet<InboxId> = self.components.membership.keys().copied().collect();
        if self.components.dm_pair.as_ref() == Some(&inboxes) {
            Ok(())
        } else {
            Err(WelcomeFailure::DmInboxes)
        }
    }
}

fn stage(provider: &Provider, welcome: &[u8]) -> Result<(GroupId, StagedWelcome), WelcomeFailure> {
    const MLS_10: [u8; 2] = [0, 1];
    if welcome.len() >= 2 && welcome[..2] != MLS_10 {
        return Err(WelcomeFailure::UnsupportedVersion);
    }
    let message =
        MlsMessageIn::tls_deserialize_exact(welcome).map_err(|_| WelcomeFailure::Malformed("MLS message"))?;
    let MlsMessageBodyIn::Welcome(welcome) = message.extract() else {
        return Err(WelcomeFailure::NotAWelcome);
    };
    let builder = StagedWelcome::build_from_welcome(provider, &join_config(), welcome).map_err(refused)?;
    if !builder.processed_welcome().psks().is_empty() {
        return Err(WelcomeFailure::PreSharedKey);
    }
    let group = builder.processed_welcome().unverified_group_info().group_id().as_slice();
    let group = GroupId::try_from(group).map_err(|_| WelcomeFailure::Malformed("group id"))?;
    provider.overlay.set_group(group);
    // A leaf's lifetime bounds when it may be added, not how long it may stay; and the clock is no evidence anyway.
    let staged = builder.replace_old_group().skip_lifetime_validation().build().map_err(refused)?;
    if staged.group_context().ciphersuite() != SUITE {
        return Err(WelcomeFailure::Invalid("ciphersuite".into()));
    }
    if staged.group_context().epoch().as_u64() == 0 {
        return Err(WelcomeFailure::Invalid("epoch 0".into()));
    }
    Ok((group, staged))
}

fn local(error: impl std::fmt::Display) -> WelcomeFailure {
    WelcomeFailure::Local(MlsError::library(error))
}

fn refused(error: WelcomeError<OverlayError>) -> WelcomeFailure {
    use CreationFromExternalError as Tree;
    use WelcomeError as E;
    match error {
        E::Psk(_) => WelcomeFailure::PreSharedKey,
        E::UnsupportedMlsVersion | E::PublicGroupError(Tree::UnsupportedMlsVersion) => {
            WelcomeFailure::UnsupportedVersion
        }
        E::NoMatchingKeyPackage | E::JoinerSecretNotFound | E::NoMatchingEncryptionKey => {
            WelcomeFailure::UnknownPackage
        }
        E::NotAWelcomeMessage => WelcomeFailure::NotAWelcome,
        E::MalformedWelcomeMessage => WelcomeFailure::Malformed("Welcome"),
        E::UnableToDecrypt | E::GroupSecrets(_) => WelcomeFailure::Unopenable,
        E::LibraryError(_)
        | E::StorageError(_)
        | E::KeySchedule(_)
        | E::PrivateInitKeyNotFound
        | E::GroupAlreadyExists
        | E::PublicGroupError(Tree::LibraryError(_) | Tree::WriteToStorageError(_)) => local(error),
        other => WelcomeFailure::Invalid(other.to_string()),
    }
}

/// A Welcome that passed every check and may be installed.
pub struct CheckedJoin(StagedJoin);

impl CheckedJoin {
    /// The group.
    pub fn group(&self) -> GroupId {
        self.0.group()
    }

    /// The epoch it leads into.
    pub fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// The commit that added this installation.
    pub fn anchor(&self) -> SequenceId {
        self.0.anchor()
    }

    /// The leaves, this installation's included.
    pub fn members(&self) -> &[Member] {
        self.0.members()
    }

    /// The group's components.
    pub fn components(&self) -> &Components {
        self.0.components()
    }

    /// Who sent the Welcome.
    pub fn adder(&self) -> Member {
        self.0.adder()
    }

    /// Makes the group's MLS state what the Welcome says, in place of any that is there, and marks the key package as
    /// used. Whether that is right for the state that is there, the caller decided in this same transaction (STR-082).
    pub async fn install(self, tx: &mut WriteTx) -> Result<(), MlsError> {
        let state = status::GroupState { epoch: self.epoch(), join_epoch: self.epoch(), active: true };
        let StagedJoin { provider, staged, group, package, .. } = self.0;
        rows::delete_group(tx, group).await?;
        let mut joined = staged.into_group(&provider).map_err(MlsError::library)?;
        write_secrets(&provider, &mut joined)?;
        provider.overlay.write(Label::JoinEpoch, Vec::new(), &state.join_epoch)?;
        rows::store(tx, [&provider.overlay]).await?;
        status::put(tx, group, &state).await?;
        key_package::mark_used(tx, package).await
    }
}
