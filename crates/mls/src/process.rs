//! Processing one group message.

use openmls::component::ComponentData;
use openmls::framing::{ProcessedMessageContent, Sender};
use openmls::group::{QueuedProposal, UnresolvedAppDataCommit};
use openmls::prelude::LeafNodeIndex;

use crate::facts::accepted_kind;
use crate::input::{Header, Input, InputFailure, MessageType, header, parse};
use crate::policy::{check_floor, check_rules};
use crate::profile::RETAINED_EPOCHS;
use crate::{Member, MlsError, PolicyViolation, StagedCommit, Trial, dictionary};

impl InputFailure {
    pub(crate) fn library(error: impl std::fmt::Display) -> Self {
        Self::Library(error.to_string())
    }
}

impl Trial {
    /// What can be read of a group message without any key. Judges nothing but its form and its group.
    pub fn header(&self, data: &[u8]) -> Result<Header, InputFailure> {
        let header = header(&parse(data)?)?;
        if header.group == self.group() { Ok(header) } else { Err(InputFailure::WrongGroup) }
    }

    /// Processes one group message.
    ///
    /// A proposal is stored with the group; a commit is only staged, see [`Self::merge`]; an application message's
    /// secret is used up. Set a mark before, and roll back to it after a failure.
    pub fn process(&mut self, data: &[u8]) -> Result<Input, InputFailure> {
        let message = parse(data)?;
        let header = header(&message)?;
        self.admissible(&header)?;
        if header.kind != MessageType::Application {
            // What a handshake changes is dropped by loading the group as written down, so that must be up to date.
            self.write_secrets().map_err(InputFailure::library)?;
        }
        let processed = self.group.process_message(&self.provider, message)?;
        let Sender::Member(leaf) = *processed.sender() else {
            return Err(PolicyViolation::NotFromMember.into());
        };
        let credential = processed.credential().clone();
        match processed.into_content() {
            ProcessedMessageContent::ApplicationMessage(message) => {
                self.journal.message(data);
                let sender = self.leaf_in(leaf, header.epoch).map_err(InputFailure::library)?;
                let sender = sender.ok_or(InputFailure::Authentication)?;
                let named = Member::read(&credential, sender.installation.as_bytes());
                if named != Some(sender) {
                    return Err(InputFailure::Library("the sender's leaf is not known".into()));
                }
                Ok(Input::Application { sender, epoch: header.epoch, plaintext: message.into_bytes() })
            }
            ProcessedMessageContent::ProposalMessage(proposal) => self.proposal(leaf, *proposal),
            ProcessedMessageContent::StagedCommitMessage(staged) => {
                Ok(Input::Commit(self.admitted(self.staged(leaf, staged)?)?))
            }
            ProcessedMessageContent::UnresolvedAppDataCommit(commit) => {
                let staged = self.resolve(leaf, *commit)?;
                Ok(Input::Commit(self.admitted(staged)?))
            }
            ProcessedMessageContent::OwnPrivateMessage | ProcessedMessageContent::OwnPendingCommit => {
                Ok(Input::OwnMessage { epoch: header.epoch })
            }
            ProcessedMessageContent::ExternalJoinProposalMessage(_) => {
                Err(PolicyViolation::NotFromMember.into())
            }
        }
    }

    /// What the group's state and the header already decide. Epochs come first: OpenMLS has one error for the future
    /// and for the past.
    fn admissible(&self, header: &Header) -> Result<(), InputFailure> {
        if header.group != self.group() {
            return Err(InputFailure::WrongGroup);
        }
        if !self.is_active() {
            return Err(InputFailure::Evicted);
        }
        if let Some(floor) = self.unmet_floor().map_err(InputFailure::library)? {
            return Err(InputFailure::GroupVersion(floor));
        }
        let current = self.epoch();
        if header.epoch > current {
            return Err(InputFailure::FutureEpoch);
        }
        if header.epoch < self.join_epoch() {
            return Err(InputFailure::BeforeJoin);
        }
        match header.kind {
            _ if header.epoch == current => Ok(()),
            MessageType::Commit | MessageType::Proposal => Err(InputFailure::PastEpoch),
            MessageType::Application if current - header.epoch > RETAINED_EPOCHS => {
                Err(InputFailure::SecretsDiscarded)
            }
            MessageType::Application => Ok(()),
        }
    }

    fn proposal(&mut self, leaf: LeafNodeIndex, proposal: QueuedProposal) -> Result<Input, InputFailure> {
        accepted_kind(proposal.proposal())?;
        let sender = self.leaf_in(leaf, self.epoch()).map_err(InputFailure::library)?;
        let sender = sender.ok_or(InputFailure::Authentication)?;
        let reference = proposal.proposal_reference_ref().as_slice().to_vec();
        self.group.store_pending_proposal(&self.provider.overlay, proposal).map_err(InputFailure::library)?;
        self.journal.other_use();
        Ok(Input::Proposal { sender, reference })
    }

    /// The updates of a commit decide the dictionary of its epoch, and we interpret them ourselves.
    fn resolve(
        &self,
        leaf: LeafNodeIndex,
        commit: UnresolvedAppDataCommit,
    ) -> Result<StagedCommit, InputFailure> {
        let before = self.dictionary().map_err(InputFailure::library)?;
        let updated = dictionary::apply(before, commit.app_data_update_proposals())?;
        let mut updater = self.group.app_data_dictionary_updater();
        for (component, value) in updated.changes {
            match value {
                Some(value) => updater.set(ComponentData::from_parts(component, value.into())),
                None => updater.remove(&component),
            }
        }
        let changes = updater.changes();
        let staged = self.group.stage_app_data_commit(&self.provider, commit, changes)?;
        self.staged(leaf, Box::new(staged))
    }

    fn admitted(&mut self, staged: StagedCommit) -> Result<StagedCommit, InputFailure> {
        check_rules(staged.facts())?;
        check_floor(staged.facts())?;
        self.journal.other_use();
        Ok(staged)
    }

    /// Refuses to send from a state in which this installation must not.
    pub(crate) fn may_send(&self) -> Result<(), MlsError> {
        if !self.is_active() {
            return Err(MlsError::Inactive);
        }
        match self.unmet_floor()? {
            Some(floor) => Err(MlsError::GroupVersion(floor)),
            None => Ok(()),
        }
    }
}
