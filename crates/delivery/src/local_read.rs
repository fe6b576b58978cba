//! How much one local read takes (STR-066).

use highwater_store::Reads;
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::{DeliveryError, message::LOCAL_BYTES};

/// Most rows of one local read (STR-066).
pub const MAX_LOCAL_READ_ROWS: u32 = 128;
/// Most bytes of one local read, counted as [`StoredMessage::local_bytes`](crate::StoredMessage::local_bytes) (STR-066).
pub const MAX_LOCAL_READ_BYTES: u64 = 16 * 1024 * 1024;

/// What of the messages that were asked for can be read at once.
pub(crate) struct Fitting {
    pub(crate) rows: u32,
    /// Whether there are further ones.
    pub(crate) more: bool,
}

/// How many of the first `limit` messages may be read at once: as many as the bound of bytes lets through, but always one
/// if there is one. `push_messages` appends everything behind the columns, with the number of rows it is given.
pub(crate) async fn fitting(
    tx: &mut impl Reads,
    limit: u32,
    push_messages: impl Fn(&mut QueryBuilder<Sqlite>, u32),
) -> Result<Fitting, DeliveryError> {
    let limit = limit.clamp(1, MAX_LOCAL_READ_ROWS);
    let mut sum = QueryBuilder::new("SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT ");
    sum.push(LOCAL_BYTES).push(" AS bytes");
    push_messages(&mut sum, limit + 1);
    sum.push(")");
    let row = sum.build().fetch_one(tx.conn()).await?;
    let (found, bytes): (u32, i64) = (row.try_get(0)?, row.try_get(1)?);
    if bytes.unsigned_abs() <= MAX_LOCAL_READ_BYTES {
        return Ok(Fitting { rows: found.min(limit), more: found > limit });
    }
    let mut sizes = QueryBuilder::new("SELECT ");
    sizes.push(LOCAL_BYTES);
    push_messages(&mut sizes, limit);
    let (mut rows, mut bytes) = (0, 0);
    for row in sizes.build().fetch_all(tx.conn()).await? {
        bytes += row.try_get::<i64, _>(0)?.unsigned_abs();
        if bytes > MAX_LOCAL_READ_BYTES && rows > 0 {
            break;
        }
        rows += 1;
    }
    Ok(Fitting { rows, more: found > rows })
}
