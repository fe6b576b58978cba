//! The default consumer: one item out at a time, acknowledged by asking for the next.

use std::time::Duration;

use highwater_store::{CommitGate, GateOutcome, Store, StoreError, WriteTx};
use highwater_wire::GroupId;
use tokio::sync::watch;

use crate::{
    ConsumerError, DeliveryCursor, DeliveryError, DeliveryNumber, Selection, StoredMessage,
    candidates::{exclude, first_candidate, first_passing, first_undelivered},
    ownership::{DEFAULT_CONSUMER_LEASE, Ownership, Token, owns, owns_or_retakes},
    position,
};

/// A message as it is handed out, by either reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The message.
    pub message: StoredMessage,
    /// Resumes strictly after it. Keeping it acknowledges nothing.
    pub cursor: DeliveryCursor,
}

/// How many delivery numbers one write transaction looks through.
const WINDOW: u64 = 1_024;

/// The one reader of a database that moves D (STR-023).
///
/// Asking for the next item acknowledges the last one. Whatever ends in another way acknowledges
/// nothing: dropping the consumer, [`release`](Self::release), an error, a crash; the item that was
/// out is then the first one of the next consumer.
///
/// # Cancellation
///
/// [`next`](Self::next), [`next_wait`](Self::next_wait) and [`acknowledge`](Self::acknowledge) can be
/// dropped at any time. Dropped before the acknowledgement is admitted to commit, nothing happened
/// and the item is still out. Dropped after that, it is acknowledged and nothing was handed out
/// (PROC-052). Either way the consumer can be used on.
///
/// Two tasks can't ask at once, which would acknowledge an item that one of them still has in hand:
///
/// ```compile_fail,E0499
/// # async fn both(mut consumer: highwater_delivery::DefaultConsumer) {
/// let (one, other) = (consumer.next(), consumer.next());
/// # drop((one.await, other.await));
/// # }
/// ```
#[derive(Debug)]
pub struct DefaultConsumer {
    store: Store,
    selection: Selection,
    ownership: Ownership,
    out: Option<Out>,
    /// Within the selection, everything at or below it is acknowledged, excluded or not eligible any
    /// more. Only spares looking again; D is what counts.
    floor: u64,
    wakes: watch::Receiver<u64>,
    ended: bool,
}

/// The item in the app's hands.
#[derive(Clone, Copy, Debug)]
struct Out {
    group: GroupId,
    number: DeliveryNumber,
}

/// What a write transaction did.
enum Turn {
    /// D covers the item that was out, and this is the next one.
    Handed(Box<StoredMessage>),
    /// D covers the item that was out; in this window nothing passes.
    Passed,
    /// Nothing: another owns.
    Lost,
}

impl DefaultConsumer {
    /// Becomes the default consumer of the database.
    ///
    /// Not cancel-safe in one respect: a call dropped at the wrong moment leaves an owner recorded
    /// that the next call finds dead and replaces.
    ///
    /// # Errors
    /// [`ConsumerError::AlreadyActive`] while another one lives, in this process or any other; when
    /// the lock file or the database fails.
    pub async fn acquire(store: Store, selection: Selection) -> Result<Self, ConsumerError> {
        Self::acquire_for(DEFAULT_CONSUMER_LEASE, store, selection).await
    }

    /// [`acquire`](Self::acquire) with another lease than [`DEFAULT_CONSUMER_LEASE`]. All consumers of a
    /// database should use the same; the client has no setting for it (STR-079).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_for(
        lease: Duration,
        store: Store,
        selection: Selection,
    ) -> Result<Self, ConsumerError> {
        let ownership = Ownership::acquire(&store, lease).await?;
        let floor = start(&store).await?;
        let wakes = store.wakes();
        Ok(Self { store, selection, ownership, out: None, floor, wakes, ended: false })
    }

    /// Acknowledges the item that is out, if any, and hands out the next one that is stored:
    /// the first above D in delivery order, in scope, eligible and past the filter at this moment.
    /// `None` when there is none now. See the type about cancellation.
    ///
    /// # Errors
    /// When another consumer took over, or the database fails. Either ends this consumer.
    pub async fn next(&mut self) -> Result<Option<Item>, ConsumerError> {
        self.check_open()?;
        let found = self.find_next().await;
        self.end_if_failed(found)
    }

    /// [`next`](Self::next), waiting for an item to be stored if need be: by this process, by
    /// another or by an import, with or without a network (STR-101). See the type about cancellation.
    ///
    /// # Errors
    /// When another consumer took over, or the database fails or is closed. Either ends this
    /// consumer.
    pub async fn next_wait(&mut self) -> Result<Item, ConsumerError> {
        loop {
            // Marked seen before looking, so that a commit in between wakes again.
            self.wakes.borrow_and_update();
            if let Some(item) = self.next().await? {
                return Ok(item);
            }
            tokio::select! {
                changed = self.wakes.changed() => if changed.is_err() {
                    return self.end_if_failed(Err(StoreError::Closed.into()));
                },
                error = self.ownership.failed() => return self.end_if_failed(Err(error.into())),
            }
        }
    }

    /// Resolves when the lease could not be renewed, which ends this consumer with that cause (PROC-040). Whoever waits for
    /// something else than [`next_wait`](Self::next_wait) has to wait for this as well. Cancel-safe.
    pub async fn failed(&mut self) -> ConsumerError {
        let error = self.ownership.failed().await;
        self.end();
        error.into()
    }

    /// Acknowledges the item that is out without asking for another: a callback returned. See the
    /// type about cancellation.
    ///
    /// # Errors
    /// When another consumer took over, or the database fails. Either ends this consumer.
    pub async fn acknowledge(&mut self) -> Result<(), ConsumerError> {
        self.check_open()?;
        let acknowledged = self.acknowledge_out().await;
        self.end_if_failed(acknowledged)
    }

    /// The item that is out and not acknowledged.
    pub fn out(&self) -> Option<DeliveryCursor> {
        self.out.map(|out| DeliveryCursor::after(self.store.database_id(), out.number))
    }

    /// Replaces scope and filters from the next handoff on. The item that is out stays out; D stays,
    /// so a group that comes back into scope goes on from its own D (STR-022, STR-092).
    ///
    /// # Errors
    /// When the database fails; that ends this consumer.
    pub async fn select(&mut self, selection: Selection) -> Result<(), ConsumerError> {
        self.check_open()?;
        let floor = start(&self.store).await;
        self.floor = self.end_if_failed(floor)?;
        self.selection = selection;
        Ok(())
    }

    /// Closes the consumer: another can be acquired at once. The item that is out is not
    /// acknowledged.
    ///
    /// # Errors
    /// When the database fails; ownership then ends by the lock that is freed all the same.
    pub async fn release(self) -> Result<(), ConsumerError> {
        let Self { store, ownership, .. } = self;
        ownership.release(&store).await
    }

    fn check_open(&self) -> Result<(), ConsumerError> {
        if self.ended { Err(ConsumerError::Ended) } else { Ok(()) }
    }

    /// The first error is the last thing that happens here (PROC-040). Another consumer can be had at
    /// once, also while the app keeps this one.
    fn end_if_failed<T>(&mut self, done: Result<T, ConsumerError>) -> Result<T, ConsumerError> {
        if done.is_err() {
            self.end();
        }
        done
    }

    fn end(&mut self) {
        self.ended = true;
        self.ownership.let_go();
    }

    async fn acknowledge_out(&mut self) -> Result<(), ConsumerError> {
        self.ownership.check()?;
        if self.out.is_none() {
            return Ok(());
        }
        match self.turn(false).await? {
            Turn::Lost => return Err(ConsumerError::OwnershipLost),
            Turn::Handed(_) | Turn::Passed => self.settle_out(),
        }
        Ok(())
    }

    async fn find_next(&mut self) -> Result<Option<Item>, ConsumerError> {
        self.ownership.check()?;
        loop {
            // Idle looks don't take the writer.
            if self.out.is_none() && !self.look_ahead().await? {
                return Ok(None);
            }
            match self.turn(true).await? {
                Turn::Handed(message) => return self.hand_out(*message).map(Some),
                Turn::Passed => self.settle_out(),
                Turn::Lost => return Err(ConsumerError::OwnershipLost),
            }
        }
    }

    fn hand_out(&mut self, message: StoredMessage) -> Result<Item, ConsumerError> {
        let number = message
            .delivery_number
            .ok_or(DeliveryError::Damaged("an eligible message has no delivery number"))?;
        self.settle_out();
        self.out = Some(Out { group: message.group, number });
        Ok(Item { message, cursor: DeliveryCursor::after(self.store.database_id(), number) })
    }

    /// The item that was out is acknowledged.
    fn settle_out(&mut self) {
        if let Some(out) = self.out.take() {
            self.floor = self.floor.max(out.number.get());
        }
    }

    /// Moves the floor to just below the first message in scope that D doesn't cover; `false` when
    /// there is none. A consumer that has nothing to do learns here that another took over.
    async fn look_ahead(&mut self) -> Result<bool, ConsumerError> {
        let (selection, floor, token) = (self.selection.clone(), self.floor, self.ownership.token());
        let (next, last) = self
            .store
            .read("consumer look", move |tx| {
                Box::pin(async move {
                    if !owns(tx, token).await? {
                        return Ok(None);
                    }
                    first_candidate(tx, &selection, floor).await.map(Some)
                })
            })
            .await
            .map_err(ConsumerError::Delivery)?
            .ok_or(ConsumerError::OwnershipLost)?;
        self.floor = next.map_or(last, |next| next - 1).max(floor);
        Ok(next.is_some())
    }

    /// One write transaction: token, acknowledgement, exclusions, selection. All of it or nothing,
    /// decided at the commit gate, which the store closes when this future is dropped.
    async fn turn(&self, and_next: bool) -> Result<Turn, ConsumerError> {
        let attempt = Attempt {
            token: self.ownership.token(),
            lease: self.ownership.lease(),
            out: self.out,
            next: and_next.then(|| self.selection.clone()),
            floor: self.out.map_or(self.floor, |out| self.floor.max(out.number.get())),
        };
        let outcome = self
            .store
            .write_gated("consumer turn", CommitGate::pending(), move |tx| {
                Box::pin(async move { attempt.run(tx).await })
            })
            .await
            .map_err(ConsumerError::Delivery)?;
        match outcome {
            GateOutcome::Committed(turn) => Ok(turn),
            // Only dropping this future closes the gate.
            GateOutcome::Cancelled => Err(ConsumerError::Ended),
        }
    }
}

/// What a turn takes along into its transaction.
struct Attempt {
    token: Token,
    lease: Duration,
    out: Option<Out>,
    next: Option<Selection>,
    floor: u64,
}

impl Attempt {
    async fn run(self, tx: &mut WriteTx) -> Result<Turn, DeliveryError> {
        if !owns_or_retakes(tx, self.token, self.lease).await? {
            return Ok(Turn::Lost);
        }
        if let Some(out) = self.out {
            position::advance(tx, out.group, out.number).await?;
        }
        let Some(selection) = self.next else {
            return Ok(Turn::Passed);
        };
        let end = self.floor.saturating_add(WINDOW);
        let found = first_passing(tx, &selection, self.floor, end).await?;
        if selection.filters() {
            let through = found.as_ref().and_then(|message| message.delivery_number);
            let through = through.map_or(end, |number| number.get() - 1);
            exclude(tx, &selection, self.floor, through).await?;
        }
        Ok(found.map_or(Turn::Passed, |message| Turn::Handed(Box::new(message))))
    }
}

/// Where a consumer with any selection may start to look.
async fn start(store: &Store) -> Result<u64, ConsumerError> {
    store
        .read("consumer start", |tx| Box::pin(async move { first_undelivered(tx).await }))
        .await
        .map_err(ConsumerError::Delivery)
}
