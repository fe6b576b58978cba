//! Waiting for what becomes of an intent.

use std::collections::BTreeMap;
use std::time::Duration;

use highwater_outbox::{IntentId, Outcome};
use highwater_wire::{Cursor, GroupId, SequenceId, Topic};
use tokio::time::Instant;

use crate::engine::Shared;
use crate::fetch::fetch;
use crate::{RECEIVER_FALLBACK_INTERVAL, SyncError};

/// Kicks the publisher and waits until the intent is settled, can't be published now, or `within` has passed.
pub(crate) async fn deliver(
    shared: &Shared,
    group: GroupId,
    intent: IntentId,
    within: Duration,
) -> Result<Outcome, SyncError> {
    let deadline = Instant::now() + within;
    let mut wakes = shared.store.wakes();
    let mut publishing = shared.publishing.subscribe();
    let asked = publishing.borrow().started + 1;
    let mut fallback = Fallback { waiting_since: None, fetched: false };
    shared.kick.notify_one();
    loop {
        wakes.mark_unchanged();
        let outcome = outcome(shared, intent).await?;
        if outcome.is_final() || Instant::now() >= deadline {
            return Ok(outcome);
        }
        if let Outcome::Queued = outcome
            && let Some((round, Some(_))) = publishing.borrow_and_update().ended
            && round >= asked
        {
            return Ok(outcome);
        }
        let mut next_look = deadline;
        if let Outcome::PublishedUnconfirmed { sequence_id: Some(sequence_id) } = outcome {
            let due = fallback.query_at(shared, group, sequence_id, deadline).await?;
            next_look = next_look.min(due.unwrap_or(deadline));
        }
        tokio::select! {
            _ = shared.cancel.cancelled() => return Err(SyncError::Closed),
            changed = wakes.changed() => changed.map_err(|_| SyncError::Closed)?,
            _ = publishing.changed() => {}
            _ = tokio::time::sleep_until(next_look) => {}
        }
    }
}

async fn outcome(shared: &Shared, intent: IntentId) -> Result<Outcome, SyncError> {
    shared
        .store
        .read("outcome", move |tx| Box::pin(async move { Ok(highwater_outbox::outcome(tx, intent).await?) }))
        .await
}

/// A healthy receiver gets a moment to bring the echo before it is queried for; partial receipt doesn't restart it.
struct Fallback {
    waiting_since: Option<Instant>,
    fetched: bool,
}

impl Fallback {
    /// Queries if it is time to. Otherwise says when it will be.
    async fn query_at(
        &mut self,
        shared: &Shared,
        group: GroupId,
        target: SequenceId,
        deadline: Instant,
    ) -> Result<Option<Instant>, SyncError> {
        if self.fetched {
            return Ok(None);
        }
        let topic = Topic::group(group);
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let due = since + RECEIVER_FALLBACK_INTERVAL;
        if shared.covers(topic) && due < deadline && Instant::now() < due {
            return Ok(Some(due));
        }
        let targets = BTreeMap::from([(topic, Cursor::from(target))]);
        match fetch(&shared.store, &shared.connection, &targets).await {
            Ok(_) => self.fetched = true,
            // The connection may come back before the deadline; the publisher and the receiver go on trying too.
            Err(error) if error.is_retryable() => {
                self.waiting_since = Some(Instant::now());
                tracing::debug!(%error, "could not query for an echo");
                return Ok(Some(Instant::now() + RECEIVER_FALLBACK_INTERVAL));
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}
