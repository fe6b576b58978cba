//! Making conversations.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_delivery::ConversationKind;
use highwater_outbox::{CreateGroup, Outcome};
use highwater_store::WriteTx;
use highwater_sync::BARRIER_TIMEOUT;
use highwater_wire::InboxId;

use crate::{Client, Error, Group};

/// How long inboxes are looked up before a change that names them is queued anyway. The backend may be down.
const LOOK_UP: Duration = Duration::from_secs(3);

/// Describes a conversation to create. Made by [`Client::new_group`] and [`Client::new_dm`].
#[derive(Clone, Debug)]
pub struct NewGroup {
    client: Client,
    request: CreateGroup,
    within: Duration,
}

/// A conversation that was created here, and what became of the commit that brings in its members.
#[derive(Clone, Debug)]
pub struct NewConversation {
    /// The conversation. It exists, and can be sent to, whatever the outcome.
    pub group: Group,
    /// What became of bringing in its members by the time the call returned.
    pub outcome: Outcome,
}

impl NewGroup {
    pub(crate) fn new(client: Client, kind: ConversationKind) -> Self {
        let request = CreateGroup { kind, name: None, members: BTreeSet::new() };
        Self { client, request, within: BARRIER_TIMEOUT }
    }

    /// Its name, at most 100 bytes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.request.name = Some(name.into());
        self
    }

    /// Who else is to be in it.
    #[must_use]
    pub fn members(mut self, members: impl IntoIterator<Item = InboxId>) -> Self {
        self.request.members.extend(members);
        self
    }

    /// Bounds the wait for the members to come in: a minute unless told otherwise.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Creates it. While the backend can't be reached it is created all the same, and its members come in later.
    ///
    /// # Errors
    /// [`Error::UnknownInbox`] while the backend can be asked, [`Error::Outbox`] for a name that is too long or a DM
    /// with oneself; nothing is created then.
    pub async fn create(self) -> Result<NewConversation, Error> {
        let client = self.client;
        let mut others = self.request.members.clone();
        others.remove(&client.inbox_id());
        require_registered(&client, &others).await?;
        let request = self.request;
        let (id, intent) = client
            .store()
            .write("create group", move |tx: &mut WriteTx| {
                Box::pin(async move { highwater_outbox::create_group(tx, request).await })
            })
            .await?;
        let group = client.group(id).await?;
        let outcome = group.clone().within(self.within).deliver(intent).await?;
        // The record again: what was confirmed by now belongs to it.
        Ok(NewConversation { group: client.group(id).await?, outcome })
    }
}

/// Refuses inboxes that the backend proves not to exist. When it can't be asked, the change is checked where it is
/// prepared.
pub(crate) async fn require_registered(client: &Client, inboxes: &BTreeSet<InboxId>) -> Result<(), Error> {
    if inboxes.is_empty() || !client.has_backend() {
        return Ok(());
    }
    let engine = client.engine().await?;
    let until = tokio::time::Instant::now() + LOOK_UP;
    for inbox in inboxes {
        match tokio::time::timeout_at(until, engine.inbox_head(*inbox)).await {
            Ok(Ok(None)) => return Err(Error::UnknownInbox(*inbox)),
            Ok(Ok(Some(_))) => {}
            Ok(Err(error)) if error.is_retryable() => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}
