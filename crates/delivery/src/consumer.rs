//! The default consumer: one item out at a time, acknowledged by asking for the next.

use highwater_store::{CommitGate, GateOutcome, Reads, Store, StoreError, WriteTx};
use highwater_wire::GroupId;
use sqlx::{QueryBuilder, Row as _};
use tokio::sync::watch;

use crate::{
    ConsumerError, DeliveryCursor, DeliveryError, DeliveryNumber, Selection, StoredMessage,
    message::{COLUMNS, from_row},
    ownership::{Ownership, Standing, Token, standing},
    position,
    selection::{FROM, push_eligible},
};

/// A message as it is handed out, by either reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The message.
    pub message: StoredMessage,
    /// Resumes strictly after it. Keeping it acknowledges nothing.
    pub cursor: DeliveryCursor,
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// D covers the item, or nothing was out.
    Stored,
    /// The lease had run out before, without anyone taking over. The consumer owns again, and the
    /// item comes once more, with the same id and cursor.
    Repeats,
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
    /// Nothing: the token is worth no more than this.
    Not(Standing),
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
        let ownership = Ownership::acquire(&store).await?;
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
            if self.wakes.changed().await.is_err() {
                self.ended = true;
                return Err(StoreError::Closed.into());
            }
        }
    }

    /// Acknowledges the item that is out without asking for another: a callback returned. See the
    /// type about cancellation.
    ///
    /// # Errors
    /// When another consumer took over, or the database fails. Either ends this consumer.
    pub async fn acknowledge(&mut self) -> Result<Acknowledgement, ConsumerError> {
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

    /// The first error is the last thing that happens here (PROC-040).
    fn end_if_failed<T>(&mut self, done: Result<T, ConsumerError>) -> Result<T, ConsumerError> {
        self.ended = done.is_err();
        done
    }

    async fn acknowledge_out(&mut self) -> Result<Acknowledgement, ConsumerError> {
        if self.out.is_none() {
            return Ok(Acknowledgement::Stored);
        }
        match self.turn(false).await? {
            Turn::Not(standing) => {
                self.regain(standing).await?;
                Ok(Acknowledgement::Repeats)
            }
            Turn::Handed(_) | Turn::Passed => {
                self.settle_out();
                Ok(Acknowledgement::Stored)
            }
        }
    }

    async fn find_next(&mut self) -> Result<Option<Item>, ConsumerError> {
        loop {
            // Idle looks don't take the writer.
            if self.out.is_none() && !self.look_ahead().await? {
                return Ok(None);
            }
            match self.turn(true).await? {
                Turn::Handed(message) => return self.hand_out(*message).map(Some),
                Turn::Passed => self.settle_out(),
                Turn::Not(standing) => self.regain(standing).await?,
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

    /// After a turn that did nothing for want of ownership. What was out comes again.
    async fn regain(&mut self, standing: Standing) -> Result<(), ConsumerError> {
        if standing == Standing::Lost {
            return Err(ConsumerError::OwnershipLost);
        }
        self.ownership.reacquire(&self.store).await?;
        tracing::info!("the consumer's lease had run out; it owns again");
        self.out = None;
        Ok(())
    }

    /// Moves the floor to just below the first message in scope that D doesn't cover; `false` when
    /// there is none.
    async fn look_ahead(&mut self) -> Result<bool, ConsumerError> {
        let (selection, floor) = (self.selection.clone(), self.floor);
        let (next, last) = self
            .store
            .read("consumer look", move |tx| {
                Box::pin(async move { first_candidate(tx, &selection, floor).await })
            })
            .await
            .map_err(ConsumerError::Delivery)?;
        self.floor = next.map_or(last, |next| next - 1).max(floor);
        Ok(next.is_some())
    }

    /// One write transaction: token, acknowledgement, exclusions, selection. All of it or nothing,
    /// decided at the commit gate, which the store closes when this future is dropped.
    async fn turn(&self, and_next: bool) -> Result<Turn, ConsumerError> {
        let attempt = Attempt {
            token: self.ownership.token,
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
    out: Option<Out>,
    next: Option<Selection>,
    floor: u64,
}

impl Attempt {
    async fn run(self, tx: &mut WriteTx) -> Result<Turn, DeliveryError> {
        match standing(tx, self.token).await? {
            Standing::Owner => {}
            standing => return Ok(Turn::Not(standing)),
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

/// One less than the first delivery number that some D doesn't cover. Reads indexes only, so that
/// opening costs by the number of groups and not of messages.
async fn first_undelivered(tx: &mut impl Reads) -> Result<u64, DeliveryError> {
    let row = sqlx::query(
        "SELECT min((SELECT min(m.delivery_number) FROM delivery_messages AS m \
                     WHERE m.group_id = c.group_id \
                       AND m.delivery_number > coalesce(p.delivered, 0))) \
         FROM delivery_conversations AS c \
         LEFT JOIN delivery_positions AS p ON p.group_id = c.group_id",
    )
    .fetch_one(tx.conn())
    .await?;
    match row.try_get::<Option<i64>, _>(0)? {
        Some(first) => Ok(DeliveryNumber::from_stored(first)?.get() - 1),
        None => position::last_number(tx).await,
    }
}

const ABOVE_D: &str = "m.delivery_number > coalesce((SELECT p.delivered FROM delivery_positions AS p \
     WHERE p.group_id = m.group_id), 0)";

fn push_candidates(query: &mut QueryBuilder<sqlx::Sqlite>, selection: &Selection, now_ns: i64) {
    query.push(" AND ");
    push_eligible(query, now_ns);
    query.push(" AND ");
    selection.push_scope(query);
    query.push(" AND ").push(ABOVE_D);
}

/// The first candidate above `floor`, filtered or not, and the last number given out.
async fn first_candidate(
    tx: &mut impl Reads,
    selection: &Selection,
    floor: u64,
) -> Result<(Option<u64>, u64), DeliveryError> {
    let last = position::last_number(tx).await?;
    if last <= floor {
        return Ok((None, last));
    }
    let mut query = QueryBuilder::new("SELECT m.delivery_number");
    query.push(FROM).push("WHERE m.delivery_number > ").push_bind(floor as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" ORDER BY m.delivery_number LIMIT 1");
    let row = query.build().fetch_optional(tx.conn()).await?;
    let next = row.map(|row| DeliveryNumber::from_stored(row.try_get(0)?)).transpose()?;
    Ok((next.map(DeliveryNumber::get), last))
}

async fn first_passing(
    tx: &mut WriteTx,
    selection: &Selection,
    floor: u64,
    end: u64,
) -> Result<Option<StoredMessage>, DeliveryError> {
    let mut query = QueryBuilder::new("SELECT ");
    query.push(COLUMNS).push(FROM);
    query.push("WHERE m.delivery_number > ").push_bind(floor as i64);
    query.push(" AND m.delivery_number <= ").push_bind(end as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" AND ");
    selection.push_filter(&mut query);
    query.push(" ORDER BY m.delivery_number LIMIT 1");
    query.build().fetch_optional(tx.conn()).await?.as_ref().map(from_row).transpose()
}

/// Moves D over the candidates that the filter excludes, from above `floor` through `through`
/// (STR-093).
async fn exclude(
    tx: &mut WriteTx,
    selection: &Selection,
    floor: u64,
    through: u64,
) -> Result<(), DeliveryError> {
    let mut query = QueryBuilder::new(
        "INSERT INTO delivery_positions (group_id, delivered) \
         SELECT m.group_id, max(m.delivery_number)",
    );
    query.push(FROM);
    query.push("WHERE m.delivery_number > ").push_bind(floor as i64);
    query.push(" AND m.delivery_number <= ").push_bind(through as i64);
    push_candidates(&mut query, selection, tx.now_ns());
    query.push(" AND NOT ");
    selection.push_filter(&mut query);
    query.push(
        " GROUP BY m.group_id \
         ON CONFLICT (group_id) DO UPDATE SET delivered = excluded.delivered \
         WHERE excluded.delivered > delivery_positions.delivered",
    );
    query.build().execute(tx.conn()).await?;
    Ok(())
}
