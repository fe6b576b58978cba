//! The storage trait of OpenMLS over the rows of an [`Overlay`].

use openmls_traits::storage::{CURRENT_VERSION, StorageProvider, traits};
use serde::Serialize;

use crate::overlay::{Label, Overlay, OverlayError};

const V: u16 = CURRENT_VERSION;

/// The key of a value that a group has one of.
const ONLY: Vec<u8> = Vec::new();

impl Overlay {
    /// An overlay holds one group, so its rows need no group in their keys; but a mixed-up group must not pass.
    fn own<G: Serialize>(&self, group: &G) -> Result<(), OverlayError> {
        let asked = postcard::to_stdvec(group).map_err(|_| OverlayError::ForeignGroup)?;
        let own = self.group().ok_or(OverlayError::ForeignGroup)?;
        let own = openmls::group::GroupId::from_slice(own.as_bytes());
        let own = postcard::to_stdvec(&own).map_err(|_| OverlayError::ForeignGroup)?;
        if asked == own { Ok(()) } else { Err(OverlayError::ForeignGroup) }
    }

    /// References in the order their proposals came, each as the key of its proposal.
    fn encoded_refs(&self) -> Result<Vec<Vec<u8>>, OverlayError> {
        Ok(self.read(Label::ProposalRefs, ONLY)?.unwrap_or_default())
    }

    fn proposal_refs<R: traits::ProposalRef<V>>(&self) -> Result<Vec<R>, OverlayError> {
        let decode = |encoded: &Vec<u8>| {
            postcard::from_bytes(encoded).map_err(|_| OverlayError::Decode(Label::ProposalRefs))
        };
        self.encoded_refs()?.iter().map(decode).collect()
    }
}

fn key<K: Serialize>(label: Label, key: &K) -> Result<Vec<u8>, OverlayError> {
    postcard::to_stdvec(key).map_err(|_| OverlayError::Key(label))
}

impl StorageProvider<V> for Overlay {
    type Error = OverlayError;

    fn write_mls_join_config<G: traits::GroupId<V>, T: traits::MlsGroupJoinConfig<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::JoinConfig, ONLY, value)
    }

    fn mls_group_join_config<G: traits::GroupId<V>, T: traits::MlsGroupJoinConfig<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::JoinConfig, ONLY)
    }

    fn delete_group_config<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::JoinConfig, ONLY);
        Ok(())
    }

    fn write_tree<G: traits::GroupId<V>, T: traits::TreeSync<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::Tree, ONLY, value)
    }

    fn tree<G: traits::GroupId<V>, T: traits::TreeSync<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::Tree, ONLY)
    }

    fn delete_tree<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::Tree, ONLY);
        Ok(())
    }

    fn write_interim_transcript_hash<G: traits::GroupId<V>, T: traits::InterimTranscriptHash<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::InterimTranscriptHash, ONLY, value)
    }

    fn interim_transcript_hash<G: traits::GroupId<V>, T: traits::InterimTranscriptHash<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::InterimTranscriptHash, ONLY)
    }

    fn delete_interim_transcript_hash<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::InterimTranscriptHash, ONLY);
        Ok(())
    }

    fn write_context<G: traits::GroupId<V>, T: traits::GroupContext<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::GroupContext, ONLY, value)
    }

    fn group_context<G: traits::GroupId<V>, T: traits::GroupContext<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::GroupContext, ONLY)
    }

    fn delete_context<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::GroupContext, ONLY);
        Ok(())
    }

    fn write_confirmation_tag<G: traits::GroupId<V>, T: traits::ConfirmationTag<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::ConfirmationTag, ONLY, value)
    }

    fn confirmation_tag<G: traits::GroupId<V>, T: traits::ConfirmationTag<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::ConfirmationTag, ONLY)
    }

    fn delete_confirmation_tag<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::ConfirmationTag, ONLY);
        Ok(())
    }

    fn write_resumption_psk_store<G: traits::GroupId<V>, T: traits::ResumptionPskStore<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::ResumptionPskStore, ONLY, value)
    }

    fn resumption_psk_store<G: traits::GroupId<V>, T: traits::ResumptionPskStore<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::ResumptionPskStore, ONLY)
    }

    fn delete_all_resumption_psk_secrets<G: traits::GroupId<V>>(
        &self,
        group: &G,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::ResumptionPskStore, ONLY);
        Ok(())
    }

    fn write_own_leaf_index<G: traits::GroupId<V>, T: traits::LeafNodeIndex<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::OwnLeafIndex, ONLY, value)
    }

    fn own_leaf_index<G: traits::GroupId<V>, T: traits::LeafNodeIndex<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::OwnLeafIndex, ONLY)
    }

    fn delete_own_leaf_index<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::OwnLeafIndex, ONLY);
        Ok(())
    }

    fn write_group_epoch_secrets<G: traits::GroupId<V>, T: traits::GroupEpochSecrets<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::EpochSecrets, ONLY, value)
    }

    fn group_epoch_secrets<G: traits::GroupId<V>, T: traits::GroupEpochSecrets<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::EpochSecrets, ONLY)
    }

    fn delete_group_epoch_secrets<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::EpochSecrets, ONLY);
        Ok(())
    }

    fn write_group_state<T: traits::GroupState<V>, G: traits::GroupId<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::GroupState, ONLY, value)
    }

    fn group_state<T: traits::GroupState<V>, G: traits::GroupId<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::GroupState, ONLY)
    }

    fn delete_group_state<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::GroupState, ONLY);
        Ok(())
    }

    fn write_message_secrets<G: traits::GroupId<V>, T: traits::MessageSecrets<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write_secrets(value)
    }

    fn message_secrets<G: traits::GroupId<V>, T: traits::MessageSecrets<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::MessageSecrets, ONLY)
    }

    fn delete_message_secrets<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::MessageSecrets, ONLY);
        Ok(())
    }

    fn write_application_export_tree<G: traits::GroupId<V>, T: traits::ApplicationExportTree<V>>(
        &self,
        group: &G,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::ApplicationExportTree, ONLY, value)
    }

    fn application_export_tree<G: traits::GroupId<V>, T: traits::ApplicationExportTree<V>>(
        &self,
        group: &G,
    ) -> Result<Option<T>, OverlayError> {
        self.own(group)?;
        self.read(Label::ApplicationExportTree, ONLY)
    }

    fn delete_application_export_tree<G: traits::GroupId<V>, T: traits::ApplicationExportTree<V>>(
        &self,
        group: &G,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::ApplicationExportTree, ONLY);
        Ok(())
    }

    fn append_own_leaf_node<G: traits::GroupId<V>, T: traits::LeafNode<V>>(
        &self,
        group: &G,
        leaf: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        let mut leaves: Vec<Vec<u8>> = self.read(Label::OwnLeafNodes, ONLY)?.unwrap_or_default();
        leaves.push(key(Label::OwnLeafNodes, leaf)?);
        self.write(Label::OwnLeafNodes, ONLY, &leaves)
    }

    fn own_leaf_nodes<G: traits::GroupId<V>, T: traits::LeafNode<V>>(
        &self,
        group: &G,
    ) -> Result<Vec<T>, OverlayError> {
        self.own(group)?;
        let leaves: Vec<Vec<u8>> = self.read(Label::OwnLeafNodes, ONLY)?.unwrap_or_default();
        let decode = |leaf: &Vec<u8>| {
            postcard::from_bytes(leaf).map_err(|_| OverlayError::Decode(Label::OwnLeafNodes))
        };
        leaves.iter().map(decode).collect()
    }

    fn delete_own_leaf_nodes<G: traits::GroupId<V>>(&self, group: &G) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::OwnLeafNodes, ONLY);
        Ok(())
    }

    fn queue_proposal<G: traits::GroupId<V>, R: traits::ProposalRef<V>, T: traits::QueuedProposal<V>>(
        &self,
        group: &G,
        reference: &R,
        proposal: &T,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        let encoded = key(Label::Proposal, reference)?;
        let mut refs: Vec<Vec<u8>> = self.encoded_refs()?;
        if !refs.contains(&encoded) {
            refs.push(encoded.clone());
            self.write(Label::ProposalRefs, ONLY, &refs)?;
        }
        self.write(Label::Proposal, encoded, proposal)
    }

    fn queued_proposal_refs<G: traits::GroupId<V>, R: traits::ProposalRef<V>>(
        &self,
        group: &G,
    ) -> Result<Vec<R>, OverlayError> {
        self.own(group)?;
        self.proposal_refs()
    }

    fn queued_proposals<G: traits::GroupId<V>, R: traits::ProposalRef<V>, T: traits::QueuedProposal<V>>(
        &self,
        group: &G,
    ) -> Result<Vec<(R, T)>, OverlayError> {
        self.own(group)?;
        // One that was lost holds up the commits that may need it (PROC-011), not the whole group.
        let with_proposal = |reference: R| {
            Ok(self.read(Label::Proposal, key(Label::Proposal, &reference)?)?.map(|it| (reference, it)))
        };
        self.proposal_refs::<R>()?.into_iter().map(with_proposal).filter_map(Result::transpose).collect()
    }

    fn remove_proposal<G: traits::GroupId<V>, R: traits::ProposalRef<V>>(
        &self,
        group: &G,
        reference: &R,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        let encoded = key(Label::Proposal, reference)?;
        let mut refs = self.encoded_refs()?;
        refs.retain(|kept| *kept != encoded);
        self.write(Label::ProposalRefs, ONLY, &refs)?;
        self.delete(Label::Proposal, encoded);
        Ok(())
    }

    fn clear_proposal_queue<G: traits::GroupId<V>, R: traits::ProposalRef<V>>(
        &self,
        group: &G,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        for encoded in self.encoded_refs()? {
            self.delete(Label::Proposal, encoded);
        }
        self.delete(Label::ProposalRefs, ONLY);
        Ok(())
    }

    fn write_encryption_epoch_key_pairs<
        G: traits::GroupId<V>,
        E: traits::EpochKey<V>,
        T: traits::HpkeKeyPair<V>,
    >(
        &self,
        group: &G,
        epoch: &E,
        leaf: u32,
        pairs: &[T],
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.write(Label::EpochKeyPairs, key(Label::EpochKeyPairs, &(epoch, leaf))?, pairs)
    }

    fn encryption_epoch_key_pairs<
        G: traits::GroupId<V>,
        E: traits::EpochKey<V>,
        T: traits::HpkeKeyPair<V>,
    >(
        &self,
        group: &G,
        epoch: &E,
        leaf: u32,
    ) -> Result<Vec<T>, OverlayError> {
        self.own(group)?;
        let pairs = self.read(Label::EpochKeyPairs, key(Label::EpochKeyPairs, &(epoch, leaf))?)?;
        Ok(pairs.unwrap_or_default())
    }

    fn delete_encryption_epoch_key_pairs<G: traits::GroupId<V>, E: traits::EpochKey<V>>(
        &self,
        group: &G,
        epoch: &E,
        leaf: u32,
    ) -> Result<(), OverlayError> {
        self.own(group)?;
        self.delete(Label::EpochKeyPairs, key(Label::EpochKeyPairs, &(epoch, leaf))?);
        Ok(())
    }

    fn write_key_package<R: traits::HashReference<V>, T: traits::KeyPackage<V>>(
        &self,
        reference: &R,
        package: &T,
    ) -> Result<(), OverlayError> {
        self.write(Label::KeyPackage, key(Label::KeyPackage, reference)?, package)
    }

    fn key_package<R: traits::HashReference<V>, T: traits::KeyPackage<V>>(
        &self,
        reference: &R,
    ) -> Result<Option<T>, OverlayError> {
        self.read(Label::KeyPackage, key(Label::KeyPackage, reference)?)
    }

    /// Does nothing: key packages are last-resort, serve until they are superseded, and are destroyed by
    /// [`retire_key_packages`](crate::retire_key_packages) alone. A Welcome that fails must not use one up.
    fn delete_key_package<R: traits::HashReference<V>>(&self, _reference: &R) -> Result<(), OverlayError> {
        Ok(())
    }

    fn write_signature_key_pair<K: traits::SignaturePublicKey<V>, T: traits::SignatureKeyPair<V>>(
        &self,
        id: &K,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.write(Label::SignatureKeyPair, key(Label::SignatureKeyPair, id)?, value)
    }

    fn signature_key_pair<K: traits::SignaturePublicKey<V>, T: traits::SignatureKeyPair<V>>(
        &self,
        id: &K,
    ) -> Result<Option<T>, OverlayError> {
        self.read(Label::SignatureKeyPair, key(Label::SignatureKeyPair, id)?)
    }

    fn delete_signature_key_pair<K: traits::SignaturePublicKey<V>>(
        &self,
        id: &K,
    ) -> Result<(), OverlayError> {
        self.delete(Label::SignatureKeyPair, key(Label::SignatureKeyPair, id)?);
        Ok(())
    }

    fn write_psk<K: traits::PskId<V>, T: traits::PskBundle<V>>(
        &self,
        id: &K,
        value: &T,
    ) -> Result<(), OverlayError> {
        self.write(Label::Psk, key(Label::Psk, id)?, value)
    }

    fn psk<T: traits::PskBundle<V>, K: traits::PskId<V>>(&self, id: &K) -> Result<Option<T>, OverlayError> {
        self.read(Label::Psk, key(Label::Psk, id)?)
    }

    fn delete_psk<K: traits::PskId<V>>(&self, id: &K) -> Result<(), OverlayError> {
        self.delete(Label::Psk, key(Label::Psk, id)?);
        Ok(())
    }

    fn write_encryption_key_pair<K: traits::EncryptionKey<V>, T: traits::HpkeKeyPair<V>>(
        &self,
        public: &K,
        pair: &T,
    ) -> Result<(), OverlayError> {
        self.write(Label::EncryptionKeyPair, key(Label::EncryptionKeyPair, public)?, pair)
    }

    fn encryption_key_pair<T: traits::HpkeKeyPair<V>, K: traits::EncryptionKey<V>>(
        &self,
        public: &K,
    ) -> Result<Option<T>, OverlayError> {
        self.read(Label::EncryptionKeyPair, key(Label::EncryptionKeyPair, public)?)
    }

    fn delete_encryption_key_pair<K: traits::EncryptionKey<V>>(
        &self,
        public: &K,
    ) -> Result<(), OverlayError> {
        self.delete(Label::EncryptionKeyPair, key(Label::EncryptionKeyPair, public)?);
        Ok(())
    }
}
