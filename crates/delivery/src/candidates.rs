//! What the default consumer chooses from: eligible messages in scope that D doesn't cover.

use highwater_store::{Reads, WriteTx};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::{
    DeliveryError, DeliveryNumber, Selection, StoredMessage,
    message::{COLUMNS, from_row},
    position,
    selection::{FROM, push_eligible},
};

/// One less than the first delivery number that some D doesn't cover. Reads indexes only, so that
/// opening costs by the number of groups and not of messages.
pub(crate) async fn first_undelivered(tx: &mut impl Reads) -> Result<u64, DeliveryError> {
    let row = sqlx::query(
        "SELECT min((SELECT min(m.delivery_number) FROM delivery_messages AS m \
                     WHERE m.group_id = c.group_id \
                       AND m.delivery_number > coalesce(p.delivered, 0))) \
         FROM delivery_conversations AS c \
         LEFT JOIN delivery_positions AS p ON p.group_id = c.group_id",
    )
    .fetch_one(tx.conn())
    .await?;
    match row.try_get::<Option<i64>, _>(0)? {
        Some(first) => Ok(DeliveryNumber::from_stored(first)?.get() - 1),
        None => position::last_number(tx).await,
    }
}

const ABOVE_D: &str = "m.delivery_number > coalesce((SELECT p.delivered FROM delivery_positions AS p \
     WHERE p.group_id = m.group_id), 0)";

fn push_candidates(query: &mut QueryBuilder<Sqlite>, selection: &Selection, now_ns: i64) {
    query.push(" AND ");
    push_eligible(query, now_ns);
    query.push(" AND ");
    selection.push_scope(query);
    query.push(" AND ").push(ABOVE_D);
}

/// The first candidate above `floor`, filtered or not, and the last number given out.
pub(crate) async fn first_candidate(
    tx: &mut impl Reads,
    selection: &Selection,
    floor: u64,
) -> Result<(Option<u64>, u64), DeliveryError> {
    let last = position::last_number(tx).await?;
    if last <= floor {
        return Ok((None, last));
    }
    let mut query = QueryBuilder::new("SELECT m.delivery_number");
    query.push(FROM).push("WHERE m.delivery_number > ").push_bind(floor as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" ORDER BY m.delivery_number LIMIT 1");
    let row = query.build().fetch_optional(tx.conn()).await?;
    let next = row.map(|row| DeliveryNumber::from_stored(row.try_get(0)?)).transpose()?;
    Ok((next.map(DeliveryNumber::get), last))
}

/// The first candidate above `floor` that the filter lets pass, none above `end`. One message is read
/// at a time, so one of any size is handed out by itself.
pub(crate) async fn first_passing(
    tx: &mut WriteTx,
    selection: &Selection,
    floor: u64,
    end: u64,
) -> Result<Option<StoredMessage>, DeliveryError> {
    let mut query = QueryBuilder::new("SELECT ");
    query.push(COLUMNS).push(FROM);
    query.push("WHERE m.delivery_number > ").push_bind(floor as i64);
    query.push(" AND m.delivery_number <= ").push_bind(end as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" AND ");
    selection.push_filter(&mut query);
    query.push(" ORDER BY m.delivery_number LIMIT 1");
    query.build().fetch_optional(tx.conn()).await?.as_ref().map(from_row).transpose()
}

/// Moves D over the candidates that the filter excludes, from above `floor` through `through`
/// (STR-093).
pub(crate) async fn exclude(
    tx: &mut WriteTx,
    selection: &Selection,
    floor: u64,
    through: u64,
) -> Result<(), DeliveryError> {
    let mut query = QueryBuilder::new(
        "INSERT INTO delivery_positions (group_id, delivered) \
         SELECT m.group_id, max(m.delivery_number)",
    );
    query.push(FROM);
    query.push("WHERE m.delivery_number > ").push_bind(floor as i64);
    query.push(" AND m.delivery_number <= ").push_bind(through as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" AND NOT ");
    selection.push_filter(&mut query);
    query.push(
        " GROUP BY m.group_id \
         ON CONFLICT (group_id) DO UPDATE SET delivered = excluded.delivered \
         WHERE excluded.delivered > delivery_positions.delivered",
    );
    query.build().execute(tx.conn()).await?;
    Ok(())
}
