use highwater_store::{Audit, Reads};
use sqlx::Row as _;

use crate::DeliveryError;

/// Each counts the rows that break its rule.
const RULES: [(&str, &str); 10] = [
    (
        "a message has a delivery number exactly when it is Published",
        "SELECT count(*) FROM delivery_messages \
         WHERE (status = 2) <> (delivery_number IS NOT NULL)",
    ),
    (
        "no delivery number is above the counter",
        "SELECT count(*) FROM delivery_messages \
         WHERE delivery_number > (SELECT last FROM delivery_counter)",
    ),
    (
        "a delivery number belongs to one message",
        "SELECT count(*) FROM (SELECT 1 FROM delivery_messages WHERE delivery_number IS NOT NULL \
         GROUP BY delivery_number HAVING count(*) > 1)",
    ),
    (
        "an id belongs to one message",
        "SELECT count(*) FROM (SELECT 1 FROM delivery_messages GROUP BY id HAVING count(*) > 1)",
    ),
    (
        "a message is found by its id",
        "SELECT count(*) FROM delivery_messages AS m WHERE NOT EXISTS \
             (SELECT 1 FROM delivery_ids_recent WHERE prefix = substr(m.id, 1, 8) AND message = m.row) \
         AND NOT EXISTS \
             (SELECT 1 FROM delivery_ids WHERE prefix = substr(m.id, 1, 8) AND message = m.row)",
    ),
    (
        "an id is listed once, and with its message only",
        "SELECT abs((SELECT count(*) FROM delivery_ids_recent) + (SELECT count(*) FROM delivery_ids) \
             - (SELECT count(*) FROM delivery_messages))",
    ),
    (
        "D is the number of a message of its group",
        "SELECT count(*) FROM delivery_positions AS p WHERE NOT EXISTS \
         (SELECT 1 FROM delivery_messages AS m \
          WHERE m.group_id = p.group_id AND m.delivery_number = p.delivered)",
    ),
    (
        "a message's conversation is stored",
        "SELECT count(*) FROM delivery_messages AS m LEFT JOIN delivery_conversations AS c \
         ON c.group_id = m.group_id WHERE c.group_id IS NULL",
    ),
    (
        "a deleted message has no content",
        "SELECT count(*) FROM delivery_messages WHERE deleted = 1 AND length(content) > 0",
    ),
    (
        "only a failed message has a reason",
        "SELECT count(*) FROM delivery_messages WHERE (status = 3) <> (failure IS NOT NULL)",
    ),
];

/// Checks this crate's invariants over the whole database.
///
/// # Errors
/// When the database fails.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, DeliveryError> {
    let mut audit = Audit::new("delivery");
    for (rule, sql) in RULES {
        let broken: i64 = sqlx::query(sql).fetch_one(tx.conn()).await?.try_get(0)?;
        audit.check(rule, broken == 0, || format!("{broken} rows"));
    }
    Ok(audit)
}
