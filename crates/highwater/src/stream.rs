//! The default consumer as an app sees it.

use highwater_delivery::{DefaultConsumer, Selection};
use highwater_sync::{CatchUp, ConnectionState};
use tokio::sync::watch;

use crate::ending::{Ending, Hooks};
use crate::handoff::Handoffs;
use crate::live::Live;
use crate::selection::network_scope;
use crate::{CatchUpChanges, Client, CloseReason, Error, Handoff, HandoffError, Item};

/// Hands out messages one at a time, and remembers which the app has handled.
///
/// Asking for the next item acknowledges the one before. Dropping the stream acknowledges nothing: the item that was out
/// comes again.
pub struct MessageStream {
    live: Live,
    consumer: Option<DefaultConsumer>,
    handoffs: Handoffs,
    ending: Ending,
    /// The error of a read that was dropped before it could tell.
    untold: Option<Error>,
}

impl MessageStream {
    pub(crate) async fn open(client: Client, selection: Selection, hooks: Hooks) -> Result<Self, Error> {
        let mut live = Live::local(client, network_scope(&selection));
        let consumer = DefaultConsumer::acquire(live.client.store().clone(), selection).await?;
        live.attach().await?;
        let (handoffs, ending) = (Handoffs::new(), Ending::new(hooks));
        Ok(Self { live, consumer: Some(consumer), handoffs, ending, untold: None })
    }

    /// Acknowledges the last item and waits for the next one. `None` after [`close`](Self::close) or an error.
    ///
    /// Cancel-safe: no item is lost. A call dropped before the acknowledgement was committed leaves the last item
    /// unacknowledged, one dropped after that hands out nothing; the next call goes on from there.
    ///
    /// # Errors
    /// Once, and the stream is over then: the database failed, ownership was lost, the backend could not be reached for
    /// too long ([`Error::RecoveryExhausted`]), or refuses this client ([`Error::is_refused`]).
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        let next = self.after(self.handoffs.out()).await;
        Some(self.end_if_failed(next).await?.map(|(item, _)| item))
    }

    /// Waits for the next item and acknowledges nothing: for wrappers that have the app's answer brought to them. The
    /// handoff goes wherever the item goes, and comes back to [`acknowledge_handoff`](Self::acknowledge_handoff).
    ///
    /// # Errors
    /// [`Error::Handoff`] while an item is out, and the stream goes on; else as [`next`](Self::next).
    pub async fn hand_out(&mut self) -> Option<Result<(Item, Handoff), Error>> {
        let next = self.after(None).await;
        self.end_if_failed(next).await
    }

    /// Acknowledges the item that was handed out with this handoff. The app has asked for the next one, or has returned
    /// from its callback; that the item was put into a queue or taken from it is no reason to call this.
    ///
    /// # Errors
    /// [`Error::Handoff`] when its item isn't out, or another stream handed it out: nothing changes then, and the stream
    /// goes on. When the acknowledgement can't be stored: the item comes again, and the stream is over.
    pub async fn acknowledge_handoff(&mut self, handoff: Handoff) -> Result<(), Error> {
        let acknowledged = self.settle(handoff).await;
        match self.end_if_failed(acknowledged.map(|()| Some(()))).await {
            Some(result) => result,
            None => Ok(()),
        }
    }

    /// Acknowledges the last item without asking for another: for an app that stops after it has handled one.
    ///
    /// # Errors
    /// When the acknowledgement can't be stored: the item comes again, and the stream is over. [`Error::Handoff`] when the
    /// stream was over before: the item comes again too.
    pub async fn acknowledge(&mut self) -> Result<(), Error> {
        match self.handoffs.out() {
            Some(out) => self.acknowledge_handoff(out).await,
            None => Ok(()),
        }
    }

    /// The next item, after what was given back is acknowledged in the same transaction.
    async fn after(&mut self, given_back: Option<Handoff>) -> Result<Option<(Item, Handoff)>, Error> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(None);
        };
        match given_back {
            Some(given_back) => self.handoffs.check(given_back)?,
            None => self.handoffs.check_none_out()?,
        }
        loop {
            self.live.looking();
            let found = consumer.next().await?;
            self.handoffs.settle();
            if let Some(item) = found {
                let message = self.live.client.read_message(item.message);
                return Ok(Some((Item { cursor: item.cursor, message }, self.handoffs.give())));
            }
            tokio::select! {
                changed = self.live.changed() => changed?,
                error = consumer.failed() => return Err(error.into()),
            }
        }
    }

    async fn settle(&mut self, given_back: Handoff) -> Result<(), Error> {
        self.handoffs.check(given_back)?;
        let Some(consumer) = &mut self.consumer else {
            // What was out when the stream ended comes again.
            return Err(HandoffError::Stale.into());
        };
        consumer.acknowledge().await?;
        self.handoffs.settle();
        Ok(())
    }

    /// The first error is the last thing that happens here, and is told to a read even when the one that met it was
    /// dropped. It is told once nothing of the stream is left, so that the next one can be opened on it. A handoff that
    /// can't be used is the caller's error, and no end.
    async fn end_if_failed<T>(&mut self, done: Result<Option<T>, Error>) -> Option<Result<T, Error>> {
        match done {
            Ok(_) if self.untold.is_some() => {}
            Ok(done) => return done.map(Ok),
            Err(error @ Error::Handoff(_)) => return Some(Err(error)),
            Err(error) => self.untold = Some(error),
        }
        self.let_go().await;
        self.untold.take().map(|error| Err(self.ending.fail(error)))
    }

    /// A snapshot of how far the selected topics are, and on what connection (STR-025).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn catch_up(&self) -> Result<CatchUp, Error> {
        self.live.catch_up().await
    }

    /// [`catch_up`](Self::catch_up) now and after each change, until the stream ends.
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn catch_up_changes(&self) -> Result<CatchUpChanges, Error> {
        self.live.catch_up_changes(self.ending.watch()).await
    }

    /// The connection's state, now and after each change (PROC-044).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn connection_state(&self) -> Result<watch::Receiver<ConnectionState>, Error> {
        self.live.connection_state().await
    }

    /// Ends the stream and gives its ownership up. The item that is out is not acknowledged by this.
    pub async fn close(self) {
        self.end(CloseReason::Closed).await;
    }

    /// Ends for this reason, or for an error that was there before and not told. Gives back which it was.
    pub(crate) async fn end(mut self, reason: CloseReason) -> CloseReason {
        self.let_go().await;
        let reason = match self.untold.take() {
            Some(error) => CloseReason::Failed(self.ending.fail(error)),
            None => reason,
        };
        self.ending.come(&reason);
        reason
    }

    async fn let_go(&mut self) {
        self.live.detach();
        if let Some(consumer) = self.consumer.take()
            && let Err(error) = consumer.release().await
        {
            tracing::warn!(%error, "the consumer's ownership could not be released; it ends with its lease");
        }
    }
}

impl Drop for MessageStream {
    fn drop(&mut self) {
        self.live.detach();
        self.consumer = None;
        if let Some(error) = self.untold.take() {
            self.ending.fail(error);
        }
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").field("scope", &self.live.scope).finish_non_exhaustive()
    }
}
