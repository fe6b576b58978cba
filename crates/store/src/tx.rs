//! Transactions, as the closures of [`Store`](crate::Store) see them.

use sqlx::sqlite::SqliteConnection;

/// Anything that can be read from: a write or a read transaction.
pub trait Reads: Send {
    /// The connection that the transaction runs on.
    fn conn(&mut self) -> &mut SqliteConnection;
    /// The store's clock, in nanoseconds since the Unix epoch.
    fn now_ns(&self) -> i64;
}

/// A write transaction. The writer lock is held; what is read now can't change before the commit.
pub struct WriteTx {
    pub(crate) conn: SqliteConnection,
    pub(crate) now_ns: i64,
}

impl WriteTx {
    /// The connection that the transaction runs on.
    pub fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// The store's clock when the writer lock was taken, in nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }
}

impl Reads for WriteTx {
    fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    fn now_ns(&self) -> i64 {
        self.now_ns
    }
}

/// A read transaction: one snapshot.
pub struct ReadTx {
    pub(crate) conn: SqliteConnection,
    pub(crate) now_ns: i64,
}

impl ReadTx {
    /// The connection that the transaction runs on.
    pub fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// The store's clock when the snapshot was taken, in nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }
}

impl Reads for ReadTx {
    fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    fn now_ns(&self) -> i64 {
        self.now_ns
    }
}
