//! The place where a session's next frame waits for the transport: one frame at most, so that
//! "taken" means that the transport asked for it (STR-034).

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use futures::Stream;
use tokio::sync::Notify;
use tonic::Status;

use crate::{metrics::Metrics, session::Frame};

#[derive(Debug, Default)]
struct Slot {
    frame: Option<Frame>,
    end: Option<Option<Status>>,
    dropped: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's side.
#[derive(Debug)]
pub(crate) struct Handoff(Arc<Shared>);

/// The transport's side: the response stream, in whichever form `M` gives frames.
#[derive(Debug)]
pub(crate) struct Outlet<M> {
    shared: Arc<Shared>,
    form: fn(Frame, u32) -> M,
    keepalive_ms: u32,
    metrics: Metrics,
}

/// What became of the last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// The transport has it.
    Taken,
    /// The transport is gone.
    Dropped,
}

/// Makes both sides.
pub(crate) fn handoff<M>(
    form: fn(Frame, u32) -> M,
    keepalive_ms: u32,
    metrics: Metrics,
) -> (Handoff, Outlet<M>) {
    let shared = Arc::new(Shared::default());
    (Handoff(Arc::clone(&shared)), Outlet { shared, form, keepalive_ms, metrics })
}

impl Handoff {
    /// Offers a frame. The slot must be empty.
    pub(crate) fn offer(&self, frame: Frame) {
        let waker = {
            let mut slot = self.0.lock();
            debug_assert!(slot.frame.is_none(), "the last frame was not taken");
            slot.frame = Some(frame);
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until the slot is empty or the transport gone. Cancel-safe.
    pub(crate) async fn handed(&self) -> Handed {
        loop {
            let changed = self.0.changed.notified();
            {
                let slot = self.0.lock();
                if slot.dropped {
                    return Handed::Dropped;
                }
                if slot.frame.is_none() {
                    return Handed::Taken;
                }
            }
            changed.await;
        }
    }

    /// Waits until the transport is gone. Cancel-safe.
    pub(crate) async fn dropped(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.0.lock().dropped {
                return;
            }
            changed.await;
        }
    }

    /// Ends the stream, with OK for `None`. A frame that was not taken is discarded.
    pub(crate) fn finish(&self, status: Option<Status>) {
        let waker = {
            let mut slot = self.0.lock();
            slot.frame = None;
            slot.end.get_or_insert(status);
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Handoff {
    /// A driver that vanished must not leave its reader waiting.
    fn drop(&mut self) {
        self.finish(Some(Status::unavailable("the stream's session is gone")));
    }
}

impl<M> Stream for Outlet<M> {
    type Item = Result<M, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut slot = self.shared.lock();
        if let Some(frame) = slot.frame.take() {
            drop(slot);
            self.shared.changed.notify_waiters();
            self.metrics.handed(&frame);
            return Poll::Ready(Some(Ok((self.form)(frame, self.keepalive_ms))));
        }
        match &mut slot.end {
            Some(status) => Poll::Ready(status.take().map(Err)),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<M> Drop for Outlet<M> {
    fn drop(&mut self) {
        self.shared.lock().dropped = true;
        self.shared.changed.notify_waiters();
    }
}
