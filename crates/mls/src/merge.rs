//! Commits between their validation and the epoch they lead to, and who sat in a leaf before.

use highwater_wire::SequenceId;
use openmls::prelude::LeafNodeIndex;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

use crate::facts::{self, Before, CommitFacts};
use crate::overlay::{Label, OverlayError};
use crate::profile::RETAINED_EPOCHS;
use crate::{Member, MlsError, Trial};

/// A commit that passed validation and isn't applied.
pub struct StagedCommit {
    facts: Box<CommitFacts>,
    removed: Vec<(u32, Member)>,
    staged: Option<Box<openmls::group::StagedCommit>>,
}

impl StagedCommit {
    /// What it does.
    pub fn facts(&self) -> &CommitFacts {
        &self.facts
    }
}

impl std::fmt::Debug for StagedCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StagedCommit").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// What applying a commit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// It removed this installation: the group is inactive.
    pub removed_self: bool,
}

/// Who sat in a leaf through an epoch, and left it then.
#[derive(Serialize, Deserialize)]
struct FormerLeaf {
    last_epoch: u64,
    leaf: u32,
    member: Member,
}

impl Trial {
    /// Who sat in a leaf in an epoch that is current or retained.
    pub(crate) fn leaf_in(&self, leaf: LeafNodeIndex, epoch: u64) -> Result<Option<Member>, OverlayError> {
        if epoch < self.epoch() {
            let former = self.former_leaves()?;
            let then = former.iter().filter(|former| former.leaf == leaf.u32() && former.last_epoch >= epoch);
            if let Some(former) = then.min_by_key(|former| former.last_epoch) {
                return Ok(Some(former.member));
            }
        }
        let member = self.group.member_at(leaf);
        Ok(member.and_then(|member| Member::read(&member.credential, &member.signature_key)))
    }

    fn former_leaves(&self) -> Result<Vec<FormerLeaf>, OverlayError> {
        Ok(self.provider.overlay.read(Label::FormerLeaves, Vec::new())?.unwrap_or_default())
    }

    pub(crate) fn staged(
        &self,
        committer: LeafNodeIndex,
        staged: Box<openmls::group::StagedCommit>,
    ) -> Result<StagedCommit, crate::InputFailure> {
        let mut read = self.read_commit(committer, &staged)?;
        read.staged = Some(staged);
        Ok(read)
    }

    fn read_commit(
        &self,
        committer: LeafNodeIndex,
        staged: &openmls::group::StagedCommit,
    ) -> Result<StagedCommit, crate::InputFailure> {
        let members = self.leaves();
        let dictionary = self.dictionary().map_err(crate::InputFailure::library)?;
        let facts = facts::read(&Before { dictionary, members: &members }, committer, staged)?;
        let removed = staged.remove_proposals().filter_map(|remove| {
            let leaf = remove.remove_proposal().removed();
            Some((leaf.u32(), *members.get(&leaf)?))
        });
        Ok(StagedCommit { removed: removed.collect(), facts: Box::new(facts), staged: None })
    }

    /// The own commit that waits for its echo, read back from storage with its facts like anyone's.
    ///
    /// # Errors
    /// [`MlsError::Damaged`] if what is stored is no commit this client could have made.
    pub fn own_pending_commit(&self) -> Result<Option<StagedCommit>, MlsError> {
        let Some(pending) = self.group.pending_commit() else {
            return Ok(None);
        };
        let own = self.group.own_leaf_index();
        let read = self.read_commit(own, pending);
        read.map(Some).map_err(|_| MlsError::Damaged("pending commit"))
    }

    /// Applies another member's commit. It ends the epoch and discards an own pending commit.
    ///
    /// # Errors
    /// After an error, roll back to the mark or drop the trial.
    pub fn merge(&mut self, staged: StagedCommit, at: SequenceId) -> Result<Merged, MlsError> {
        let commit = staged.staged.ok_or(MlsError::Damaged("an own commit where another's belongs"))?;
        let removed_self = commit.self_removed();
        self.remember(&staged.removed)?;
        self.group.merge_staged_commit(&self.provider, *commit).map_err(MlsError::library)?;
        tracing::debug!(group = ?self.group(), epoch = self.epoch(), %at, removed_self, "merged a commit");
        self.epoch_began();
        Ok(Merged { removed_self })
    }

    /// Applies the own pending commit, its echo being the commit of this epoch.
    ///
    /// # Errors
    /// After an error, roll back to the mark or drop the trial.
    pub fn merge_own(&mut self, own: StagedCommit, at: SequenceId) -> Result<Merged, MlsError> {
        if own.staged.is_some() || self.group.pending_commit().is_none() {
            return Err(MlsError::Damaged("no own commit is pending"));
        }
        self.remember(&own.removed)?;
        self.group.merge_pending_commit(&self.provider).map_err(MlsError::library)?;
        tracing::debug!(group = ?self.group(), epoch = self.epoch(), %at, "merged an own commit");
        self.epoch_began();
        Ok(Merged { removed_self: false })
    }

    fn epoch_began(&mut self) {
        self.components = OnceLock::new();
        self.journal.other_use();
    }

    /// Gives up the own pending commit, if there is one.
    pub fn clear_pending_commit(&mut self) -> Result<(), MlsError> {
        Ok(self.group.clear_pending_commit(&self.provider.overlay)?)
    }

    /// Messages of the ending epoch may still arrive after others moved into the leaves it empties.
    fn remember(&mut self, removed: &[(u32, Member)]) -> Result<(), MlsError> {
        let ending = self.epoch();
        let mut former = self.former_leaves()?;
        let before = former.len();
        former.retain(|former| former.last_epoch + RETAINED_EPOCHS > ending);
        if removed.is_empty() && former.len() == before {
            return Ok(());
        }
        let left = removed.iter().map(|(leaf, member)| FormerLeaf {
            last_epoch: ending,
            leaf: *leaf,
            member: *member,
        });
        former.extend(left);
        Ok(self.provider.overlay.write(Label::FormerLeaves, Vec::new(), &former)?)
    }
}
