//! Who is the default consumer (STR-096, PROC-031).
//!
//! Ownership is a row, a token with an expiry, and a lock file that the owner keeps locked while it
//! lives. The operating system frees the lock when the owner's process ends, however it ends. So a
//! free lock means that the owner is dead, and its successor need not wait; a held lock with an
//! expired lease means that it is frozen, and its successor may go on without it.
//!
//! A successor of a frozen owner can't have the same lock, and must not do without one, or it would
//! pass for dead. So there are several lock files, and the row names the owner's. Nothing here removes
//! one: a file that is unlinked and made again would be two locks of one name. Something else may have
//! removed the owner's, which then says nothing: its owner keeps its lease as one that holds its lock
//! does. A lock file is made only by whoever takes a lock anew, never to ask about the owner.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use highwater_store::{Kept, Reads, Store, WriteTx};
use sqlx::Row as _;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{ConsumerError, DeliveryError};

/// How long ownership lasts without being renewed. It is renewed every third of this.
pub const DEFAULT_CONSUMER_LEASE: Duration = Duration::from_secs(30);

/// Lock files: one for the owner, the others for as many frozen predecessors.
const SLOTS: u32 = 64;

/// The row of the default consumer, as anyone can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerOwner {
    /// The operating system's id of its process.
    pub process: u32,
    /// When it became the owner, nanoseconds since the Unix epoch.
    pub acquired_ns: i64,
    /// When its lease ends unless renewed, nanoseconds since the Unix epoch.
    pub until_ns: i64,
}

/// Who is recorded as the default consumer. An owner that died without closing stays recorded until
/// the next one takes over.
///
/// # Errors
/// When the database fails.
pub async fn owner(tx: &mut impl Reads) -> Result<Option<ConsumerOwner>, DeliveryError> {
    Ok(stored(tx).await?.map(|stored| stored.owner))
}

/// What makes an owner: every change of D names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token([u8; 16]);

impl Token {
    fn fresh() -> Self {
        Self(rand::random())
    }
}

struct Stored {
    token: Token,
    slot: u32,
    owner: ConsumerOwner,
}

async fn stored(tx: &mut impl Reads) -> Result<Option<Stored>, DeliveryError> {
    let row = sqlx::query("SELECT token, slot, process, acquired_ns, expires_ns FROM delivery_consumer")
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let token = <[u8; 16]>::try_from(row.try_get::<&[u8], _>(0)?)
        .map_err(|_| DeliveryError::Damaged("the consumer's token has the wrong length"))?;
    let owner =
        ConsumerOwner { process: row.try_get(2)?, acquired_ns: row.try_get(3)?, until_ns: row.try_get(4)? };
    Ok(Some(Stored { token: Token(token), slot: row.try_get(1)?, owner }))
}

/// A held lock file. Freed when dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    slot: u32,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would not do: a child that this process is just starting has the file too until it runs its
        // own program, and the lock is held as long as anybody has it.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the consumer's lock file could not be unlocked; closing it is left to free it");
        }
    }
}

/// The lock file of a slot, beside the database.
fn lock_path(database: &Path, slot: u32) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push(".consumer");
    if slot > 0 {
        name.push(format!(".{slot}"));
    }
    name.into()
}

/// `None` when another holds it.
fn try_lock(file: File, slot: u32) -> Result<Option<Lock>, ConsumerError> {
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock { file, slot })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(ConsumerError::Lock(error)),
    }
}

/// The lock of an owner that is gone. `None` when it holds the lock, and when there is no such file: it was removed, and
/// its owner may live.
fn lock_of_the_dead(database: &Path, slot: u32) -> Result<Option<Lock>, ConsumerError> {
    match OpenOptions::new().write(true).open(lock_path(database, slot)) {
        Ok(file) => try_lock(file, slot),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ConsumerError::Lock(error)),
    }
}

fn any_lock(database: &Path) -> Result<Lock, ConsumerError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    for slot in 0..SLOTS {
        let file = options.open(lock_path(database, slot)).map_err(ConsumerError::Lock)?;
        if let Some(lock) = try_lock(file, slot)? {
            return Ok(lock);
        }
    }
    Err(ConsumerError::NoLockFree)
}

/// What became of the wish to be the owner.
pub(crate) enum Acquired {
    Owner(Token, Lock),
    Refused(ConsumerError),
}

/// Becomes the owner, or says who is. The lock is tried inside the transaction: the writer is what
/// keeps two successors of one dead owner apart. The file is looked for there too, since a closed store
/// lets no transaction begin: one whose file was moved away says that it is closed.
async fn acquire(tx: &mut WriteTx, opened_as: &Path, lease: Duration) -> Result<Acquired, ConsumerError> {
    // By whatever name the file was opened, its lock files are the same.
    let database = &std::fs::canonicalize(opened_as).map_err(ConsumerError::Lock)?;
    let until_ns = end_of(lease, tx.now_ns());
    let lock = match stored(tx).await? {
        None => any_lock(database)?,
        Some(Stored { token, slot, owner }) => match lock_of_the_dead(database, slot)? {
            Some(lock) => {
                tracing::info!(process = owner.process, "taking over from a consumer that is gone");
                lock
            }
            None if owner.until_ns > until_ns => {
                // The clock went back. An owner that lives renews anyway; waiting for one that is frozen
                // must not last as long as the clock was ahead.
                set_end(tx, token, until_ns).await?;
                let process = owner.process;
                return Ok(Acquired::Refused(ConsumerError::AlreadyActive { process, until_ns }));
            }
            None if owner.until_ns > tx.now_ns() => {
                return Err(ConsumerError::AlreadyActive {
                    process: owner.process,
                    until_ns: owner.until_ns,
                });
            }
            None => {
                tracing::warn!(process = owner.process, "taking over from a frozen consumer");
                any_lock(database)?
            }
        },
    };
    let token = Token::fresh();
    record(tx, token, lock.slot, lease).await?;
    Ok(Acquired::Owner(token, lock))
}

fn end_of(lease: Duration, now_ns: i64) -> i64 {
    now_ns.saturating_add(i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX))
}

async fn set_end(tx: &mut WriteTx, token: Token, until_ns: i64) -> Result<(), DeliveryError> {
    sqlx::query("UPDATE delivery_consumer SET expires_ns = ? WHERE token = ?")
        .bind(until_ns)
        .bind(token.0.as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn record(tx: &mut WriteTx, token: Token, slot: u32, lease: Duration) -> Result<(), DeliveryError> {
    let now = tx.now_ns();
    sqlx::query(
        "INSERT INTO delivery_consumer (id, token, slot, process, acquired_ns, expires_ns) \
         VALUES (1, ?, ?, ?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET token = excluded.token, slot = excluded.slot, \
             process = excluded.process, acquired_ns = excluded.acquired_ns, \
             expires_ns = excluded.expires_ns",
    )
    .bind(token.0.as_slice())
    .bind(slot)
    .bind(std::process::id())
    .bind(now)
    .bind(end_of(lease, now))
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Whether nobody else has become the owner, and nobody has ended this ownership.
pub(crate) async fn owns(tx: &mut impl Reads, token: Token) -> Result<bool, DeliveryError> {
    Ok(stored(tx).await?.is_some_and(|stored| stored.token == token))
}

/// [`owns`], for a transaction that is about to change something: a lease that ran out while nobody took over is first
/// taken anew. After the machine slept, or the app kept its thread busy for longer than the lease, its owner goes on where
/// it was. The writer is held, so whoever would take over comes before this or after it.
pub(crate) async fn owns_or_retakes(
    tx: &mut WriteTx,
    token: Token,
    lease: Duration,
) -> Result<bool, DeliveryError> {
    let Some(stored) = stored(tx).await?.filter(|stored| stored.token == token) else {
        return Ok(false);
    };
    if stored.owner.until_ns <= tx.now_ns() {
        tracing::info!("the consumer's lease had run out; it owns again");
        let until_ns = end_of(lease, tx.now_ns());
        set_end(tx, token, until_ns).await?;
    }
    Ok(true)
}

/// Extends the lease of an owner. `false` when it is none any more.
async fn renew(tx: &mut WriteTx, token: Token, lease: Duration) -> Result<bool, DeliveryError> {
    let owns = owns(tx, token).await?;
    if owns {
        let until_ns = end_of(lease, tx.now_ns());
        set_end(tx, token, until_ns).await?;
    }
    Ok(owns)
}

/// Ends ownership, if the token still has it.
pub(crate) async fn release(tx: &mut WriteTx, token: Token) -> Result<(), DeliveryError> {
    sqlx::query("DELETE FROM delivery_consumer WHERE token = ?")
        .bind(token.0.as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// What an owner holds: the lock, and a task that renews the lease. Ends both when dropped; the row
/// stays, and the free lock says that its owner is gone.
#[derive(Debug)]
pub(crate) struct Ownership {
    token: Token,
    lease: Duration,
    /// Free once the store is closed: an app may keep a reader for longer, and no file of the database
    /// may stay locked by it.
    lock: Option<Kept>,
    renewal: JoinHandle<()>,
    failed: mpsc::Receiver<DeliveryError>,
}

impl Ownership {
    pub(crate) async fn acquire(store: &Store, lease: Duration) -> Result<Self, ConsumerError> {
        let opened_as = store.path().to_owned();
        let acquired = store
            .write("consumer acquire", move |tx| {
                Box::pin(async move { acquire(tx, &opened_as, lease).await })
            })
            .await?;
        let (token, lock) = match acquired {
            Acquired::Owner(token, lock) => (token, lock),
            Acquired::Refused(error) => return Err(error),
        };
        let lock = Some(store.keep(lock));
        let (failure, failed) = mpsc::channel(1);
        let renewal = keep_renewing(store.clone(), token, lease, failure);
        Ok(Self { token, lease, lock, renewal, failed })
    }

    /// # Errors
    /// Once, when the lease could not be renewed.
    pub(crate) fn check(&mut self) -> Result<(), DeliveryError> {
        self.failed.try_recv().map_or(Ok(()), Err)
    }

    /// Resolves when the lease could not be renewed. Cancel-safe.
    pub(crate) async fn failed(&mut self) -> DeliveryError {
        match self.failed.recv().await {
            Some(error) => error,
            // The renewal has ended for another reason, which is found at the next look.
            None => std::future::pending().await,
        }
    }

    /// What a change of D has to name.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Leaves the place to whoever asks for it, without touching the database.
    pub(crate) fn let_go(&mut self) {
        self.renewal.abort();
        self.lock = None;
    }

    /// Gives ownership back. The lock is freed after the row is gone.
    pub(crate) async fn release(self, store: &Store) -> Result<(), ConsumerError> {
        let token = self.token;
        store
            .write("consumer release", move |tx| Box::pin(async move { release(tx, token).await }))
            .await
            .map_err(ConsumerError::Delivery)
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.let_go();
    }
}

fn keep_renewing(
    store: Store,
    token: Token,
    lease: Duration,
    failure: mpsc::Sender<DeliveryError>,
) -> JoinHandle<()> {
    let mut wakes = store.wakes();
    tokio::spawn(async move {
        let closed = async { while wakes.changed().await.is_ok() {} };
        tokio::select! {
            () = closed => {}
            Err(error) = renewing(&store, token, lease) => {
                tracing::warn!(%error, "the consumer's lease could not be renewed");
                // Full or gone: the consumer has the first error, or has ended.
                failure.try_send(error).ok();
            }
        }
    })
}

/// Ends when ownership is lost, which the consumer finds out for itself when it next looks, and with the first error: the
/// store has waited for the writer already, and whether to go on is the app's to say (PROC-040).
async fn renewing(store: &Store, token: Token, lease: Duration) -> Result<(), DeliveryError> {
    loop {
        tokio::time::sleep(lease / 3).await;
        let owns = store
            .write("consumer renew", move |tx| Box::pin(async move { renew(tx, token, lease).await }))
            .await?;
        if !owns {
            return Ok(());
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
