//! Identity topics: a verified state for every update, or a held prefix.

use std::collections::BTreeSet;

use highwater_identity::{AssociationState, Invalid, Verdicts, required_verifications};
use highwater_mls::{Need, Proof, Resolution, Resolutions, Snapshots};
use highwater_receipt::PendingEnvelope;
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::associations::IdentityUpdate;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{InboxId, SequenceId, Topic};
use prost::Message as _;
use sqlx::{QueryBuilder, Row as _};

use crate::attempt::{Hold, PORTION_BYTES, PORTION_ROWS, Report, Stop};
use crate::disposition::{self, IdentityInput};
use crate::{ProcessingError, hold, position};

pub(crate) async fn attempt(
    tx: &mut WriteTx,
    topic: Topic,
    resolutions: &Resolutions,
) -> Result<Report, ProcessingError> {
    let inbox = topic.inbox_id().ok_or(ProcessingError::NotProcessed(topic))?;
    let parts = highwater_receipt::pending_together(tx, &[topic], PORTION_ROWS, PORTION_BYTES).await?;
    let (pending, left) =
        parts.into_iter().next().map_or((Vec::new(), 0), |part| (part.envelopes, part.left));
    let latest = latest_snapshot(tx, inbox).await?;
    let processed = position::processed(tx, topic).await?.unwrap_or_default();
    // Without the state at P an update would be judged by another history than its own.
    let lost = processed.cursor().get() != latest.as_ref().map_or(0, |(at, _)| at.get());
    let mut state = latest.map(|(_, state)| state);
    let mut verified = Vec::new();
    let mut held = None;
    for envelope in &pending {
        let (input, needs) = match lost {
            true => (IdentityInput::NoState, Vec::new()),
            false => find_out(inbox, state.as_ref(), envelope, resolutions),
        };
        match disposition::identity(input) {
            Ok(next) => {
                verified.push((envelope.sequence_id, next.clone()));
                state = Some(next);
            }
            Err(cause) => {
                held = Some(Hold { sequence_id: envelope.sequence_id, cause, needs });
                break;
            }
        }
    }
    keep(tx, inbox, &verified).await?;
    if let Some((through, _)) = verified.last() {
        position::advance(tx, &[(topic, *through)]).await?;
        highwater_receipt::settle_through(tx, topic, *through).await?;
    }
    match &held {
        Some(head) => hold::record(tx, topic, head.sequence_id, &head.cause).await?,
        None => hold::clear(tx, topic).await?,
    }
    Ok(Report {
        applied: verified.len() as u32,
        rejected: 0,
        stop: match held {
            Some(head) => Stop::Held(head),
            None if left == 0 => Stop::Drained,
            None => Stop::More,
        },
    })
}

/// What the table of identity updates wants to know of one, and what would help if it can't be judged yet.
fn find_out(
    inbox: InboxId,
    state: Option<&AssociationState>,
    envelope: &PendingEnvelope,
    resolutions: &Resolutions,
) -> (IdentityInput, Vec<Need>) {
    let Some(update) = decode(envelope) else {
        return (IdentityInput::NoUpdate, Vec::new());
    };
    let required = match required_verifications(std::slice::from_ref(&update)) {
        Ok(required) => required,
        Err(invalid) => return (IdentityInput::Invalid(invalid), Vec::new()),
    };
    let mut verdicts = Verdicts::default();
    let mut needs = Vec::new();
    for request in required {
        let need = Need::Verify(request.clone());
        match resolutions.get(&need) {
            Some(Resolution::Ready(Proof::Verdict(valid))) => verdicts.insert(request, *valid),
            _ => needs.push(need),
        }
    }
    if !needs.is_empty() {
        return (IdentityInput::Unverified, needs);
    }
    match AssociationState::apply(state, inbox, &update, &verdicts) {
        Ok(next) => (IdentityInput::Valid(next), Vec::new()),
        Err(Invalid::Unverified(request)) => (IdentityInput::Unverified, vec![Need::Verify(request)]),
        Err(invalid) => (IdentityInput::Invalid(invalid), Vec::new()),
    }
}

fn decode(envelope: &PendingEnvelope) -> Option<IdentityUpdate> {
    match ClientEnvelope::decode(envelope.payload.as_ref()).ok()?.payload? {
        client_envelope::Payload::IdentityUpdate(update) => Some(update),
        _ => None,
    }
}

async fn keep(
    tx: &mut WriteTx,
    inbox: InboxId,
    verified: &[(SequenceId, AssociationState)],
) -> Result<(), ProcessingError> {
    if verified.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(verified.len());
    for (sequence_id, state) in verified {
        let state = postcard::to_stdvec(state).map_err(|_| ProcessingError::Damaged("identity state"))?;
        rows.push((*sequence_id, state));
    }
    let mut insert = QueryBuilder::new("INSERT INTO processing_identity (inbox_id, sequence_id, state) ");
    insert.push_values(rows, |mut row, (sequence_id, state)| {
        row.push_bind(inbox.as_bytes().to_vec()).push_bind(sequence_id.as_i64()).push_bind(state);
    });
    insert.build().execute(tx.conn()).await?;
    Ok(())
}

fn read_state(bytes: &[u8]) -> Result<AssociationState, ProcessingError> {
    postcard::from_bytes(bytes).map_err(|_| ProcessingError::Damaged("identity state"))
}

/// The verified state of an inbox at exactly this update (STR-076), if that update was verified here.
pub async fn snapshot(
    tx: &mut impl Reads,
    inbox: InboxId,
    sequence_id: SequenceId,
) -> Result<Option<AssociationState>, ProcessingError> {
    sqlx::query("SELECT state FROM processing_identity WHERE inbox_id = ? AND sequence_id = ?")
        .bind(inbox.as_bytes().as_slice())
        .bind(sequence_id.as_i64())
        .fetch_optional(tx.conn())
        .await?
        .map(|row| read_state(row.get(0)))
        .transpose()
}

/// The newest verified state of an inbox, and the update that made it.
pub async fn latest_snapshot(
    tx: &mut impl Reads,
    inbox: InboxId,
) -> Result<Option<(SequenceId, AssociationState)>, ProcessingError> {
    sqlx::query(
        "SELECT sequence_id, state FROM processing_identity WHERE inbox_id = ? ORDER BY sequence_id DESC LIMIT 1",
    )
    .bind(inbox.as_bytes().as_slice())
    .fetch_optional(tx.conn())
    .await?
    .map(|row| {
        let sequence_id = SequenceId::try_from(row.get::<i64, _>(0))
            .map_err(|_| ProcessingError::Damaged("sequence id"))?;
        Ok((sequence_id, read_state(row.get(1))?))
    })
    .transpose()
}

/// The verified states for all of `wanted` that are here, and the rest of `wanted`.
pub async fn snapshots(
    tx: &mut impl Reads,
    wanted: impl IntoIterator<Item = (InboxId, SequenceId)>,
) -> Result<(Snapshots, BTreeSet<(InboxId, SequenceId)>), ProcessingError> {
    let mut found = Snapshots::new();
    let mut missing = BTreeSet::new();
    for (inbox, sequence_id) in wanted {
        match snapshot(tx, inbox, sequence_id).await? {
            Some(state) => {
                found.insert((inbox, sequence_id), state);
            }
            None => {
                missing.insert((inbox, sequence_id));
            }
        }
    }
    Ok((found, missing))
}
