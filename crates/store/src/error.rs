use std::io;

use crate::code::{self, Code};

/// Why a database could not be opened. Its files are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no database, and none was to be created.
    #[error("there is no database at this path")]
    Missing,
    /// It is encrypted with another key. A file of random bytes looks the same.
    #[error("the key doesn't open this database")]
    WrongKey,
    /// It is a SQLite database without encryption.
    #[error("this database is not encrypted")]
    NotEncrypted,
    /// It is no database, or not one of this engine.
    #[error("this is not a database of this engine: {0}")]
    NotADatabase(&'static str),
    /// A newer version of this software has written it: use that one.
    #[error("{owner}'s tables have version {found}, newer than {known}, the newest known here")]
    NewerSchema {
        /// Whose tables.
        owner: String,
        /// Their version in the file. 0 when the owner has none here.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The file or its folder can't be written.
    #[error("the database can't be written: check the permissions of the file and its folder")]
    ReadOnly,
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// Other processes held the database for the whole wait. The same call can succeed later.
    #[error("the database is in use by another process")]
    Busy,
    /// This build of SQLite can't encrypt.
    #[error("this build has no SQLCipher: nothing was written")]
    NoCipher,
    /// The file can't be reached.
    #[error("the database file can't be reached: {0}")]
    Io(#[from] io::Error),
    /// SQLite failed.
    #[error("the database failed: {0}")]
    Database(#[source] sqlx::Error),
}

impl OpenError {
    /// Whether the same call can succeed later without anything being repaired.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Whether space must be freed first.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull)
    }
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        match code::of(&error) {
            Code::Busy => Self::Busy,
            Code::Full => Self::DiskFull,
            Code::ReadOnly => Self::ReadOnly,
            Code::NotADatabase => Self::WrongKey,
            Code::Corrupt | Code::Other => Self::Database(error),
        }
    }
}

/// Why a transaction failed. Nothing of it is durable, except perhaps for [`StoreError::CommitUnknown`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Other processes held the lock for the whole wait.
    #[error("the database is in use by another process")]
    Busy,
    /// No space left.
    #[error("the disk is full")]
    DiskFull,
    /// The file can't be written (any more).
    #[error("the database can't be written")]
    ReadOnly,
    /// The store was closed.
    #[error("the database is closed")]
    Closed,
    /// The transaction's code panicked, and it was rolled back.
    #[error("the transaction {name:?} panicked: {message}")]
    Panicked {
        /// The transaction.
        name: &'static str,
        /// What the panic said.
        message: String,
    },
    /// COMMIT failed in a way that doesn't tell whether it took place. Reading tells.
    #[error("whether the transaction {name:?} was committed is not known: {source}")]
    CommitUnknown {
        /// The transaction.
        name: &'static str,
        /// What COMMIT said.
        source: sqlx::Error,
    },
    /// A savepoint was to be ended, and none is open.
    #[error("no savepoint is open")]
    NoSavepoint,
    /// SQLite failed.
    #[error("the database failed: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether the same transaction can succeed later without anything being repaired.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Whether space must be freed first.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull)
    }

    /// Whether the store was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match code::of(&error) {
            Code::Busy => Self::Busy,
            Code::Full => Self::DiskFull,
            Code::ReadOnly => Self::ReadOnly,
            Code::NotADatabase | Code::Corrupt | Code::Other => Self::Database(error),
        }
    }
}
