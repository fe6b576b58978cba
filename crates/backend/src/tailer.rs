//! The one task of an instance that follows the store and tells the streams what became visible.

use std::{sync::Arc, time::Duration};

use highwater_wire::SequenceId;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    health::Vitals,
    metrics::Metrics,
    refusal::stream_status,
    registry::Registry,
    session::Delivery,
    store::{Arrival, EnvelopeStore, StoreError, Tail},
};

/// Payload bytes that one read of the tailer may bring.
const READ_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct Tailer {
    pub(crate) store: Arc<dyn EnvelopeStore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) poll: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) vitals: Vitals,
}

impl Tailer {
    /// Follows until cancelled. A failure of the store ends every stream with UNAVAILABLE, since
    /// nothing can be promised on them any more (STR-035); following then goes on where it stopped.
    pub(crate) async fn run(self, mut tail: Box<dyn Tail>, stop: CancellationToken) {
        let mut hints = self.store.hints();
        loop {
            hints.borrow_and_update();
            let step = tokio::select! {
                () = stop.cancelled() => return,
                step = self.step(&mut *tail) => step,
            };
            self.metrics.polled(step.as_ref().ok().copied(), tail.gaps());
            self.vitals.followed(step.is_ok());
            match step {
                Ok(1..) => continue,
                Ok(0) => {}
                Err(error @ StoreError::WentBack(_)) => {
                    self.registry.fail_all(&stream_status(error));
                    tokio::select! {
                        () = stop.cancelled() => return,
                        anew = self.anew() => tail = anew,
                    }
                }
                Err(error) => self.registry.fail_all(&stream_status(error)),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.poll) => {}
                // The store outlives its hints; a closed channel leaves the poll.
                Ok(()) = hints.changed() => {}
            }
        }
    }

    /// Follows from the present end of a store that lost what it had shown. Streams that registered before
    /// that end was known would miss what lies between.
    async fn anew(&self) -> Box<dyn Tail> {
        loop {
            match self.store.tail().await {
                Ok(tail) => {
                    self.registry.fail_all(&Status::unavailable("the store went back; reconnect"));
                    return tail;
                }
                Err(error) => self.registry.fail_all(&stream_status(error)),
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    /// Passes on one batch; how many arrivals there were.
    async fn step(&self, tail: &mut dyn Tail) -> Result<usize, StoreError> {
        let arrivals = tail.next().await?;
        let found = arrivals.len();
        // A topic that is registered after this look has these arrivals in its head already.
        let wanted: Vec<Arrival> =
            arrivals.into_iter().filter(|arrival| self.registry.wants(&arrival.topic)).collect();
        for batch in batches(&wanted) {
            let mut envelopes = self.store.read_ids(&batch).await?;
            if envelopes.len() != batch.len() {
                // Nobody may miss these.
                return Err(StoreError::WentBack("an envelope that was announced is gone".to_owned()));
            }
            envelopes.sort_unstable_by_key(|envelope| envelope.meta.sequence_id);
            for envelope in &envelopes {
                self.registry.dispatch(&Arc::new(Delivery::live(envelope)?));
            }
        }
        Ok(found)
    }
}

/// Cuts arrivals into reads of bounded size, each of at least one envelope.
fn batches(arrivals: &[Arrival]) -> Vec<Vec<SequenceId>> {
    let mut batches: Vec<Vec<SequenceId>> = Vec::new();
    let mut room = 0;
    for arrival in arrivals {
        match batches.last_mut() {
            Some(batch) if arrival.bytes <= room => {
                batch.push(arrival.sequence_id);
                room -= arrival.bytes;
            }
            _ => {
                batches.push(vec![arrival.sequence_id]);
                room = READ_BYTES.saturating_sub(arrival.bytes);
            }
        }
    }
    batches
}
