//! Which topics the scopes of this moment come to, by what is stored.

use std::collections::BTreeSet;

use highwater_delivery::ConversationState;
use highwater_store::{ReadTx, Version};
use highwater_wire::Topic;

use crate::engine::Shared;
use crate::interests::desired;
use crate::{Scope, SyncError};

/// The topics of some scopes in one snapshot.
pub(crate) async fn topics_of(tx: &mut ReadTx, scopes: &[Scope]) -> Result<BTreeSet<Topic>, SyncError> {
    let active = highwater_delivery::conversations(tx)
        .await?
        .into_iter()
        .filter(|found| found.state == ConversationState::Active)
        .map(|found| found.group)
        .collect();
    let welcome = highwater_mls::installation(tx).await?.map(|found| Topic::welcome(found.key));
    Ok(desired(scopes, &active, welcome))
}

/// What a receiver should have. It asks ten times a second, so conversations are listed only after somebody has
/// committed or an interest has changed.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    as_of: Option<(Version, u64)>,
    topics: BTreeSet<Topic>,
}

impl Desired {
    pub(crate) async fn now(&mut self, shared: &Shared) -> Result<&BTreeSet<Topic>, SyncError> {
        // From before the look: what changes in between has it looked at again.
        let interests = *shared.interests.watch().borrow();
        let as_of = Some((shared.store.version().await?, interests));
        if self.as_of != as_of {
            let scopes = shared.interests.scopes();
            self.topics = shared
                .store
                .read("interests", move |tx| Box::pin(async move { topics_of(tx, &scopes).await }))
                .await?;
            self.as_of = as_of;
        }
        Ok(&self.topics)
    }
}
