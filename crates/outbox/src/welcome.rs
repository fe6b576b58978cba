//! Welcomes that applied commits still owe.

use highwater_store::{Reads, WriteTx};
use sqlx::Row as _;

use crate::OutboxError;
use crate::intent::IntentId;
use crate::rows::{self, IntentState};

const OWED: i64 = 0;
const ACCEPTED: i64 = 1;
const REFUSED: i64 = 2;

/// A sealed Welcome that the backend hasn't accepted yet.
#[derive(Clone, Debug)]
pub struct OwedWelcome {
    /// Its local name.
    pub id: i64,
    /// The change it completes.
    pub intent: IntentId,
    /// An encoded `ClientEnvelope`, the same at every try.
    pub envelope: Vec<u8>,
}

/// The owed Welcomes, oldest first.
pub async fn owed_welcomes(tx: &mut impl Reads, limit: u32) -> Result<Vec<OwedWelcome>, OutboxError> {
    let found = sqlx::query(
        "SELECT id, intent_id, envelope FROM outbox_welcomes WHERE state = 0 ORDER BY id LIMIT ?",
    )
    .bind(i64::from(limit))
    .fetch_all(tx.conn())
    .await?;
    Ok(found
        .iter()
        .map(|row| OwedWelcome { id: row.get(0), intent: IntentId(row.get(1)), envelope: row.get(2) })
        .collect())
}

pub(crate) async fn owe(
    tx: &mut WriteTx,
    intent: IntentId,
    envelopes: Vec<Vec<u8>>,
) -> Result<(), OutboxError> {
    let mut insert = sqlx::QueryBuilder::new("INSERT INTO outbox_welcomes (intent_id, envelope, state) ");
    insert.push_values(envelopes, |mut row, envelope| {
        row.push_bind(intent.0).push_bind(envelope).push_bind(OWED);
    });
    insert.build().execute(tx.conn()).await?;
    Ok(())
}

/// Records that the backend has a Welcome. The last one confirms its intent.
pub async fn welcome_accepted(tx: &mut WriteTx, welcome: i64) -> Result<(), OutboxError> {
    settle(tx, welcome, ACCEPTED, None).await
}

/// Records that the backend refused a Welcome for good. The invited installation can't join by it; the others aren't
/// held up.
pub async fn welcome_refused(tx: &mut WriteTx, welcome: i64, detail: &str) -> Result<(), OutboxError> {
    tracing::warn!(welcome, detail, "the backend refused a Welcome");
    settle(tx, welcome, REFUSED, Some(detail)).await
}

async fn settle(tx: &mut WriteTx, welcome: i64, state: i64, detail: Option<&str>) -> Result<(), OutboxError> {
    let Some(row) = sqlx::query(
        "UPDATE outbox_welcomes SET state = ?, detail = ? WHERE id = ? AND state = 0 RETURNING intent_id",
    )
    .bind(state)
    .bind(detail)
    .bind(welcome)
    .fetch_optional(tx.conn())
    .await?
    else {
        return Ok(());
    };
    let intent = IntentId(row.get(0));
    let owed = sqlx::query("SELECT count(*) FROM outbox_welcomes WHERE intent_id = ? AND state = 0")
        .bind(intent.0)
        .fetch_one(tx.conn())
        .await?;
    if owed.get::<i64, _>(0) == 0 {
        rows::set_state(tx, intent, IntentState::Confirmed, None, None, None).await?;
    }
    Ok(())
}
