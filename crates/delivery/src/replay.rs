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
        loop {
            let now = self.store.version().await?;
            self.ahead.keep_if(now);
            if let Some(message) = self.ahead.take(self.store.now_ns()) {
                return self.hand_out(message).map(Some);
            }
            if let Some(end) = self.ahead.end {
                self.position = end;
                return Ok(None);
            }
            self.read_ahead(now).await?;
        }
    }

    fn hand_out(&mut self, message: StoredMessage) -> Result<Item, DeliveryError> {
        let number = message
            .delivery_number
            .ok_or(DeliveryError::Damaged("an eligible message has no delivery number"))?;
        self.position = DeliveryCursor::after(self.database, number);
        Ok(Item { message, cursor: self.position })
    }

    /// `as_of` is from before the read: what is committed in between has the page read again.
    async fn read_ahead(&mut self, as_of: Version) -> Result<(), DeliveryError> {
        let database = self.database;
        let query = HistoryQuery {
            selection: self.selection.clone(),
            order: Order::OldestFirst,
            from: Some(self.position),
            limit: self.ahead.width,
        };
        let page = self
            .store
            .read("replay next", move |tx| Box::pin(async move { history(tx, database, &query).await }))
            .await?;
        self.ahead.put(page, as_of);
        Ok(())
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
    /// Where the messages end, if nothing comes after them.
    end: Option<DeliveryCursor>,
    as_of: Option<Version>,
    width: u32,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { messages: VecDeque::new(), end: None, as_of: None, width: FEW }
    }
}

impl Ahead {
    fn put(&mut self, page: HistoryPage, as_of: Version) {
        self.end = page.more.is_none().then_some(page.cursor);
        self.messages = page.messages.into();
        self.as_of = Some(as_of);
    }

    /// Discards what is from another state of the database than this.
    fn keep_if(&mut self, now: Version) {
        if self.as_of == Some(now) {
            return;
        }
        if !self.messages.is_empty() {
            self.width = FEW;
            self.messages.clear();
        }
        self.end = None;
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
}
