//! Reading from a cursor of the app's own.

use std::collections::VecDeque;

use highwater_store::{DatabaseId, Store, Version};
use tokio::sync::watch;

use crate::{
    DeliveryCursor, DeliveryError, HistoryPage, HistoryQuery, Item, MAX_LOCAL_READ_ROWS, Order, Selection,
    StoredMessage, history,
};

/// How many messages are read at once when nothing speaks for more.
const FEW: u32 = 4;

/// Hands out the eligible messages after a cursor, in delivery order, then those to come. It
/// neither reads nor moves D, and owns nothing: any number of them can be open (STR-100, PROC-034).
/// The app restarts it from the cursor of the last item it is done with.
#[derive(Debug)]
pub struct ReplayReader {
    store: Store,
    database: DatabaseId,
    selection: Selection,
    /// Everything at or below it was handed out or passed over.
    position: DeliveryCursor,
    ahead: Ahead,
    wakes: watch::Receiver<u64>,
}

impl ReplayReader {
    /// Starts strictly after `from`.
    ///
    /// # Errors
    /// [`DeliveryError::Cursor`] when `from` isn't of this database (PROC-033); when the database
    /// fails.
    pub async fn new(
        store: Store,
        from: DeliveryCursor,
        selection: Selection,
    ) -> Result<Self, DeliveryError> {
        let database = store.database_id();
        store.read("replay open", move |tx| Box::pin(async move { from.check(tx, database).await })).await?;
        let wakes = store.wakes();
        Ok(Self { store, database, selection, position: from, ahead: Ahead::default(), wakes })
    }

    /// The next item that is stored now, or `None`. Scope, filter and eligibility are those of this
    /// moment; a message that a filter excludes is passed over for good.
    ///
    /// Cancel-safe: a dropped call hands out nothing, and the next one finds the same item.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn next(&mut self) -> Result<Option<Item>, DeliveryError> {
        if let Some(as_of) = self.ahead.as_of()
            && self.store.version().await? != as_of
        {
            self.ahead.discard();
        }
        if let Some(message) = self.ahead.take(self.store.now_ns()) {
            return self.hand_out(message).map(Some);
        }
        self.read_ahead().await?;
        match self.ahead.take(self.store.now_ns()) {
            Some(message) => self.hand_out(message).map(Some),
            None => Ok(None),
        }
    }

    fn hand_out(&mut self, message: StoredMessage) -> Result<Item, DeliveryError> {
        let number = message
            .delivery_number
            .ok_or(DeliveryError::Damaged("an eligible message has no delivery number"))?;
        self.position = DeliveryCursor::after(self.database, number);
        Ok(Item { message, cursor: self.position })
    }

    async fn read_ahead(&mut self) -> Result<(), DeliveryError> {
        // First: what is committed in between makes a difference later.
        let as_of = self.store.version().await?;
        let (database, query) = (self.database, self.query());
        let page = self
            .store
            .read("replay next", move |tx| Box::pin(async move { history(tx, database, &query).await }))
            .await?;
        if page.messages.is_empty() {
            self.position = page.cursor;
        }
        self.ahead.put(page, as_of);
        Ok(())
    }

    fn query(&self) -> HistoryQuery {
        HistoryQuery {
            selection: self.selection.clone(),
            order: Order::OldestFirst,
            from: Some(self.position),
            limit: self.ahead.width,
        }
    }

    /// The next item, waiting for one to be stored if need be: by this process, by another or by an
    /// import, with or without a network (STR-101).
    ///
    /// Cancel-safe as [`ReplayReader::next`] is.
    ///
    /// # Errors
    /// When the database fails or is closed.
    pub async fn next_wait(&mut self) -> Result<Item, DeliveryError> {
        loop {
            // Marked seen before looking, so that a commit in between wakes again.
            self.wakes.borrow_and_update();
            if let Some(item) = self.next().await? {
                return Ok(item);
            }
            if self.wakes.changed().await.is_err() {
                return Err(DeliveryError::Store(highwater_store::StoreError::Closed));
            }
        }
    }
}

/// What was read and not handed out yet. It is worth something only while nobody commits: scope, filter and eligibility
/// are those of the handoff (PROC-025, PROC-046). As long as it is used up each time, more is read at once, up to a whole
/// local read; where everything has to be read again, little.
#[derive(Debug)]
struct Ahead {
    messages: VecDeque<StoredMessage>,
    as_of: Option<Version>,
    width: u32,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { messages: VecDeque::new(), as_of: None, width: FEW }
    }
}

impl Ahead {
    /// The version of the database that the messages are from, if there are any.
    fn as_of(&self) -> Option<Version> {
        self.as_of.filter(|_| !self.messages.is_empty())
    }

    fn put(&mut self, page: HistoryPage, as_of: Version) {
        self.messages = page.messages.into();
        self.as_of = Some(as_of);
    }

    /// The next one, unless its time is over by now.
    fn take(&mut self, now_ns: i64) -> Option<StoredMessage> {
        let gone = |message: &StoredMessage| message.expires_ns.is_some_and(|expires| expires <= now_ns);
        while self.messages.front().is_some_and(gone) {
            self.messages.pop_front();
        }
        let next = self.messages.pop_front()?;
        if self.messages.is_empty() {
            self.width = (self.width * 2).min(MAX_LOCAL_READ_ROWS);
        }
        Some(next)
    }

    fn discard(&mut self) {
        self.messages.clear();
        self.width = FEW;
    }
}
