//! Finding messages by their ids. The schema says why the index of ids is in two tables.

use std::collections::BTreeMap;

use highwater_store::Reads;
use highwater_wire::MessageId;
use sqlx::{QueryBuilder, Row as _};

use crate::{DeliveryError, MessageStatus};

/// Restricts `delivery_messages` to the message whose id is parameter 1.
pub(crate) const WITH_ID: &str = "\
     id = ?1 AND row IN \
         (SELECT message FROM delivery_ids_recent WHERE prefix = substr(?1, 1, 8) \
          UNION ALL SELECT message FROM delivery_ids WHERE prefix = substr(?1, 1, 8))";

/// Ids of one statement.
const IDS_PER_STATEMENT: usize = 512;

/// Which of the ids are those of stored messages, and what has become of these.
pub(crate) async fn statuses(
    tx: &mut impl Reads,
    ids: &[MessageId],
) -> Result<BTreeMap<MessageId, MessageStatus>, DeliveryError> {
    let mut found = BTreeMap::new();
    for ids in ids.chunks(IDS_PER_STATEMENT) {
        let mut query = QueryBuilder::new("WITH asked (id) AS (");
        query.push_values(ids, |mut row, id| {
            row.push_bind(id.as_bytes().to_vec());
        });
        // The order of the joins is fixed: each id is looked up, whatever the planner thinks of the sizes.
        query.push(
            "), found (id, message) AS (\
                 SELECT id, message FROM asked CROSS JOIN delivery_ids_recent ON prefix = substr(id, 1, 8) \
                 UNION ALL \
                 SELECT id, message FROM asked CROSS JOIN delivery_ids ON prefix = substr(id, 1, 8)) \
             SELECT m.id, m.status FROM found CROSS JOIN delivery_messages AS m \
                 ON m.row = found.message AND m.id = found.id",
        );
        for row in query.build().fetch_all(tx.conn()).await? {
            let id = MessageId::try_from(row.try_get::<&[u8], _>(0)?)?;
            found.insert(id, MessageStatus::from_stored(row.try_get(1)?)?);
        }
    }
    Ok(found)
}
