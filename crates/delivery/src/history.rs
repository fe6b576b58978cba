//! Pages of what is stored, and the cursor that goes on where they end.

use highwater_store::{DatabaseId, Reads};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::{
    DeliveryCursor, DeliveryError, MAX_LOCAL_READ_BYTES, MAX_LOCAL_READ_ROWS, Selection, StoredMessage,
    last_number,
    message::{COLUMNS, LOCAL_BYTES, from_row},
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

/// Reads a page. At most [`MAX_LOCAL_READ_ROWS`] messages and [`MAX_LOCAL_READ_BYTES`], but always
/// one if there is one.
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
    let limit = query.limit.clamp(1, MAX_LOCAL_READ_ROWS);
    let mut window = QueryBuilder::new("SELECT m.delivery_number, ");
    window.push(LOCAL_BYTES);
    push_matching(&mut window, query, from, tx.now_ns());
    window.push(" LIMIT ").push_bind(limit + 1);
    let rows = window.build().fetch_all(tx.conn()).await?;

    let mut numbers = Vec::new();
    let mut bytes = 0_u64;
    for row in rows.iter().take(limit as usize) {
        bytes += row.try_get::<i64, _>(1)?.unsigned_abs();
        if bytes > MAX_LOCAL_READ_BYTES && !numbers.is_empty() {
            break;
        }
        numbers.push(row.try_get::<i64, _>(0)?);
    }
    let messages = read(tx, query.order, &numbers).await?;
    let end = numbers.last().map(|number| number.unsigned_abs());
    let more = end.filter(|_| rows.len() > numbers.len());
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

fn push_matching(sql: &mut QueryBuilder<Sqlite>, query: &HistoryQuery, from: Option<u64>, now_ns: i64) {
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
    sql.push(format_args!(" ORDER BY m.delivery_number {direction}"));
}

async fn read(
    tx: &mut impl Reads,
    order: Order,
    numbers: &[i64],
) -> Result<Vec<StoredMessage>, DeliveryError> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut query = QueryBuilder::new("SELECT ");
    query.push(COLUMNS).push(" FROM delivery_messages AS m WHERE m.delivery_number IN (");
    let mut list = query.separated(", ");
    for number in numbers {
        list.push_bind(*number);
    }
    list.push_unseparated(") ORDER BY m.delivery_number ");
    query.push(match order {
        Order::NewestFirst => "DESC",
        Order::OldestFirst => "ASC",
    });
    query.build().fetch_all(tx.conn()).await?.iter().map(from_row).collect()
}
