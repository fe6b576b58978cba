//! Making a group: it exists here at once, and its members come in with its first commit.

use std::collections::{BTreeMap, BTreeSet};

use highwater_delivery::{Consent, Conversation, ConversationKind, ConversationState};
use highwater_mls::{Components, MembershipEntry, Trial};
use highwater_store::WriteTx;
use highwater_wire::{GroupId, InboxId};

use crate::intent::{ChangeRequest, IntentId};
use crate::{OutboxError, rows};

/// A group to make.
#[derive(Clone, Debug)]
pub struct CreateGroup {
    /// A group of any size, or a conversation of exactly two inboxes.
    pub kind: ConversationKind,
    /// Its name, at most [`MAX_NAME_BYTES`](highwater_mls::MAX_NAME_BYTES).
    pub name: Option<String>,
    /// Who else is to be in it. For a DM exactly the peer.
    pub members: BTreeSet<InboxId>,
}

/// Creates a group that holds only this installation, and queues the commit that brings in the others, this inbox's
/// other installations included.
///
/// # Errors
/// [`OutboxError::Refused`] for a name over its limit or a DM with oneself.
pub async fn create_group(
    tx: &mut WriteTx,
    request: CreateGroup,
) -> Result<(GroupId, IntentId), OutboxError> {
    let me = rows::registered_installation(tx).await?;
    let mut members = request.members;
    members.remove(&me.inbox);
    let components = initial_components(me.inbox, &request.kind, request.name.as_deref())?;
    let group = GroupId::from_bytes(rand::random());
    let mut trial = Trial::create(tx, group, components).await?;
    trial.store(tx).await?;
    let now = tx.now_ns();
    highwater_delivery::put_conversation(
        tx,
        Conversation {
            group,
            kind: request.kind,
            state: ConversationState::Active,
            consent: Consent::Allowed,
            name: request.name,
            created_ns: now,
            adder: None,
            discovered_by: None,
        },
    )
    .await?;
    // Even alone, the creator's entry must be raised from its initial zero, and other installations of its inbox
    // belong in the group.
    let first = if members.is_empty() {
        ChangeRequest::RefreshMembership(BTreeSet::from([me.inbox]))
    } else {
        ChangeRequest::AddMembers(members)
    };
    let intent = rows::insert_change(tx, group, &first).await?;
    Ok((group, intent))
}

fn initial_components(
    creator: InboxId,
    kind: &ConversationKind,
    name: Option<&str>,
) -> Result<Components, OutboxError> {
    if name.is_some_and(|name| name.len() > highwater_mls::MAX_NAME_BYTES) {
        return Err(OutboxError::Refused(format!(
            "the name is longer than {} bytes",
            highwater_mls::MAX_NAME_BYTES
        )));
    }
    let membership = BTreeMap::from([(creator, MembershipEntry { sequence_id: 0, failed: BTreeSet::new() })]);
    let (conversation, dm_pair, super_admins) = match kind {
        ConversationKind::Group => (highwater_mls::ConversationType::Group, None, BTreeSet::from([creator])),
        ConversationKind::Dm { peer } if *peer == creator => {
            return Err(OutboxError::Refused("a DM needs a peer other than oneself".into()));
        }
        ConversationKind::Dm { peer } => {
            (highwater_mls::ConversationType::Dm, Some(BTreeSet::from([creator, *peer])), BTreeSet::new())
        }
    };
    Ok(Components {
        super_admins,
        membership,
        name: name.map(str::to_owned).unwrap_or_default(),
        conversation,
        creator,
        dm_pair,
        ..Components::empty(creator)
    })
}
