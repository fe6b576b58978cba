//! The one writer. Publishes that wait for it share a transaction, so that the disk is waited for once
//! for all of them; each still succeeds or fails by itself.
//!
//! Requests reach it through a queue: a publish whose caller went away is never half done, and no
//! transaction is ever left open on the connection.

use std::time::Duration;

use sqlx::{Connection as _, Sqlite, SqlitePool, pool::PoolConnection};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{failed, write};
use crate::store::{Committed, NewEnvelope, StoreError};

/// Publishes that may wait in line; more callers wait before it.
const QUEUE: usize = 1_024;
/// Envelopes and payload bytes that share a transaction. A publish that is larger has one of its own.
const SHARED_ROWS: usize = 1_000;
const SHARED_BYTES: usize = 8 * 1024 * 1024;

type Answer = Result<Committed, StoreError>;

#[derive(Debug)]
struct Waiting {
    envelopes: Vec<NewEnvelope>,
    answer: oneshot::Sender<Answer>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.envelopes.iter().map(|envelope| envelope.payload.len()).sum()
    }
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(super) struct Committer {
    queue: mpsc::Sender<Waiting>,
    closing: CancellationToken,
}

impl Committer {
    /// Starts the writer. It ends with [`Committer::close`], or when nobody holds a way to it.
    pub(super) fn start(
        pool: SqlitePool,
        statement_timeout: Duration,
        visible: watch::Sender<u64>,
    ) -> (Self, JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let writer = Writer { pool, statement_timeout, visible };
        let task = tokio::spawn(writer.run(waiting, closing.clone()));
        (Self { queue, closing }, task)
    }

    /// Waits in line and for the outcome. Dropping the call leaves the publish to take effect or not.
    pub(super) async fn commit(&self, envelopes: Vec<NewEnvelope>) -> Answer {
        let (answer, outcome) = oneshot::channel();
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        self.queue.send(Waiting { envelopes, answer }).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }

    /// Lets in no more; what waits is still done.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }
}

struct Writer {
    pool: SqlitePool,
    statement_timeout: Duration,
    visible: watch::Sender<u64>,
}

impl Writer {
    async fn run(self, mut waiting: mpsc::Receiver<Waiting>, closing: CancellationToken) {
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(first) => first,
                None => tokio::select! {
                    first = waiting.recv() => match first {
                        Some(first) => first,
                        None => return,
                    },
                    () = closing.cancelled(), if !waiting.is_closed() => {
                        waiting.close();
                        continue;
                    }
                },
            };
            let (together, left_over) = fill(first, &mut waiting);
            next = left_over;
            self.serve(together).await;
        }
    }

    async fn serve(&self, mut together: Vec<Waiting>) {
        // Whoever went away while it waited in line asked for nothing any more.
        together.retain(|waiting| !waiting.answer.is_closed());
        let requests: Vec<&[NewEnvelope]> =
            together.iter().map(|waiting| waiting.envelopes.as_slice()).collect();
        let outcomes = match self.transaction(&requests).await {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            // A broken row that one of them met says nothing about the others.
            Err(StoreError::Corrupt(_)) if requests.len() > 1 => self.one_by_one(&requests).await,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        };
        self.visible.send_modify(|count| *count += 1);
        for (waiting, outcome) in together.into_iter().zip(outcomes) {
            // The caller may have gone by now; what was stored stays stored.
            let _ = waiting.answer.send(outcome);
        }
    }

    async fn one_by_one(&self, requests: &[&[NewEnvelope]]) -> Vec<Answer> {
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            let outcome = self.transaction(&[request]).await;
            outcomes.push(outcome.and_then(|mut outcomes| {
                outcomes.pop().ok_or_else(|| StoreError::Corrupt("a publish without outcome".to_owned()))
            }));
        }
        outcomes
    }

    /// All requests in one transaction. A connection that failed half way is thrown away.
    async fn transaction(&self, requests: &[&[NewEnvelope]]) -> Result<Vec<Committed>, StoreError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut conn = self.pool.acquire().await.map_err(failed)?;
        let work = attempt(&mut conn, requests);
        let outcome = tokio::time::timeout(self.statement_timeout, work)
            .await
            .unwrap_or(Err(StoreError::TimedOut(self.statement_timeout)));
        if outcome.is_err() {
            conn.close_on_drop();
        }
        outcome
    }
}

async fn attempt(
    conn: &mut PoolConnection<Sqlite>,
    requests: &[&[NewEnvelope]],
) -> Result<Vec<Committed>, StoreError> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    if requests.iter().all(|request| request.is_empty()) {
        // Somebody asks whether a publish would be taken; a full disk shows only to who writes.
        let write = sqlx::query("UPDATE backend_sequence SET last = last");
        write.execute(&mut *tx).await.map_err(failed)?;
    }
    let outcomes = write::publish(&mut tx, requests).await?;
    tx.commit().await.map_err(failed)?;
    Ok(outcomes)
}

/// Takes what already waits, as far as it may share a transaction with `first`; also the one that was
/// taken from the line and may not.
fn fill(first: Waiting, waiting: &mut mpsc::Receiver<Waiting>) -> (Vec<Waiting>, Option<Waiting>) {
    let (mut rows, mut bytes) = (first.envelopes.len(), first.bytes());
    let mut together = vec![first];
    while rows < SHARED_ROWS && bytes < SHARED_BYTES {
        let Ok(next) = waiting.try_recv() else { break };
        rows += next.envelopes.len();
        bytes += next.bytes();
        if rows > SHARED_ROWS || bytes > SHARED_BYTES {
            return (together, Some(next));
        }
        together.push(next);
    }
    (together, None)
}
