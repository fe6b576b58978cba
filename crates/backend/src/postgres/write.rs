//! The one write: a publish is one call of the function that the schema made.

use highwater_wire::SequenceId;
use sqlx::{PgPool, Row as _};

use super::{corrupt, failed};
use crate::store::{Committed, Identifier, NewEnvelope, StoreError, StoredMeta};

/// The state with which the function says that an identity log grew.
const HISTORY_MOVED: &str = "HW001";

/// Identifiers gained or lost, with the place (from 1) of the envelope that does it.
#[derive(Default)]
struct Changes {
    at: Vec<i64>,
    kinds: Vec<i32>,
    texts: Vec<String>,
}

impl Changes {
    fn add(&mut self, place: i64, identifiers: &[Identifier]) {
        for identifier in identifiers {
            self.at.push(place);
            self.kinds.push(identifier.kind as i32);
            self.texts.push(identifier.text.clone());
        }
    }
}

pub(super) async fn publish(pool: &PgPool, envelopes: &[NewEnvelope]) -> Result<Committed, StoreError> {
    let (mut gained, mut lost) = (Changes::default(), Changes::default());
    for (place, envelope) in (1..).zip(envelopes) {
        if let Some(change) = &envelope.identity {
            gained.add(place, &change.gained);
            lost.add(place, &change.lost);
        }
    }
    let column = |of: fn(&NewEnvelope) -> Vec<u8>| envelopes.iter().map(of).collect::<Vec<_>>();
    let rows = sqlx::query("SELECT * FROM backend_publish($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)")
        .bind(column(|envelope| envelope.topic.to_bytes()))
        .bind(column(|envelope| envelope.hash.as_bytes().to_vec()))
        .bind(column(|envelope| envelope.payload.to_vec()))
        .bind(envelopes.iter().map(retention_ns).collect::<Vec<_>>())
        .bind(envelopes.iter().map(|envelope| envelope.is_commit_or_proposal).collect::<Vec<_>>())
        .bind(envelopes.iter().map(expected_head).collect::<Vec<_>>())
        .bind(gained.at)
        .bind(gained.kinds)
        .bind(gained.texts)
        .bind(lost.at)
        .bind(lost.kinds)
        .bind(lost.texts)
        .fetch_all(pool)
        .await;
    let rows = match rows {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(HISTORY_MOVED) => {
            return Ok(Committed::HistoryMoved);
        }
        rows => rows.map_err(failed)?,
    };
    if rows.len() != envelopes.len() {
        return Err(corrupt("publish", "an envelope without metadata"));
    }
    envelopes
        .iter()
        .zip(rows)
        .map(|(envelope, row)| {
            let id: i64 = row.try_get("stored_id").map_err(failed)?;
            Ok(StoredMeta {
                topic: envelope.topic,
                sequence_id: SequenceId::try_from(id).map_err(|error| corrupt("sequence id", error))?,
                hash: envelope.hash,
                server_ns: row.try_get("stored_ns").map_err(failed)?,
                expiry_ns: row.try_get("stored_expiry").map_err(failed)?,
                is_commit_or_proposal: row.try_get("stored_commit").map_err(failed)?,
            })
        })
        .collect::<Result<_, _>>()
        .map(Committed::Stored)
}

fn retention_ns(envelope: &NewEnvelope) -> Option<i64> {
    envelope.retention.map(|retention| i64::try_from(retention.as_nanos()).unwrap_or(i64::MAX))
}

/// Where the log of a checked identity update must still end.
fn expected_head(envelope: &NewEnvelope) -> Option<i64> {
    envelope.identity.as_ref().map(|change| change.head.as_i64())
}
