//! Welcomes that can't be settled now: when to try again, and until when at all.

use std::time::Duration;

use highwater_store::{Reads, WriteTx};
use highwater_wire::{Cursor, SequenceId, Topic};
use sqlx::Row as _;

use crate::{JoinError, outcome};

/// How long a Welcome that this version can't process is kept from its first attempt on (STR-115).
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the body that a pointer names is waited for, from the pointer's server time on (STR-081).
pub const POINTER_RETENTION: Duration = Duration::from_secs(3 * 24 * 60 * 60);

const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The interval at which a blocked Welcome is looked at again at the latest, so that a running client reaches the
/// deadline.
const LAST_RETRY: Duration = Duration::from_secs(10 * 60);

/// A Welcome that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldWelcome {
    /// Its envelope.
    pub sequence_id: SequenceId,
    /// The stable code of the cause.
    pub code: String,
    /// The cause for people.
    pub detail: String,
    /// After this local time one last attempt decides, if there is a deadline.
    pub deadline_ns: Option<i64>,
    /// When it is tried again at the latest.
    pub next_retry_ns: i64,
}

impl HeldWelcome {
    /// Whether waiting, with nothing else changed, can help.
    pub fn is_transient(&self) -> bool {
        !matches!(self.code.as_str(), "unknown_algorithm" | "unsupported_version" | "group_version")
    }
}

/// Records one more unsuccessful attempt. A deadline that was set stays.
pub(crate) async fn record(
    tx: &mut WriteTx,
    sequence_id: SequenceId,
    code: &str,
    detail: &str,
    deadline_ns: Option<i64>,
) -> Result<HeldWelcome, JoinError> {
    let now = tx.now_ns();
    let earlier = sqlx::query("SELECT deadline_ns, tries FROM join_welcomes WHERE sequence_id = ?")
        .bind(sequence_id.as_i64())
        .fetch_optional(tx.conn())
        .await?;
    let tries = earlier.as_ref().map_or(0, |row| row.get::<i64, _>(1));
    let deadline_ns = earlier.and_then(|row| row.get::<Option<i64>, _>(0)).or(deadline_ns);
    let wait = FIRST_RETRY.saturating_mul(1 << tries.clamp(0, 16)).min(LAST_RETRY);
    let mut next_retry_ns = now.saturating_add(wait.as_nanos() as i64);
    if let Some(deadline) = deadline_ns.filter(|deadline| *deadline > now) {
        next_retry_ns = next_retry_ns.min(deadline);
    }
    sqlx::query(
        "INSERT INTO join_welcomes (sequence_id, code, detail, deadline_ns, next_retry_ns, tries) \
         VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (sequence_id) DO UPDATE SET code = excluded.code, \
         detail = excluded.detail, deadline_ns = excluded.deadline_ns, \
         next_retry_ns = excluded.next_retry_ns, tries = excluded.tries",
    )
    .bind(sequence_id.as_i64())
    .bind(code)
    .bind(detail)
    .bind(deadline_ns)
    .bind(next_retry_ns)
    .bind(tries + 1)
    .execute(tx.conn())
    .await?;
    Ok(HeldWelcome {
        sequence_id,
        code: code.to_owned(),
        detail: detail.to_owned(),
        deadline_ns,
        next_retry_ns,
    })
}

pub(crate) async fn clear(tx: &mut WriteTx, sequence_id: SequenceId) -> Result<(), JoinError> {
    sqlx::query("DELETE FROM join_welcomes WHERE sequence_id = ?")
        .bind(sequence_id.as_i64())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Every held Welcome, in order.
pub async fn held(tx: &mut impl Reads) -> Result<Vec<HeldWelcome>, JoinError> {
    sqlx::query(
        "SELECT sequence_id, code, detail, deadline_ns, next_retry_ns FROM join_welcomes ORDER BY sequence_id",
    )
    .fetch_all(tx.conn())
    .await?
    .iter()
    .map(|row| {
        Ok(HeldWelcome {
            sequence_id: SequenceId::try_from(row.get::<i64, _>(0))
                .map_err(|_| JoinError::Damaged("sequence id"))?,
            code: row.get(1),
            detail: row.get(2),
            deadline_ns: row.get(3),
            next_retry_ns: row.get(4),
        })
    })
    .collect()
}

/// The pending Welcomes whose turn has come: never attempted, or with their retry due.
pub async fn ready(tx: &mut impl Reads, topic: Topic) -> Result<Vec<SequenceId>, JoinError> {
    let now = tx.now_ns();
    let waiting: std::collections::BTreeSet<_> = held(tx)
        .await?
        .into_iter()
        .filter(|held| held.next_retry_ns > now)
        .map(|held| held.sequence_id)
        .collect();
    let pending = outcome::unresolved(tx, topic, Cursor::MAX).await?;
    Ok(pending.into_iter().filter(|id| !waiting.contains(id)).collect())
}

/// When the earliest held Welcome is due, by the local clock.
pub async fn next_retry(tx: &mut impl Reads) -> Result<Option<i64>, JoinError> {
    let row = sqlx::query("SELECT min(next_retry_ns) FROM join_welcomes").fetch_one(tx.conn()).await?;
    Ok(row.get(0))
}
