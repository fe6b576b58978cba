//! Trial state: the rows of one group in memory, with what an attempt changed in them.
//!
//! OpenMLS asks its storage synchronously and the database answers asynchronously, so an attempt reads all rows of a
//! group first and writes the changed ones last. In between stands a layer that one envelope's changes can be dropped
//! with (STR-071).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_wire::GroupId;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a row is. The names are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    // Of a group.
    JoinConfig,
    OwnLeafNodes,
    ProposalRefs,
    Proposal,
    Tree,
    InterimTranscriptHash,
    GroupContext,
    ConfirmationTag,
    GroupState,
    MessageSecrets,
    ResumptionPskStore,
    OwnLeafIndex,
    EpochSecrets,
    EpochKeyPairs,
    ApplicationExportTree,
    /// Ours: the epoch this installation joined in.
    JoinEpoch,
    /// Ours: who sat in a leaf before it was emptied, as long as messages of then can arrive.
    FormerLeaves,
    // Of no group.
    /// Ours: the installation's private key.
    InstallationKey,
    KeyPackage,
    SignatureKeyPair,
    EncryptionKeyPair,
    Psk,
}

impl Label {
    pub(crate) const ALL: [Self; 22] = [
        Self::JoinConfig,
        Self::OwnLeafNodes,
        Self::ProposalRefs,
        Self::Proposal,
        Self::Tree,
        Self::InterimTranscriptHash,
        Self::GroupContext,
        Self::ConfirmationTag,
        Self::GroupState,
        Self::MessageSecrets,
        Self::ResumptionPskStore,
        Self::OwnLeafIndex,
        Self::EpochSecrets,
        Self::EpochKeyPairs,
        Self::ApplicationExportTree,
        Self::JoinEpoch,
        Self::FormerLeaves,
        Self::InstallationKey,
        Self::KeyPackage,
        Self::SignatureKeyPair,
        Self::EncryptionKeyPair,
        Self::Psk,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::JoinConfig => "join_config",
            Self::OwnLeafNodes => "own_leaf_nodes",
            Self::ProposalRefs => "proposal_refs",
            Self::Proposal => "proposal",
            Self::Tree => "tree",
            Self::InterimTranscriptHash => "interim_transcript_hash",
            Self::GroupContext => "group_context",
            Self::ConfirmationTag => "confirmation_tag",
            Self::GroupState => "group_state",
            Self::MessageSecrets => "message_secrets",
            Self::ResumptionPskStore => "resumption_psk_store",
            Self::OwnLeafIndex => "own_leaf_index",
            Self::EpochSecrets => "epoch_secrets",
            Self::EpochKeyPairs => "epoch_key_pairs",
            Self::ApplicationExportTree => "application_export_tree",
            Self::JoinEpoch => "join_epoch",
            Self::FormerLeaves => "former_leaves",
            Self::InstallationKey => "installation_key",
            Self::KeyPackage => "key_package",
            Self::SignatureKeyPair => "signature_key_pair",
            Self::EncryptionKeyPair => "encryption_key_pair",
            Self::Psk => "psk",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|label| label.name() == name)
    }

    pub(crate) fn of_group(self) -> bool {
        !matches!(
            self,
            Self::InstallationKey
                | Self::KeyPackage
                | Self::SignatureKeyPair
                | Self::EncryptionKeyPair
                | Self::Psk
        )
    }

    /// The join config is an untagged enum somewhere inside, which only a self-describing form can hold.
    fn encoding(self) -> Encoding {
        if self == Self::JoinConfig { Encoding::Json } else { Encoding::Postcard }
    }
}

/// The leading byte of every stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Postcard = 1,
    Json = 2,
}

/// Why a value could not be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverlayError {
    #[error("the value {0:?} could not be encoded")]
    Encode(Label),
    #[error("the stored value {0:?} could not be decoded")]
    Decode(Label),
    #[error("the key of {0:?} could not be encoded")]
    Key(Label),
    #[error("a value of another group was asked for")]
    ForeignGroup,
}

pub(crate) fn encode<V: Serialize + ?Sized>(label: Label, value: &V) -> Result<Vec<u8>, OverlayError> {
    let encoding = label.encoding();
    let out = vec![encoding as u8];
    match encoding {
        Encoding::Postcard => postcard::to_extend(value, out).map_err(|_| OverlayError::Encode(label)),
        Encoding::Json => {
            let mut out = out;
            serde_json::to_writer(&mut out, value).map_err(|_| OverlayError::Encode(label))?;
            Ok(out)
        }
    }
}

pub(crate) fn decode<V: DeserializeOwned>(label: Label, bytes: &[u8]) -> Result<V, OverlayError> {
    let (encoding, value) = bytes.split_first().ok_or(OverlayError::Decode(label))?;
    let decoded = match *encoding {
        1 => postcard::from_bytes(value).ok(),
        2 => serde_json::from_slice(value).ok(),
        _ => None,
    };
    decoded.ok_or(OverlayError::Decode(label))
}

type RowKey = (Label, Vec<u8>);

struct Row {
    /// `None` for a deleted row.
    value: Option<Vec<u8>>,
    dirty: bool,
}

#[derive(Default)]
struct Layers {
    base: HashMap<RowKey, Row>,
    /// Changes since the mark, `None` for a deletion. Absent without a mark.
    layer: Option<HashMap<RowKey, Option<Vec<u8>>>>,
    /// The message secrets changed in the `MlsGroup` only; see [`Overlay::secrets_stale`].
    secrets_stale: bool,
    /// The next write of the message secrets is to be taken down, into the base.
    taking_secrets: bool,
}

impl Layers {
    fn get(&self, key: &RowKey) -> Option<&[u8]> {
        match self.layer.as_ref().and_then(|layer| layer.get(key)) {
            Some(changed) => changed.as_deref(),
            None => self.base.get(key)?.value.as_deref(),
        }
    }

    fn set(&mut self, key: RowKey, value: Option<Vec<u8>>) {
        match &mut self.layer {
            Some(layer) => drop(layer.insert(key, value)),
            None => self.set_base(key, value),
        }
    }

    fn set_base(&mut self, key: RowKey, value: Option<Vec<u8>>) {
        if value.is_none() && !self.base.contains_key(&key) {
            return;
        }
        self.base.insert(key, Row { value, dirty: true });
    }
}

/// The rows of one group and of no group.
///
/// Interior mutability because OpenMLS stores through a shared reference; a mutex rather than a cell so that a trial
/// may move between threads and be borrowed over an `.await`.
pub(crate) struct Overlay {
    group: Mutex<Option<GroupId>>,
    layers: Mutex<Layers>,
}

/// A changed row on its way to the database.
pub(crate) struct Change {
    pub(crate) label: Label,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

impl Overlay {
    /// An overlay over the rows as they are stored.
    pub(crate) fn new(
        group: Option<GroupId>,
        rows: impl IntoIterator<Item = (Label, Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let rows = rows.into_iter();
        let base = rows
            .map(|(label, key, value)| ((label, key), Row { value: Some(value), dirty: false }))
            .collect();
        Self { group: Mutex::new(group), layers: Mutex::new(Layers { base, ..Layers::default() }) }
    }

    /// A poisoned lock means a panic in between two whole operations on a map: the map is sound, and the attempt rolls
    /// back with the panic anyway.
    fn layers(&self) -> MutexGuard<'_, Layers> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn group(&self) -> Option<GroupId> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Welcome tells its group only after its first half was processed.
    pub(crate) fn set_group(&self, group: GroupId) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    pub(crate) fn read<V: DeserializeOwned>(
        &self,
        label: Label,
        key: Vec<u8>,
    ) -> Result<Option<V>, OverlayError> {
        self.layers().get(&(label, key)).map(|bytes| decode(label, bytes)).transpose()
    }

    pub(crate) fn write<V: Serialize + ?Sized>(
        &self,
        label: Label,
        key: Vec<u8>,
        value: &V,
    ) -> Result<(), OverlayError> {
        let value = encode(label, value)?;
        self.layers().set((label, key), Some(value));
        Ok(())
    }

    pub(crate) fn delete(&self, label: Label, key: Vec<u8>) {
        self.layers().set((label, key), None);
    }

    /// Message secrets hold the member list of every retained epoch, and OpenMLS writes them with every message.
    /// So a write is only noted, and taken down once for many messages.
    pub(crate) fn write_secrets<V: Serialize>(&self, value: &V) -> Result<(), OverlayError> {
        if !self.layers().taking_secrets {
            self.layers().secrets_stale = true;
            return Ok(());
        }
        let value = encode(Label::MessageSecrets, value)?;
        let mut layers = self.layers();
        layers.set_base((Label::MessageSecrets, Vec::new()), Some(value));
        layers.secrets_stale = false;
        Ok(())
    }

    /// Whether the stored message secrets are behind the group's.
    pub(crate) fn secrets_stale(&self) -> bool {
        self.layers().secrets_stale
    }

    pub(crate) fn take_secrets(&self, taking: bool) {
        self.layers().taking_secrets = taking;
    }

    /// What changed since the last mark stays; from here on changes can be dropped.
    pub(crate) fn mark(&self) {
        self.settle();
        self.layers().layer = Some(HashMap::new());
    }

    /// Drops what changed since the mark.
    pub(crate) fn drop_layer(&self) {
        let mut layers = self.layers();
        layers.layer = Some(HashMap::new());
        layers.secrets_stale = false;
    }

    /// Puts the layer into the base.
    pub(crate) fn settle(&self) {
        let mut layers = self.layers();
        for (key, value) in layers.layer.take().unwrap_or_default() {
            layers.set_base(key, value);
        }
    }

    /// Every changed row. They count as stored from here on.
    pub(crate) fn take_changes(&self) -> Vec<Change> {
        self.settle();
        let mut layers = self.layers();
        let mut changes = Vec::new();
        for ((label, key), row) in &mut layers.base {
            if std::mem::take(&mut row.dirty) {
                changes.push(Change { label: *label, key: key.clone(), value: row.value.clone() });
            }
        }
        layers.base.retain(|_, row| row.value.is_some());
        // One order for one state, whatever the hash map's.
        changes.sort_by(|a, b| (a.label, &a.key).cmp(&(b.label, &b.key)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay() -> Overlay {
        Overlay::new(None, [(Label::Tree, vec![], encode(Label::Tree, &7_u32).unwrap())])
    }

    #[test]
    fn a_dropped_layer_leaves_no_trace() {
        let overlay = overlay();
        overlay.mark();
        overlay.write(Label::Tree, vec![], &8_u32).unwrap();
        overlay.write(Label::GroupContext, vec![], &1_u32).unwrap();
        assert_eq!(overlay.read(Label::Tree, vec![]).unwrap(), Some(8_u32));
        overlay.drop_layer();
        assert_eq!(overlay.read(Label::Tree, vec![]).unwrap(), Some(7_u32));
        assert_eq!(overlay.read::<u32>(Label::GroupContext, vec![]).unwrap(), None);
        assert!(overlay.take_changes().is_empty());
    }

    #[test]
    fn a_second_mark_keeps_what_came_before_it() {
        let overlay = overlay();
        overlay.mark();
        overlay.write(Label::Tree, vec![], &8_u32).unwrap();
        overlay.mark();
        overlay.delete(Label::Tree, vec![]);
        assert_eq!(overlay.read::<u32>(Label::Tree, vec![]).unwrap(), None);
        overlay.drop_layer();
        assert_eq!(overlay.read(Label::Tree, vec![]).unwrap(), Some(8_u32));
        assert_eq!(overlay.take_changes().len(), 1);
        assert!(overlay.take_changes().is_empty());
    }

    #[test]
    fn a_row_that_came_and_went_is_not_stored() {
        let overlay = overlay();
        overlay.mark();
        overlay.write(Label::GroupContext, vec![], &1_u32).unwrap();
        overlay.delete(Label::GroupContext, vec![]);
        assert!(overlay.take_changes().is_empty());
    }

    #[test]
    fn a_value_of_an_unknown_encoding_is_an_error() {
        assert_eq!(decode::<u32>(Label::Tree, &[9, 1]), Err(OverlayError::Decode(Label::Tree)));
        assert_eq!(decode::<u32>(Label::Tree, &[]), Err(OverlayError::Decode(Label::Tree)));
    }
}
