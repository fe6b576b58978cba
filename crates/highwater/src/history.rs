//! Pages of what is stored.

use highwater_delivery::{
    Consent, ConversationType, DeliveryCursor, HistoryQuery, MAX_LOCAL_READ_BYTES, Order,
};
use highwater_store::ReadTx;
use highwater_wire::GroupId;

use crate::{Client, Error, Message};

/// Describes a page of stored messages. Made by [`Client::history`]; the newest messages of every group unless told
/// otherwise. Messages that were deleted or have disappeared are in no page.
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

    /// Only conversations with one of these consents, as they are now.
    #[must_use]
    pub fn consent(mut self, consent: impl IntoIterator<Item = Consent>) -> Self {
        self.query.selection = self.query.selection.with_consent(consent);
        self
    }

    /// Only groups, no DMs.
    #[must_use]
    pub fn only_groups(mut self) -> Self {
        self.query.selection = self.query.selection.of_kinds([ConversationType::Group]);
        self
    }

    /// Only DMs.
    #[must_use]
    pub fn only_dms(mut self) -> Self {
        self.query.selection = self.query.selection.of_kinds([ConversationType::Dm]);
        self
    }

    /// From the beginning forward, instead of from the end back.
    #[must_use]
    pub fn oldest_first(mut self) -> Self {
        self.query.order = Order::OldestFirst;
        self
    }

    /// At most so many messages; 0 is taken for 1, as pages of nothing would never come to an end. A page is never longer
    /// than 128 messages or 16 MiB of content, uncompressed, unless it holds a single message.
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
    /// [`Error::UnknownGroup`]; [`Error::Cursor`] for a cursor of another database.
    pub async fn page(self) -> Result<HistoryPage, Error> {
        crate::selection::require_known(&self.client, &self.query.selection).await?;
        let database = self.client.database_id();
        let query = self.query;
        let order = query.order;
        let page = self
            .client
            .store()
            .read("history", move |tx: &mut ReadTx| {
                Box::pin(async move { highwater_delivery::history(tx, database, &query).await })
            })
            .await?;
        Ok(HistoryPage::read(&self.client, page, order))
    }
}

impl HistoryPage {
    /// What is short in the database may be long when it is read: the page then ends earlier.
    fn read(client: &Client, page: highwater_delivery::HistoryPage, order: Order) -> Self {
        let mut read = Self { messages: Vec::new(), more: page.more, cursor: page.cursor };
        let mut bytes = 0;
        for stored in page.messages {
            let message = client.read_message(stored);
            bytes += message.content.bytes() as u64;
            let before = read.messages.last().and_then(|last| last.cursor);
            if let (Some(end), true) = (before, bytes > MAX_LOCAL_READ_BYTES) {
                read.more = Some(end);
                if order == Order::OldestFirst {
                    read.cursor = end;
                }
                break;
            }
            read.messages.push(message);
        }
        read
    }
}
