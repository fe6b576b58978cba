//! The default consumer as an app sees it.

use highwater_delivery::{DefaultConsumer, Selection};
use highwater_sync::{CatchUp, ConnectionState, Interest, Scope};
use tokio::sync::watch;

use crate::selection::{network_scope, require_known};
use crate::{Client, Error, Item, Message};

/// Hands out messages one at a time, and remembers which the app has handled.
///
/// Asking for the next item acknowledges the one before. Dropping the stream acknowledges nothing: the item that was out
/// comes again.
pub struct MessageStream {
    client: Client,
    scope: Scope,
    consumer: Option<DefaultConsumer>,
    /// Keeps the selected topics registered. Absent without a backend.
    interest: Option<Interest>,
    wakes: watch::Receiver<u64>,
}

impl MessageStream {
    pub(crate) async fn open(client: Client, selection: Selection) -> Result<Self, Error> {
        require_known(&client, &selection).await?;
        let scope = network_scope(&selection);
        let wakes = client.store().wakes();
        let consumer = DefaultConsumer::acquire(client.store().clone(), selection).await?;
        let interest = interest(&client, &scope).await?;
        Ok(Self { client, scope, consumer: Some(consumer), interest, wakes })
    }

    /// Acknowledges the last item and waits for the next one. `None` after [`close`](Self::close) or an error.
    ///
    /// Cancel-safe: no item is lost. A call dropped before the acknowledgement was committed leaves the last item
    /// unacknowledged, one dropped after that hands out nothing; the next call goes on from there.
    ///
    /// # Errors
    /// Once, and the stream is over then: the database failed, ownership was lost, or the backend could not be reached
    /// for too long ([`Error::RecoveryExhausted`]).
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        match self.try_next().await {
            Ok(item) => item.map(Ok),
            Err(error) => {
                // The consumer's own end releases what it owns; nothing of this stream can hand out an item any more.
                self.end().await;
                Some(Err(error))
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<Item>, Error> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(None);
        };
        loop {
            self.wakes.mark_unchanged();
            if let Some(item) = consumer.next().await? {
                let database = self.client.database_id();
                return Ok(Some(Item { cursor: item.cursor, message: Message::new(database, item.message) }));
            }
            tokio::select! {
                changed = self.wakes.changed() => changed.map_err(|_| Error::Closed)?,
                () = exhausted(&mut self.interest) => return Err(Error::RecoveryExhausted),
            }
        }
    }

    /// Acknowledges the last item without asking for another: for an app that stops after it has handled one.
    ///
    /// # Errors
    /// When the acknowledgement can't be stored: the item comes again, and the stream is over.
    pub async fn acknowledge(&mut self) -> Result<(), Error> {
        let Some(consumer) = &mut self.consumer else {
            return Ok(());
        };
        if let Err(error) = consumer.acknowledge().await {
            self.end().await;
            return Err(error.into());
        }
        Ok(())
    }

    /// A snapshot of how far the selected topics are, and on what connection (STR-025).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn catch_up(&self) -> Result<CatchUp, Error> {
        Ok(self.client.engine().await?.catch_up(&self.scope).await?)
    }

    /// The connection's state, now and after each change (PROC-044).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn connection_state(&self) -> Result<watch::Receiver<ConnectionState>, Error> {
        Ok(self.client.engine().await?.connection_state())
    }

    /// Ends the stream and gives its ownership up. The item that is out is not acknowledged by this.
    pub async fn close(mut self) {
        self.end().await;
    }

    async fn end(&mut self) {
        self.interest = None;
        if let Some(consumer) = self.consumer.take()
            && let Err(error) = consumer.release().await
        {
            tracing::warn!(%error, "the consumer's ownership could not be released; it ends with its lease");
        }
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Network interest in a scope, where there is a backend.
pub(crate) async fn interest(client: &Client, scope: &Scope) -> Result<Option<Interest>, Error> {
    if !client.has_backend() {
        return Ok(None);
    }
    Ok(Some(client.engine().await?.interest(scope.clone())))
}

/// Resolves when the interest's recovery budget is spent; never without a backend.
pub(crate) async fn exhausted(interest: &mut Option<Interest>) {
    match interest {
        Some(interest) => interest.exhausted().await,
        None => std::future::pending().await,
    }
}
