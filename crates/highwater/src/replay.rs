//! Reading from a cursor of the app's own keeping.

use highwater_delivery::{DeliveryCursor, ReplayReader, Selection};
use highwater_sync::Interest;
use highwater_wire::GroupId;
use tokio::sync::watch;

use crate::selection::{network_scope, require_known};
use crate::stream::{exhausted, interest};
use crate::{Client, Error, Item, Message};

/// Describes a replay. Made by [`Client::replay`].
#[derive(Clone, Debug)]
pub struct Replay {
    client: Client,
    from: DeliveryCursor,
    selection: Selection,
}

impl Replay {
    pub(crate) fn new(client: Client, from: DeliveryCursor) -> Self {
        Self { client, from, selection: Selection::all() }
    }

    /// These groups only.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = GroupId>) -> Self {
        self.selection.scope = highwater_delivery::Scope::Groups(groups.into_iter().collect());
        self
    }

    /// Opens a reader of everything strictly after the cursor: first what is stored, then what comes. With a backend,
    /// the selected groups are kept up to date while it lives.
    ///
    /// # Errors
    /// [`Error::Delivery`] for a cursor of another database.
    pub async fn open(self) -> Result<ReplayStream, Error> {
        self.start(true).await
    }

    /// Opens a reader of what is stored alone. It never touches the network and ends with `None`.
    ///
    /// # Errors
    /// [`Error::Delivery`] for a cursor of another database.
    pub async fn open_stored(self) -> Result<ReplayStream, Error> {
        self.start(false).await
    }

    async fn start(self, live: bool) -> Result<ReplayStream, Error> {
        require_known(&self.client, &self.selection).await?;
        let scope = network_scope(&self.selection);
        let wakes = self.client.store().wakes();
        let store = self.client.store().clone();
        let reader = ReplayReader::new(store, self.from, self.selection).await?;
        let interest = if live { interest(&self.client, &scope).await? } else { None };
        Ok(ReplayStream { client: self.client, reader, interest, wakes, live, ended: false })
    }
}

/// Hands out messages after a cursor. There can be any number of them, and none moves what the default consumer has
/// acknowledged; the app keeps the cursor of the last item it is done with.
#[derive(Debug)]
pub struct ReplayStream {
    client: Client,
    reader: ReplayReader,
    interest: Option<Interest>,
    wakes: watch::Receiver<u64>,
    live: bool,
    /// An error was returned: the reader is over (PROC-040).
    ended: bool,
}

impl ReplayStream {
    /// Waits for the next item. `None` at the end of what is stored, for a reader that stops there.
    ///
    /// Cancel-safe: a call that is dropped hands out nothing.
    ///
    /// # Errors
    /// Once, and the reader is over then: the database failed, or the backend could not be reached for too long.
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        if self.ended {
            return None;
        }
        let next = self.try_next().await;
        if next.is_err() {
            self.ended = true;
            self.interest = None;
        }
        next.transpose()
    }

    async fn try_next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            self.wakes.mark_unchanged();
            if let Some(item) = self.reader.next().await? {
                let database = self.client.database_id();
                return Ok(Some(Item { cursor: item.cursor, message: Message::new(database, item.message) }));
            }
            if !self.live {
                return Ok(None);
            }
            tokio::select! {
                changed = self.wakes.changed() => changed.map_err(|_| Error::Closed)?,
                () = exhausted(&mut self.interest) => return Err(Error::RecoveryExhausted),
            }
        }
    }
}
