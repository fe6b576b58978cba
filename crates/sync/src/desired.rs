//! Which topics the scopes of this moment come to, by what is stored.

use std::collections::BTreeSet;

use highwater_delivery::ConversationsRevision;
use highwater_store::{ReadTx, Version};
use highwater_wire::Topic;

use crate::engine::Shared;
use crate::interests::desired;
use crate::{Scope, SyncError};

/// The topics of some scopes in one snapshot.
pub(crate) async fn topics_of(tx: &mut ReadTx, scopes: &[Scope]) -> Result<BTreeSet<Topic>, SyncError> {
    let active = highwater_delivery::active_groups(tx).await?;
    Ok(desired(scopes, &active, welcome(tx).await?))
}

/// This installation's Welcomes, once there is an installation.
pub(crate) async fn welcome(tx: &mut ReadTx) -> Result<Option<Topic>, SyncError> {
    Ok(highwater_mls::installation(tx).await?.map(|found| Topic::welcome(found.key)))
}

/// What a receiver should have. It asks ten times a second, so the database is looked at only after somebody has
/// committed or an interest has changed, and conversations are listed only when that has changed one of them.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    as_of: Option<(Version, u64)>,
    made_of: Option<MadeOf>,
    topics: BTreeSet<Topic>,
}

/// What the topics follow from. The same comes to the same topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeOf {
    interests: u64,
    conversations: ConversationsRevision,
    welcome: Option<Topic>,
}

impl Desired {
    pub(crate) async fn now(&mut self, shared: &Shared) -> Result<&BTreeSet<Topic>, SyncError> {
        // From before the look: what changes in between has it looked at again.
        let interests = *shared.interests.watch().borrow();
        let as_of = Some((shared.store.version().await?, interests));
        if self.as_of != as_of {
            if let Some((made_of, topics)) = self.look(shared, interests).await? {
                self.made_of = Some(made_of);
                self.topics = topics;
            }
            self.as_of = as_of;
        }
        Ok(&self.topics)
    }

    /// The topics now, unless they are those of before.
    async fn look(
        &self,
        shared: &Shared,
        interests: u64,
    ) -> Result<Option<(MadeOf, BTreeSet<Topic>)>, SyncError> {
        let scopes = shared.interests.scopes();
        let before = self.made_of;
        shared
            .store
            .read("interests", move |tx| {
                Box::pin(async move {
                    let conversations = highwater_delivery::conversations_revision(tx).await?;
                    let now = MadeOf { interests, conversations, welcome: welcome(tx).await? };
                    if before == Some(now) {
                        return Ok(None);
                    }
                    Ok(Some((now, topics_of(tx, &scopes).await?)))
                })
            })
            .await
    }
}
