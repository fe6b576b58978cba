//! Follows what becomes visible in the serving database.

use sqlx::{PgPool, Row as _};

use super::{PostgresStore, failed, gaps::Gaps, read};
use crate::store::{Arrival, StoreError, Tail};

/// Arrivals above the greatest id seen, of one look.
const BATCH: usize = 1_000;

pub(super) struct PostgresTail {
    store: PostgresStore,
    gaps: Gaps,
    /// The boundary of the last look. It never falls, unless the database is another.
    closed: i64,
    /// Failures of the boundary task that this tail has spoken of.
    boundary_failures: u64,
}

impl PostgresTail {
    /// Starts at the present end: what is visible now was no arrival, what is under way will be one.
    pub(super) async fn start(store: PostgresStore) -> Result<Self, StoreError> {
        let rows = sqlx::query(
            "SELECT b.closed, e.sequence_id FROM backend_boundary AS b
             LEFT JOIN backend_envelopes AS e ON e.sequence_id > b.closed ORDER BY e.sequence_id",
        )
        .fetch_all(&store.serving)
        .await
        .map_err(failed)?;
        let closed = match rows.first() {
            Some(row) => row.try_get("closed").map_err(failed)?,
            None => return Err(StoreError::Corrupt("no allocation boundary is stored".to_owned())),
        };
        let visible = rows
            .iter()
            .filter_map(|row| row.try_get::<Option<i64>, _>("sequence_id").transpose())
            .collect::<Result<Vec<i64>, _>>()
            .map_err(failed)?;
        let mut gaps = Gaps::starting_at(closed);
        gaps.show(&visible, true, closed);
        let boundary_failures = store.boundary.failures();
        Ok(Self { store, gaps, closed, boundary_failures })
    }
}

#[tonic::async_trait]
impl Tail for PostgresTail {
    async fn next(&mut self) -> Result<Vec<Arrival>, StoreError> {
        let failures = self.store.boundary.failures();
        if failures != std::mem::replace(&mut self.boundary_failures, failures) {
            // Nothing can be promised about gaps until it works again (STR-035).
            return Err(StoreError::Unavailable("the allocation boundary can't be moved".to_owned()));
        }
        let (arrivals, whole, closed) = look(&self.store.serving, self.store.has_standby, &self.gaps).await?;
        if closed < self.closed {
            return Err(StoreError::WentBack(format!("the boundary fell from {} to {closed}", self.closed)));
        }
        self.closed = closed;
        let ids: Vec<i64> = arrivals.iter().map(|arrival| arrival.sequence_id.as_i64()).collect();
        self.gaps.show(&ids, whole, closed);
        Ok(arrivals)
    }

    fn gaps(&self) -> usize {
        self.gaps.len()
    }
}

/// One look, in one snapshot: what shows of the wanted, ascending; whether there was no more; and the
/// boundary.
async fn look(pool: &PgPool, is_standby: bool, gaps: &Gaps) -> Result<(Vec<Arrival>, bool, i64), StoreError> {
    let (missing, seen) = gaps.wanted();
    let (lows, highs): (Vec<i64>, Vec<i64>) = missing.iter().copied().unzip();
    let rows = sqlx::query(
        "SELECT b.closed, pg_is_in_recovery() AS follows, e.sequence_id, e.topic, e.bytes
         FROM backend_boundary AS b LEFT JOIN LATERAL (
            SELECT m.sequence_id, m.topic, octet_length(m.payload)::bigint AS bytes
            FROM unnest($1, $2) AS gap (low, high)
            JOIN backend_envelopes AS m ON m.sequence_id BETWEEN gap.low AND gap.high
            UNION ALL
            (SELECT sequence_id, topic, octet_length(payload)::bigint FROM backend_envelopes
             WHERE sequence_id > $3 ORDER BY sequence_id LIMIT $4)
         ) AS e ON true
         ORDER BY e.sequence_id",
    )
    .bind(lows)
    .bind(highs)
    .bind(seen)
    .bind(i64::try_from(BATCH).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    let Some(first) = rows.first() else {
        return Err(StoreError::Corrupt("no allocation boundary is stored".to_owned()));
    };
    let closed = first.try_get("closed").map_err(failed)?;
    if is_standby && !first.try_get("follows").map_err(failed)? {
        // Promoted: what is published from now on never reaches it.
        return Err(StoreError::Unavailable("the replica follows no longer".to_owned()));
    }
    let mut arrivals = Vec::with_capacity(rows.len());
    for row in &rows {
        if row.try_get::<Option<i64>, _>("sequence_id").map_err(failed)?.is_some() {
            let (topic, sequence_id) = (read::topic(row)?, read::sequence_id(row)?);
            arrivals.push(Arrival { topic, sequence_id, bytes: read::payload_bytes(row)? });
        }
    }
    let above = arrivals.iter().filter(|arrival| arrival.sequence_id.as_i64() > seen).count();
    Ok((arrivals, above < BATCH, closed))
}
