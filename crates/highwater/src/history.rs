//! Pages of what is stored.

use highwater_delivery::{DeliveryCursor, HistoryQuery, Order};
use highwater_store::ReadTx;
use highwater_wire::GroupId;

use crate::{Client, Error, Message};

/// Describes a page of stored messages. Made by [`Client::history`]; the newest messages of every group unless told
/// otherwise.
#[derive(Clone, Debug)]
pub struct History {
    client: Client,
    query: HistoryQuery,
}

/// Messages of one snapshot of the database.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// The messages, in the order asked for.
    pub messages: Vec<Message>,
    /// Where the next page starts ([`History::from`]). Absent on the last.
    pub more: Option<DeliveryCursor>,
    /// A [`replay`](Client::replay) from here misses nothing and repeats nothing. Reading the newest first, it is the
    /// end of what this page's snapshot held: keep that of the first page. Reading the oldest first, keep that of the
    /// last page.
    pub cursor: DeliveryCursor,
}

impl History {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, query: HistoryQuery::default() }
    }

    /// These groups only.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = GroupId>) -> Self {
        self.query.selection.scope = highwater_delivery::Scope::Groups(groups.into_iter().collect());
        self
    }

    /// From the beginning forward, instead of from the end back.
    #[must_use]
    pub fn oldest_first(mut self) -> Self {
        self.query.order = Order::OldestFirst;
        self
    }

    /// At most so many messages. A page is never longer than 128 messages or 16 MiB.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.query.limit = limit;
        self
    }

    /// Goes on where an earlier page ended ([`HistoryPage::more`]).
    #[must_use]
    pub fn from(mut self, more: DeliveryCursor) -> Self {
        self.query.from = Some(more);
        self
    }

    /// Reads the page.
    ///
    /// # Errors
    /// [`Error::UnknownGroup`]; [`Error::Delivery`] for a cursor of another database.
    pub async fn page(self) -> Result<HistoryPage, Error> {
        crate::selection::require_known(&self.client, &self.query.selection).await?;
        let database = self.client.database_id();
        let query = self.query;
        let page = self
            .client
            .store()
            .read("history", move |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::history(tx, database, &query).await })
            })
            .await?;
        Ok(HistoryPage {
            messages: page.messages.into_iter().map(|stored| self.client.read_message(stored)).collect(),
            more: page.more,
            cursor: page.cursor,
        })
    }
}
