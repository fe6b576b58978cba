//! Pages of what is stored, and the cursor that goes on where they end.

use highwater_store::{DatabaseId, Reads};
use sqlx::{QueryBuilder, Sqlite};

use crate::{
    DeliveryCursor, DeliveryError, DeliveryNumber, MAX_LOCAL_READ_ROWS, Selection, StoredMessage,
    last_number,
    local_read::fitting,
    message::{COLUMNS, from_row},
    selection::{FROM, push_eligible},
};

/// Which end a history is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The last messages first, then back in time.
    #[default]
    NewestFirst,
    /// From the beginning, forward in time.
    OldestFirst,
}

/// One page of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Scope and filters, evaluated as they are now.
    pub selection: Selection,
    /// Direction.
    pub order: Order,
    /// Where the page before this one ended ([`HistoryPage::more`]); `None` for the first page.
    pub from: Option<DeliveryCursor>,
    /// At most so many messages, and never more than [`MAX_LOCAL_READ_ROWS`].
    pub limit: u32,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self {
            selection: Selection::all(),
            order: Order::NewestFirst,
            from: None,
            limit: MAX_LOCAL_READ_ROWS,
        }
    }
}

/// What a page holds. All of it is from one snapshot of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// Eligible messages of the selection, in the order asked for.
    pub messages: Vec<StoredMessage>,
    /// [`HistoryQuery::from`] of the next page; `None` when there is none.
    pub more: Option<DeliveryCursor>,
    /// A replay from here misses nothing and repeats nothing of this page (STR-099). Newest first,
    /// it is the end of what this page's snapshot had numbered: take that of the first page. Oldest
    /// first, it is the end of what has been read: take that of the last page.
    pub cursor: DeliveryCursor,
}

/// Reads a page. At most [`MAX_LOCAL_READ_ROWS`] messages and [`MAX_LOCAL_READ_BYTES`](crate::MAX_LOCAL_READ_BYTES), but
/// always one if there is one.
///
/// # Errors
/// [`DeliveryError::Cursor`] when `from` is not of this database; when the database fails.
pub async fn history(
    tx: &mut impl Reads,
    database: DatabaseId,
    query: &HistoryQuery,
) -> Result<HistoryPage, DeliveryError> {
    let from = match query.from {
        Some(cursor) => Some(cursor.check(tx, database).await?),
        None => None,
    };
    let now_ns = tx.now_ns();
    let fitting =
        fitting(tx, query.limit, |sql, limit| push_matching(sql, query, from, now_ns, limit)).await?;
    let mut page = QueryBuilder::new("SELECT ");
    page.push(COLUMNS);
    push_matching(&mut page, query, from, now_ns, fitting.rows);
    let rows = page.build().fetch_all(tx.conn()).await?;
    let messages = rows.iter().map(from_row).collect::<Result<Vec<_>, _>>()?;
    let end = messages.last().and_then(|message| message.delivery_number);
    let more = end.map(DeliveryNumber::get).filter(|_| fitting.more);
    let cursor = match (query.order, more) {
        (Order::OldestFirst, Some(read)) => read,
        // The end of what this snapshot has numbered.
        _ => last_number(tx).await?,
    };
    Ok(HistoryPage {
        messages,
        more: more.map(|number| DeliveryCursor::at(database, number)),
        cursor: DeliveryCursor::at(database, cursor),
    })
}

fn push_matching(
    sql: &mut QueryBuilder<Sqlite>,
    query: &HistoryQuery,
    from: Option<u64>,
    now_ns: i64,
    limit: u32,
) {
    sql.push(FROM).push("WHERE ");
    push_eligible(sql, now_ns);
    sql.push(" AND ");
    query.selection.push_scope(sql);
    sql.push(" AND ");
    query.selection.push_filter(sql);
    let (compare, direction) = match query.order {
        Order::NewestFirst => ("<", "DESC"),
        Order::OldestFirst => (">", "ASC"),
    };
    if let Some(from) = from {
        sql.push(format_args!(" AND m.delivery_number {compare} ")).push_bind(from as i64);
    }
    sql.push(format_args!(" ORDER BY m.delivery_number {direction} LIMIT ")).push_bind(limit);
}
