//! SQLite's result codes, as far as this crate tells them apart.

/// What a failure of SQLite means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Somebody else holds a lock.
    Busy,
    /// The disk, or the size the file may have, is full.
    Full,
    /// The file or its folder can't be written.
    ReadOnly,
    /// The first page can't be read with this key.
    NotADatabase,
    /// Pages that could be read contradict each other.
    Corrupt,
    /// Anything else.
    Other,
}

/// SQLITE_IOERR_SHMSIZE: the shared memory file couldn't be extended, which only a full disk causes.
const IOERR_SHMSIZE: u32 = 10 | (19 << 8);

pub(crate) fn of(error: &sqlx::Error) -> Code {
    let sqlx::Error::Database(error) = error else {
        return Code::Other;
    };
    let extended = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
    if extended == IOERR_SHMSIZE {
        return Code::Full;
    }
    // The low byte is the primary code.
    match extended & 0xff {
        5 | 6 => Code::Busy,
        8 => Code::ReadOnly,
        11 => Code::Corrupt,
        13 => Code::Full,
        26 => Code::NotADatabase,
        _ => Code::Other,
    }
}
