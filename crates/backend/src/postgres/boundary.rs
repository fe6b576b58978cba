//! Moves the closed allocation boundary: the id at or below which every publish has committed or never
//! will.
//!
//! A round takes three looks, and no publish ever waits for one:
//! 1. the last id given out, S;
//! 2. a transaction id of its own, X, which ends at once. A publish that holds an id at or below S had
//!    its transaction id before its sequence id, so it is below X. (A snapshot's xmax wouldn't do: it is one
//!    above the last transaction that *ended*, so a publish that still runs can be at or above it.)
//! 3. later, a snapshot whose xmin is above X: everything below X has ended. The boundary is S.
//!
//! Instances do this side by side: only greater values are written. An unrelated old transaction delays
//! the boundary, which then retires gaps later and holds up nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::failed;
use crate::store::StoreError;

/// What the rest of the store knows of the task.
#[derive(Debug, Clone, Default)]
pub(super) struct Boundary {
    failures: Arc<AtomicU64>,
}

impl Boundary {
    /// How often the task failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Works until cancelled.
    pub(super) async fn run(self, pool: PgPool, poll: Duration, stop: CancellationToken) {
        let mut round = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(poll) => {}
            }
            let stepped = tokio::select! {
                () = stop.cancelled() => return,
                stepped = step(&pool, round) => stepped,
            };
            match stepped {
                Ok(next) => round = next,
                // Somebody else holds the row; the round stays good (STR-035).
                Err(StoreError::TimedOut(_)) => {}
                Err(error) => {
                    tracing::warn!(%error, "the allocation boundary can't be moved");
                    self.failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// What the first two looks of a round found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    last_id: i64,
    transaction: i64,
}

/// Begins a round when ids were given out since the last, or ends one when it can be.
pub(super) async fn step(pool: &PgPool, round: Option<Round>) -> Result<Option<Round>, StoreError> {
    match round {
        None => begin(pool).await,
        Some(round) if has_passed(pool, round).await? => {
            sqlx::query("UPDATE backend_boundary SET closed = $1 WHERE closed < $1")
                .bind(round.last_id)
                .execute(pool)
                .await
                .map_err(failed)?;
            Ok(None)
        }
        Some(round) => Ok(Some(round)),
    }
}

async fn begin(pool: &PgPool) -> Result<Option<Round>, StoreError> {
    let (last_id, closed): (i64, i64) = sqlx::query_as(
        "SELECT CASE WHEN is_called THEN last_value ELSE 0 END, (SELECT closed FROM backend_boundary)
         FROM backend_ids",
    )
    .fetch_one(pool)
    .await
    .map_err(failed)?;
    if last_id <= closed {
        return Ok(None);
    }
    let transaction = sqlx::query_scalar("SELECT pg_current_xact_id()::text::bigint")
        .fetch_one(pool)
        .await
        .map_err(failed)?;
    Ok(Some(Round { last_id, transaction }))
}

async fn has_passed(pool: &PgPool, round: Round) -> Result<bool, StoreError> {
    let oldest: i64 = sqlx::query_scalar("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        .fetch_one(pool)
        .await
        .map_err(failed)?;
    Ok(oldest > round.transaction)
}
