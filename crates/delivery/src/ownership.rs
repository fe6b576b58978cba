//! Who is the default consumer (STR-096, PROC-031).
//!
//! Ownership is a row, a token with an expiry, and a lock file that the owner keeps locked while it
//! lives. The operating system frees the lock when the owner's process ends, however it ends. So a
//! free lock means that the owner is dead, and its successor need not wait; a held lock with an
//! expired lease means that it is frozen, and its successor may go on without it.
//!
//! A successor of a frozen owner can't have the same lock, and must not do without one, or it would
//! pass for dead. So there are several lock files, and the row names the owner's. They are never
//! removed: a file that is unlinked and made again would be two locks of one name.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use highwater_store::{Reads, Store, WriteTx};
use sqlx::Row as _;
use tokio::task::JoinHandle;

use crate::{ConsumerError, DeliveryError};

/// How long ownership lasts without being renewed. It is renewed every third of this.
pub const DEFAULT_CONSUMER_LEASE: Duration = Duration::from_secs(30);

const LEASE_NS: i64 = DEFAULT_CONSUMER_LEASE.as_nanos() as i64;

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
    _file: File,
    slot: u32,
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
fn try_lock(database: &Path, slot: u32) -> Result<Option<Lock>, ConsumerError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(lock_path(database, slot))
        .map_err(ConsumerError::Lock)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock { _file: file, slot })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(ConsumerError::Lock(error)),
    }
}

fn any_lock(database: &Path) -> Result<Lock, ConsumerError> {
    for slot in 0..SLOTS {
        if let Some(lock) = try_lock(database, slot)? {
            return Ok(lock);
        }
    }
    Err(ConsumerError::NoLockFree)
}

/// Becomes the owner, or says who is. The lock is tried inside the transaction: the writer is what
/// keeps two successors of one dead owner apart.
pub(crate) async fn acquire(tx: &mut WriteTx, database: &Path) -> Result<(Token, Lock), ConsumerError> {
    let now = tx.now_ns();
    let lock = match stored(tx).await? {
        None => any_lock(database)?,
        Some(Stored { slot, owner, .. }) => match try_lock(database, slot)? {
            Some(lock) => {
                tracing::info!(process = owner.process, "taking over from a consumer that is gone");
                lock
            }
            None if owner.until_ns > now => {
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
    record(tx, token, lock.slot, now).await?;
    Ok((token, lock))
}

async fn record(tx: &mut WriteTx, token: Token, slot: u32, now: i64) -> Result<(), DeliveryError> {
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
    .bind(now.saturating_add(LEASE_NS))
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What a token is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It owns.
    Owner,
    /// Its lease ran out, and nobody took over yet. It may not touch D, but may become the owner
    /// anew ([`reacquire`]).
    Expired,
    /// Another owns, or the row is gone.
    Lost,
}

pub(crate) async fn standing(tx: &mut impl Reads, token: Token) -> Result<Standing, DeliveryError> {
    let now = tx.now_ns();
    Ok(match stored(tx).await? {
        Some(stored) if stored.token == token && stored.owner.until_ns > now => Standing::Owner,
        Some(stored) if stored.token == token => Standing::Expired,
        _ => Standing::Lost,
    })
}

/// Extends the lease of an owner. An expired one is left as it is.
pub(crate) async fn renew(tx: &mut WriteTx, token: Token) -> Result<Standing, DeliveryError> {
    let standing = standing(tx, token).await?;
    if standing == Standing::Owner {
        let expires = tx.now_ns().saturating_add(LEASE_NS);
        sqlx::query("UPDATE delivery_consumer SET expires_ns = ? WHERE token = ?")
            .bind(expires)
            .bind(token.0.as_slice())
            .execute(tx.conn())
            .await?;
    }
    Ok(standing)
}

/// Becomes the owner anew, under a fresh token, after a lease that ran out while nobody took over:
/// after the machine slept, say. `None` when somebody did take over.
pub(crate) async fn reacquire(
    tx: &mut WriteTx,
    token: Token,
    slot: u32,
) -> Result<Option<Token>, DeliveryError> {
    match standing(tx, token).await? {
        Standing::Owner => Ok(Some(token)),
        Standing::Lost => Ok(None),
        Standing::Expired => {
            let (fresh, now) = (Token::fresh(), tx.now_ns());
            record(tx, fresh, slot, now).await?;
            Ok(Some(fresh))
        }
    }
}

/// Ends ownership, if the token still has it.
pub(crate) async fn release(tx: &mut WriteTx, token: Token) -> Result<(), DeliveryError> {
    sqlx::query("DELETE FROM delivery_consumer WHERE token = ?")
        .bind(token.0.as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// What an owner holds: the lock, and a task that renews the lease. Ends both when dropped, or when
/// the store is closed under it; the row stays, and the free lock says that its owner is gone.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) token: Token,
    slot: u32,
    lock: SharedLock,
    renewal: JoinHandle<()>,
}

/// Empty once the store is closed. An app may keep a reader for longer, and no file of the database
/// may stay locked by it.
type SharedLock = Arc<Mutex<Option<Lock>>>;

impl Ownership {
    pub(crate) async fn acquire(store: &Store) -> Result<Self, ConsumerError> {
        let database = store.path().to_path_buf();
        let (token, lock) = store
            .write("consumer acquire", move |tx| Box::pin(async move { acquire(tx, &database).await }))
            .await?;
        let (slot, lock) = (lock.slot, Arc::new(Mutex::new(Some(lock))));
        let renewal = keep_renewing(store.clone(), token, Arc::clone(&lock));
        Ok(Self { token, slot, lock, renewal })
    }

    /// [`reacquire`] and carry on; an error when somebody took over.
    pub(crate) async fn reacquire(&mut self, store: &Store) -> Result<(), ConsumerError> {
        let (token, slot) = (self.token, self.slot);
        let fresh = store
            .write("consumer reacquire", move |tx| Box::pin(async move { reacquire(tx, token, slot).await }))
            .await
            .map_err(ConsumerError::Delivery)?;
        self.token = fresh.ok_or(ConsumerError::OwnershipLost)?;
        self.renewal.abort();
        self.renewal = keep_renewing(store.clone(), self.token, Arc::clone(&self.lock));
        Ok(())
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
        self.renewal.abort();
    }
}

fn keep_renewing(store: Store, token: Token, lock: SharedLock) -> JoinHandle<()> {
    let mut wakes = store.wakes();
    tokio::spawn(async move {
        let closed = async { while wakes.changed().await.is_ok() {} };
        tokio::select! {
            () = closed => drop(lock.lock().unwrap_or_else(PoisonError::into_inner).take()),
            () = renewing(&store, token) => {}
        }
    })
}

async fn renewing(store: &Store, token: Token) {
    loop {
        tokio::time::sleep(DEFAULT_CONSUMER_LEASE / 3).await;
        let renewed: Result<_, DeliveryError> =
            store.write("consumer renew", move |tx| Box::pin(async move { renew(tx, token).await })).await;
        match renewed {
            Ok(Standing::Owner) => {}
            // The consumer finds out for itself when it next looks.
            Ok(Standing::Expired | Standing::Lost) => break,
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "the consumer's lease was not renewed");
            }
            Err(error) => {
                tracing::warn!(%error, "the consumer's lease is renewed no more");
                break;
            }
        }
    }
    // The lock is still to be freed when the store closes.
    std::future::pending().await
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
