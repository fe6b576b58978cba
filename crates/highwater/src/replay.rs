//! Reading from a cursor of the app's own keeping.

use highwater_delivery::{Consent, ConversationType, DeliveryCursor, ReplayReader, Selection};
use highwater_sync::{CatchUp, ConnectionState};
use highwater_wire::GroupId;
use tokio::sync::watch;

use crate::ending::{CallbackError, CloseReason, Ending, Hooks};
use crate::live::Live;
use crate::selection::{network_scope, require_known};
use crate::{CatchUpChanges, Client, Error, Item, Subscription};

/// Describes a replay. Made by [`Client::replay`]. What was deleted or has disappeared is not handed out.
#[derive(Clone, Debug)]
pub struct Replay {
    client: Client,
    from: DeliveryCursor,
    selection: Selection,
    hooks: Hooks,
}

impl Replay {
    pub(crate) fn new(client: Client, from: DeliveryCursor) -> Self {
        Self { client, from, selection: Selection::all(), hooks: Hooks::default() }
    }

    /// These groups only. One that isn't known here yet is picked up when it becomes known.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = GroupId>) -> Self {
        self.selection.scope = highwater_delivery::Scope::Groups(groups.into_iter().collect());
        self
    }

    /// Only conversations with one of these consents, as they are at the handoff.
    #[must_use]
    pub fn consent(mut self, consent: impl IntoIterator<Item = Consent>) -> Self {
        self.selection = self.selection.with_consent(consent);
        self
    }

    /// Only groups, no DMs.
    #[must_use]
    pub fn only_groups(mut self) -> Self {
        self.selection = self.selection.of_kinds([ConversationType::Group]);
        self
    }

    /// Only DMs.
    #[must_use]
    pub fn only_dms(mut self) -> Self {
        self.selection = self.selection.of_kinds([ConversationType::Dm]);
        self
    }

    /// Has the error told that ends the reader, if one does. The pending read gets it as well.
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(std::sync::Arc::new(hook));
        self
    }

    /// Has the reader's end told, exactly once, with its reason.
    #[must_use]
    pub fn on_close(mut self, hook: impl Fn(&CloseReason) + Send + Sync + 'static) -> Self {
        self.hooks.close = Some(std::sync::Arc::new(hook));
        self
    }

    /// Opens a reader of what is selected strictly after the cursor: first what is stored, then what comes. With a backend,
    /// the selected groups are kept up to date while it lives.
    ///
    /// # Errors
    /// [`Error::Cursor`] for a cursor of another database.
    pub async fn open(self) -> Result<ReplayStream, Error> {
        self.start(true).await
    }

    /// Opens a reader of what is stored alone. It never touches the network and ends with `None`.
    ///
    /// # Errors
    /// [`Error::Cursor`] for a cursor of another database, [`Error::UnknownGroup`] for a named group that isn't stored
    /// here.
    pub async fn open_stored(self) -> Result<ReplayStream, Error> {
        require_known(&self.client, &self.selection).await?;
        self.start(false).await
    }

    /// Opens a reader and hands every item to `callback`, one at a time. An error or a panic ends it; the app goes on from
    /// the cursor of the last item it is done with. `closed` is called exactly once, with the reason.
    ///
    /// # Errors
    /// As [`open`](Self::open); `closed` is not called then.
    pub async fn on_message<F, R, C>(self, callback: F, closed: C) -> Result<Subscription, Error>
    where
        F: FnMut(Item) -> R + Send + 'static,
        R: Future<Output = Result<(), CallbackError>> + Send + 'static,
        C: FnOnce(CloseReason) + Send + 'static,
    {
        Ok(Subscription::start(self.open().await?, callback, closed))
    }

    async fn start(self, follows: bool) -> Result<ReplayStream, Error> {
        let mut live = Live::local(self.client, network_scope(&self.selection));
        let store = live.client.store().clone();
        let reader = ReplayReader::new(store, self.from, self.selection).await?;
        if follows {
            live.attach().await?;
        }
        Ok(ReplayStream { live, reader, follows, ending: Ending::new(self.hooks) })
    }
}

/// Hands out messages after a cursor. There can be any number of them, and none moves what the default consumer has
/// acknowledged; the app keeps the cursor of the last item it is done with.
#[derive(Debug)]
pub struct ReplayStream {
    live: Live,
    reader: ReplayReader,
    /// Whether it goes on with what comes after what is stored.
    follows: bool,
    ending: Ending,
}

impl ReplayStream {
    /// Waits for the next item. `None` at the end of what is stored, for a reader that stops there.
    ///
    /// Cancel-safe: a call that is dropped hands out nothing.
    ///
    /// # Errors
    /// Once, and the reader is over then: the database failed, the backend could not be reached for too long
    /// ([`Error::RecoveryExhausted`]), or refuses this client ([`Error::is_refused`]).
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        if self.ending.has_come() {
            return None;
        }
        let next = self.try_next().await;
        match next {
            Ok(Some(item)) => Some(Ok(item)),
            Ok(None) => {
                self.live.detach();
                self.ending.come(&CloseReason::Closed);
                None
            }
            Err(error) => {
                self.live.detach();
                Some(Err(self.ending.fail(error)))
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            self.live.looking();
            if let Some(item) = self.reader.next().await? {
                let message = self.live.client.read_message(item.message);
                return Ok(Some(Item { cursor: item.cursor, message }));
            }
            if !self.follows {
                return Ok(None);
            }
            self.live.changed().await?;
        }
    }

    /// A snapshot of how far the selected topics are, and on what connection (STR-025).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn catch_up(&self) -> Result<CatchUp, Error> {
        self.live.catch_up().await
    }

    /// [`catch_up`](Self::catch_up) now and after each change, until the reader ends.
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn catch_up_changes(&self) -> Result<CatchUpChanges, Error> {
        self.live.catch_up_changes(self.ending.watch()).await
    }

    /// The connection's state, now and after each change (PROC-044).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn connection_state(&self) -> Result<watch::Receiver<ConnectionState>, Error> {
        self.live.connection_state().await
    }

    /// Ends the reader.
    pub fn close(self) {
        self.end(&CloseReason::Closed);
    }

    pub(crate) fn end(mut self, reason: &CloseReason) {
        self.live.detach();
        self.ending.come(reason);
    }
}
