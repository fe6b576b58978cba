//! One conversation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_delivery::{Consent, Conversation, ConversationKind, ConversationState};
use highwater_outbox::{ChangeRequest, IntentId, Outcome};
use highwater_store::{ReadTx, WriteTx};
use highwater_sync::BARRIER_TIMEOUT;
use highwater_wire::{GroupId, InboxId, MessageId};

use crate::{Client, Error, Message, Sent, change, content, text_content};

/// A conversation, with its record as it was when this value was made.
///
/// What is sent and changed here is durable before the call returns. A call that waits returns [`Outcome::Queued`] as
/// soon as the backend can't be reached; the same bytes go out with the next connection. Dropping such a call changes
/// nothing about what it queued.
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    record: Conversation,
    within: Duration,
}

/// A member inbox of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The inbox.
    pub inbox_id: InboxId,
    /// How many of its installations are in the group.
    pub installations: usize,
    /// Whether it may change the group's admins.
    pub is_super_admin: bool,
    /// Whether it may take members out.
    pub is_admin: bool,
}

impl Group {
    pub(crate) fn new(client: Client, record: Conversation) -> Self {
        Self { client, record, within: BARRIER_TIMEOUT }
    }

    /// Bounds the waits of calls on this value: a minute unless told otherwise.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Its id.
    pub fn id(&self) -> GroupId {
        self.record.group
    }

    /// Its name.
    pub fn name(&self) -> Option<&str> {
        self.record.name.as_deref().filter(|name| !name.is_empty())
    }

    /// A group, or two people.
    pub fn kind(&self) -> ConversationKind {
        self.record.kind
    }

    /// Whether this installation takes part in it.
    pub fn state(&self) -> ConversationState {
        self.record.state
    }

    /// What the person said about it.
    pub fn consent(&self) -> Consent {
        self.record.consent
    }

    /// Who added this installation; absent for a group it created.
    pub fn added_by(&self) -> Option<InboxId> {
        self.record.adder
    }

    /// Records what the person said about it. Filters later handoffs, and nothing else.
    pub async fn set_consent(&self, consent: Consent) -> Result<(), Error> {
        let id = self.id();
        Ok(self
            .client
            .store()
            .write("set consent", move |tx: &mut WriteTx| {
                Box::pin(async move { highwater_delivery::set_consent(tx, id, consent).await })
            })
            .await?)
    }

    /// Sends an encoded `EncodedContent` and waits for what becomes of it. The same key and content give the same
    /// message, never a second one; without a key each call is a message.
    ///
    /// # Errors
    /// [`Error::Outbox`] for a group this installation is not in any more, and [`Error::Content`] for bytes that are no
    /// content. Nothing is stored then.
    pub async fn send(&self, content: Vec<u8>, key: Option<String>) -> Result<Sent, Error> {
        let (intent, message_id) = self.store_message(content, key).await?;
        let outcome = self.deliver(intent).await?;
        // A confirmed message has its place in the delivery order; no other has one (PROC-050).
        let cursor = match outcome {
            Outcome::Confirmed { .. } => {
                self.client.message(message_id).await?.and_then(|message| message.cursor)
            }
            _ => None,
        };
        Ok(Sent { message_id, outcome, cursor })
    }

    /// Queues text and returns at once with the message's id. It goes out as soon as there is a connection.
    ///
    /// # Errors
    /// As [`send_text`](Self::send_text).
    pub async fn queue_text(&self, text: &str) -> Result<MessageId, Error> {
        self.queue(text_content(text), None).await
    }

    /// Queues an encoded `EncodedContent` and returns at once with the message's id.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn queue(&self, content: Vec<u8>, key: Option<String>) -> Result<MessageId, Error> {
        let (_, message_id) = self.store_message(content, key).await?;
        if self.client.has_backend() {
            self.client.engine().await?.kick();
        }
        Ok(message_id)
    }

    async fn store_message(
        &self,
        content: Vec<u8>,
        key: Option<String>,
    ) -> Result<(IntentId, MessageId), Error> {
        content::check(&content)?;
        let id = self.id();
        Ok(self
            .client
            .store()
            .write("queue message", move |tx: &mut WriteTx| {
                Box::pin(async move { highwater_outbox::queue_message(tx, id, content, key).await })
            })
            .await?)
    }

    /// Brings inboxes in, with every installation they have.
    ///
    /// # Errors
    /// [`Error::UnknownInbox`] while the backend can be asked; nothing is queued then.
    pub async fn add_members(&self, members: impl IntoIterator<Item = InboxId>) -> Result<Outcome, Error> {
        let members = named(members)?;
        change::require_registered(&self.client, &members).await?;
        self.change(ChangeRequest::AddMembers(members)).await
    }

    /// Takes inboxes out. Only admins may.
    ///
    /// # Errors
    /// [`Error::NotAMember`] for an inbox that isn't in the group, and isn't about to be by something still queued.
    pub async fn remove_members(&self, members: impl IntoIterator<Item = InboxId>) -> Result<Outcome, Error> {
        let members = named(members)?;
        self.require_members(&members).await?;
        self.change(ChangeRequest::RemoveMembers(members)).await
    }

    /// Sets the group's name, at most 100 bytes.
    pub async fn set_name(&self, name: impl Into<String>) -> Result<Outcome, Error> {
        self.change(ChangeRequest::SetName(name.into())).await
    }

    /// Sets the group's description, at most 1000 bytes.
    pub async fn set_description(&self, text: impl Into<String>) -> Result<Outcome, Error> {
        self.change(ChangeRequest::SetDescription(text.into())).await
    }

    async fn change(&self, request: ChangeRequest) -> Result<Outcome, Error> {
        let id = self.id();
        let intent = self
            .client
            .store()
            .write("queue change", move |tx: &mut WriteTx| {
                Box::pin(async move { highwater_outbox::queue_change(tx, id, request).await })
            })
            .await?;
        self.deliver(intent).await
    }

    pub(crate) async fn deliver(&self, intent: IntentId) -> Result<Outcome, Error> {
        if !self.client.has_backend() {
            return Ok(Outcome::Queued);
        }
        Ok(self.client.engine().await?.deliver(self.id(), intent, self.within).await?)
    }

    /// Its member inboxes, as of the last applied commit.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let id = self.id();
        let (components, leaves) = self
            .client
            .store()
            .write("members", move |tx: &mut WriteTx| {
                Box::pin(async move {
                    let trial = highwater_mls::Trial::load(tx, id).await?;
                    let trial = trial.ok_or(Error::UnknownGroup(id))?;
                    Ok::<_, Error>((trial.components()?, trial.members()))
                })
            })
            .await?;
        let mut installations: BTreeMap<InboxId, usize> =
            components.membership.keys().map(|inbox| (*inbox, 0)).collect();
        for leaf in leaves {
            *installations.entry(leaf.inbox).or_default() += 1;
        }
        Ok(installations
            .into_iter()
            .map(|(inbox_id, installations)| Member {
                inbox_id,
                installations,
                is_super_admin: components.super_admins.contains(&inbox_id),
                is_admin: components.admins.contains(&inbox_id),
            })
            .collect())
    }

    async fn require_members(&self, asked: &BTreeSet<InboxId>) -> Result<(), Error> {
        let id = self.id();
        let busy = self
            .client
            .store()
            .read("groups with work", |tx: &mut ReadTx| {
                Box::pin(async move { highwater_outbox::groups_with_work(tx).await })
            })
            .await?
            .contains(&id);
        if busy {
            return Ok(());
        }
        let members: BTreeSet<_> = self.members().await?.into_iter().map(|member| member.inbox_id).collect();
        match asked.difference(&members).next() {
            Some(inbox) => Err(Error::NotAMember { inbox: *inbox, group: id }),
            None => Ok(()),
        }
    }

    /// All its messages that are not accepted (yet): queued ones, and those that failed, in the order they were queued.
    /// There may be any number of them, with all their content: [`unpublished_page`](Self::unpublished_page) gives a part.
    pub async fn unpublished(&self) -> Result<Vec<Message>, Error> {
        let mut all: Vec<Message> = Vec::new();
        loop {
            let page = self.unpublished_page(all.last().map(|message| message.id)).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// The next of its messages that are not accepted (yet), behind `after`, the last one of the page before, or from the
    /// first one. A page is never longer than 128 messages or 16 MiB, but for a single message that is; an empty one is the
    /// end. What is accepted meanwhile is on no later page.
    ///
    /// # Errors
    /// [`Error::Delivery`] when no message `after` is stored here.
    pub async fn unpublished_page(&self, after: Option<MessageId>) -> Result<Vec<Message>, Error> {
        let id = self.id();
        let found = self
            .client
            .store()
            .read("unpublished", move |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::unpublished(tx, id, after).await })
            })
            .await?;
        Ok(found.into_iter().map(|stored| self.client.read_message(stored)).collect())
    }
}

fn named(members: impl IntoIterator<Item = InboxId>) -> Result<BTreeSet<InboxId>, Error> {
    let members: BTreeSet<_> = members.into_iter().collect();
    if members.is_empty() { Err(Error::NoMembers) } else { Ok(members) }
}
