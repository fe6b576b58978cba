//! What has arrived on a session and hasn't been taken: how much of it there may be.

use std::sync::Arc;

use highwater_wire::OrderedPrefix;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Envelopes that may have arrived on a session without having been taken. One frame is taken in whole even if it alone
/// has more.
pub const MAX_FETCHED_ROWS: usize = 256;
/// Bytes, payloads and metadata, that may have arrived on a session without having been taken.
pub const MAX_FETCHED_BYTES: u64 = 64 * 1024 * 1024;

const BYTES_PER_PERMIT: u64 = 1024;
const BYTE_PERMITS: u32 = (MAX_FETCHED_BYTES / BYTES_PER_PERMIT) as u32;

/// An event with its share of the budget, given back when it is taken.
#[derive(Debug)]
pub(crate) struct Buffered<E> {
    pub(crate) event: E,
    pub(crate) _share: Option<Share>,
}

impl<E> From<E> for Buffered<E> {
    fn from(event: E) -> Self {
        Self { event, _share: None }
    }
}

#[derive(Debug)]
pub(crate) struct Share {
    _rows: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// Bounds what has arrived and wasn't taken.
#[derive(Debug)]
pub(crate) struct Budget {
    rows: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            rows: Arc::new(Semaphore::new(MAX_FETCHED_ROWS)),
            bytes: Arc::new(Semaphore::new(BYTE_PERMITS as usize)),
        }
    }

    /// Waits for room. What exceeds the whole budget waits for all of it.
    async fn share(&self, prefixes: &[OrderedPrefix]) -> Option<Share> {
        let rows: usize = prefixes.iter().map(OrderedPrefix::len).sum();
        let bytes: u64 = prefixes.iter().map(OrderedPrefix::stored_bytes).sum();
        let rows = rows.min(MAX_FETCHED_ROWS) as u32;
        let bytes = bytes.div_ceil(BYTES_PER_PERMIT).min(BYTE_PERMITS.into()) as u32;
        Some(Share {
            _rows: Arc::clone(&self.rows).acquire_many_owned(rows).await.ok()?,
            _bytes: Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()?,
        })
    }
}

/// Waits for room for what a driver holds back, if it holds anything.
pub(crate) async fn room(budget: &Budget, held: Option<&[OrderedPrefix]>) -> Option<Share> {
    budget.share(held?).await
}
