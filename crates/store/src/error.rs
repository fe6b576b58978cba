use std::path::PathBuf;

/// Why a database could not be opened. The files are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, and it wasn't to be created.
    #[error("there is no database at {0}")]
    Missing(PathBuf),
    /// The file is encrypted with another key, or damaged at its start.
    #[error("the key does not open the database")]
    WrongKey,
    /// The file is no encrypted database.
    #[error("the file is not an encrypted database")]
    NotADatabase,
    /// A newer version of the program wrote the file.
    #[error("the database was written by a newer version: schema {found} of {owner}, this version knows {known}")]
    NewerSchema {
        /// The crate whose schema it is.
        owner: String,
        /// The version in the file.
        found: i64,
        /// The newest version this program knows; 0 if it doesn't know the owner.
        known: i64,
    },
    /// The file or its folder can't be written.
    #[error("the database can't be written")]
    ReadOnly,
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// Another process kept the file locked for longer than the busy timeout.
    #[error("another process keeps the database locked")]
    Busy,
    /// This build has no cipher: opening would write plain text.
    #[error("this build of SQLite has no encryption")]
    NoCipher,
    /// Anything else.
    #[error("the database could not be opened: {0}")]
    Database(#[source] sqlx::Error),
}

impl OpenError {
    /// Whether opening can succeed later without a change by somebody.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy)
    }
}

/// Why a read or a write failed. A failed write was rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store was closed.
    #[error("the database is closed")]
    Closed,
    /// Another process kept the database locked for longer than the busy timeout.
    #[error("another process keeps the database locked")]
    Busy,
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The commit failed in a way that leaves its outcome open. Look at the database again to learn it.
    #[error("whether the commit took effect is unknown: {0}")]
    CommitUnknown(#[source] sqlx::Error),
    /// The closure panicked; the transaction was rolled back.
    #[error("the write panicked and was rolled back")]
    Panicked,
    /// The file could not be opened again after a failure.
    #[error(transparent)]
    Reopen(#[from] OpenError),
    /// Anything else.
    #[error("the database failed: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether the same call can succeed later without a change by somebody.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy | Self::CommitUnknown(_) => true,
            Self::Reopen(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// SQLite's primary result code.
pub(crate) fn code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

pub(crate) const BUSY: i32 = 5;
pub(crate) const LOCKED: i32 = 6;
pub(crate) const READONLY: i32 = 8;
pub(crate) const FULL: i32 = 13;
pub(crate) const NOT_A_DATABASE: i32 = 26;

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match code(&error) {
            Some(BUSY | LOCKED) => Self::Busy,
            Some(FULL) => Self::DiskFull,
            _ => Self::Database(error),
        }
    }
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        match code(&error) {
            Some(BUSY | LOCKED) => Self::Busy,
            Some(READONLY) => Self::ReadOnly,
            Some(FULL) => Self::DiskFull,
            Some(NOT_A_DATABASE) => Self::WrongKey,
            _ => Self::Database(error),
        }
    }
}
