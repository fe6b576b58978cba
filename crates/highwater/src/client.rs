//! The client: one installation over one database.

use std::sync::Arc;
use std::time::Duration;

use highwater_delivery::{ConversationKind, DeliveryCursor, StoredMessage};
use highwater_store::{DatabaseId, ReadTx, Store};
use highwater_sync::{BARRIER_TIMEOUT, CatchUp, Engine, Scope, SyncRequest};
use highwater_wire::{GroupId, InboxId, InstallationKey, MessageId};
use tokio::time::Instant;

use crate::content::Codecs;
use crate::disappearing::Disappearing;
use crate::network::Network;
use crate::registration::Me;
use crate::{ClientBuilder, Conversations, Error, Group, History, Message, Messages, NewGroup, Replay};

/// How long after a wake the settling of the outbox is looked at again anyway.
const SETTLE_CHECK: Duration = Duration::from_millis(200);

/// One installation over one database. Clones share it.
///
/// Dropping every clone ends the background work; [`Client::close`] also waits for it and for the database's writes.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    network: Arc<Network>,
    me: Me,
    codecs: Codecs,
    _disappearing: Disappearing,
}

/// What an explicit sync did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncReport {
    /// The topics that had a target, each processed through it.
    pub topics: usize,
    /// Groups that invitations received up to the start of the sync opened.
    pub discovered: usize,
    /// Own messages and changes that are still on their way.
    pub unsettled: u64,
}

impl Client {
    /// Starts describing a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn new(store: Store, network: Arc<Network>, me: Me, codecs: Codecs) -> Self {
        let _disappearing = Disappearing::start(store.clone());
        Self { inner: Arc::new(Inner { store, network, me, codecs, _disappearing }) }
    }

    /// A stored message as the app gets it.
    pub(crate) fn read_message(&self, stored: StoredMessage) -> Message {
        Message::new(self.database_id(), &self.inner.codecs, stored)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn has_backend(&self) -> bool {
        self.inner.network.has_backend()
    }

    pub(crate) async fn engine(&self) -> Result<Engine, Error> {
        self.inner.network.engine().await
    }

    /// The inbox this installation speaks for.
    pub fn inbox_id(&self) -> InboxId {
        self.inner.me.inbox
    }

    /// This installation. Its hex form is for places that must spell it out ([`InstallationKey::to_hex`]).
    pub fn installation_id(&self) -> InstallationKey {
        self.inner.me.installation
    }

    /// The database's identity, which its cursors carry.
    pub fn database_id(&self) -> DatabaseId {
        self.inner.store.database_id()
    }

    /// The cursor before every message of this database.
    pub fn beginning(&self) -> DeliveryCursor {
        DeliveryCursor::beginning(self.database_id())
    }

    /// Publishes what the installation's registration still owes, its key package included. There is nothing to do after
    /// a successful [`open`](ClientBuilder::open) with a signer, unless that was cut short before the key package was
    /// out.
    pub async fn register(&self) -> Result<(), Error> {
        self.engine().await?.register().await.map_err(Error::Registration)
    }

    /// Creates a group with these members besides this inbox, and waits until they are in it or that is queued.
    ///
    /// # Errors
    /// [`Error::UnknownInbox`] while the backend can be asked; nothing is created then.
    pub async fn create_group(&self, members: impl IntoIterator<Item = InboxId>) -> Result<Group, Error> {
        Ok(self.new_group().members(members).create().await?.group)
    }

    /// Creates a conversation with one other inbox.
    ///
    /// # Errors
    /// As [`create_group`](Self::create_group).
    pub async fn create_dm(&self, peer: InboxId) -> Result<Group, Error> {
        Ok(self.new_dm(peer).create().await?.group)
    }

    /// Starts describing a group to create.
    pub fn new_group(&self) -> NewGroup {
        NewGroup::new(self.clone(), ConversationKind::Group)
    }

    /// Starts describing a conversation with one other inbox.
    pub fn new_dm(&self, peer: InboxId) -> NewGroup {
        NewGroup::new(self.clone(), ConversationKind::Dm { peer }).members([peer])
    }

    /// Every conversation this database knows, in no particular order.
    pub async fn groups(&self) -> Result<Vec<Group>, Error> {
        let found = self
            .store()
            .read("conversations", |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::conversations(tx).await })
            })
            .await?;
        Ok(found.into_iter().map(|found| Group::new(self.clone(), found)).collect())
    }

    /// One conversation.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`].
    pub async fn group(&self, id: GroupId) -> Result<Group, Error> {
        let found = self
            .store()
            .read("conversation", move |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::conversation(tx, id).await })
            })
            .await?;
        found.map(|found| Group::new(self.clone(), found)).ok_or(Error::UnknownGroup(id))
    }

    /// One message, deliverable or not.
    pub async fn message(&self, id: MessageId) -> Result<Option<Message>, Error> {
        let found = self
            .store()
            .read("message", move |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::message(tx, id).await })
            })
            .await?;
        Ok(found.map(|found| self.read_message(found)))
    }

    /// Starts describing a reader of messages.
    pub fn messages(&self) -> Messages {
        Messages::new(self.clone())
    }

    /// Starts describing a reader from a cursor of the app's own keeping. It neither reads nor moves what the default
    /// consumer has acknowledged.
    pub fn replay(&self, from: DeliveryCursor) -> Replay {
        Replay::new(self.clone(), from)
    }

    /// Starts describing a reader of conversations that become known from now on.
    pub fn conversations(&self) -> Conversations {
        Conversations::new(self.clone())
    }

    /// Starts describing a page of stored messages.
    pub fn history(&self) -> History {
        History::new(self.clone())
    }

    /// Processes everything up to the backend's heads of this moment, within a minute; what this client owes goes out
    /// first.
    ///
    /// # Errors
    /// [`Error::obligations`] names what an incomplete or blocked run left. Dropping the future leaves everything
    /// committed as it is.
    pub async fn sync(&self) -> Result<SyncReport, Error> {
        self.sync_within(BARRIER_TIMEOUT).await
    }

    /// [`sync`](Self::sync) with a deadline of one's own.
    pub async fn sync_within(&self, within: Duration) -> Result<SyncReport, Error> {
        let deadline = Instant::now() + within;
        let engine = self.engine().await?;
        let synced = engine.sync(SyncRequest { within }).await?;
        let unsettled = self.settle(&engine, deadline).await?;
        Ok(SyncReport { topics: synced.topics, discovered: synced.discovered, unsettled })
    }

    /// Runs publishing rounds until everything this client asked for is settled, a round fails, or the deadline comes.
    /// Invitations are sealed only when a commit's echo was applied, so one round is not always enough.
    async fn settle(&self, engine: &Engine, deadline: Instant) -> Result<u64, Error> {
        let mut wakes = self.store().wakes();
        loop {
            wakes.mark_unchanged();
            let unsettled = self.unsettled().await?;
            if unsettled == 0 || Instant::now() >= deadline || engine.register().await.is_err() {
                return Ok(unsettled);
            }
            let next = deadline.min(Instant::now() + SETTLE_CHECK);
            tokio::select! {
                changed = wakes.changed() => changed.map_err(|_| Error::Closed)?,
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// How many of this client's messages and changes are not settled.
    pub async fn unsettled(&self) -> Result<u64, Error> {
        Ok(self
            .store()
            .read("unsettled", |tx: &mut ReadTx| {
                Box::pin(async move { highwater_outbox::unresolved_intents(tx).await })
            })
            .await?)
    }

    /// A snapshot of how far every conversation is, against the connection that this client holds.
    pub async fn catch_up(&self) -> Result<CatchUp, Error> {
        Ok(self.engine().await?.catch_up(&Scope::AllGroups).await?)
    }

    /// Ends the background work, waits for it and for the database's writes, and closes the database. Every other clone
    /// fails from then on. Calling it again is fine. Don't drop the future: the database then closes with the process.
    pub async fn close(&self) {
        self.inner.network.shutdown().await;
        self.inner.store.close().await;
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("me", &self.inner.me).finish_non_exhaustive()
    }
}
