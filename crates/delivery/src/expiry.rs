use highwater_store::Reads;
use sqlx::Row as _;

use crate::DeliveryError;

/// When the next message that still has its content is to disappear: nanoseconds since the Unix epoch, in the past when
/// [`erase_expired`](crate::erase_expired) has something to do. `None` when no message ever will.
///
/// # Errors
/// When the database fails.
pub async fn next_expiry(tx: &mut impl Reads) -> Result<Option<i64>, DeliveryError> {
    let row = sqlx::query(
        "SELECT min(expires_ns) FROM delivery_messages WHERE expires_ns IS NOT NULL AND deleted = 0",
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(row.try_get(0)?)
}
