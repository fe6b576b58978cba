//! Connections: how each kind is opened. The key comes first on every one of them.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::DatabaseKey;
use crate::code::{self, Code};

/// SQLite's own wait on the writer's connection. Short, because SQLite polls ever more slowly and would lose every race
/// against a process that writes all the time; the rest of the wait is [`Patience`]'s.
const WRITER_WAIT: Duration = Duration::from_millis(10);

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 256;

/// How much of the file the writer keeps in memory, in KiB. The index of message ids is touched at random: while it fits,
/// a message costs the same however long the history is.
const WRITER_CACHE_KIB: u32 = 16 * 1024;

/// How many rows the driver's thread reads ahead. With fewer than a whole batch of 128, reading one costs extra turns
/// between the threads.
const ROWS_AHEAD: usize = 256;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Creates the file when there is none, and writes.
    Writer,
    /// Reads beside a writer. Can't write, nor check the WAL in when it is closed.
    Reader,
    /// Looks at a file at rest: no locks, no WAL, nothing left behind.
    Inspector,
    /// As [`Role::Inspector`], without a key.
    Keyless,
}

/// Opens connections to one file.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) path: PathBuf,
    pub(crate) key: DatabaseKey,
    pub(crate) busy_timeout: Duration,
    pub(crate) vfs: Option<String>,
}

impl Connector {
    /// The settings include one that reads the schema: a wrong key shows here, and so does a lock.
    pub(crate) async fn connect(&self, role: Role) -> Result<Conn, sqlx::Error> {
        let writes = role == Role::Writer;
        let wait = if writes { WRITER_WAIT.min(self.busy_timeout) } else { self.busy_timeout };
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .busy_timeout(wait)
            .create_if_missing(writes)
            .read_only(!writes)
            .immutable(matches!(role, Role::Inspector | Role::Keyless))
            .statement_cache_capacity(STATEMENTS)
            .row_buffer_size(ROWS_AHEAD)
            .synchronous(SqliteSynchronous::Full)
            .pragma("temp_store", "MEMORY")
            // The statements include the key.
            .disable_statement_logging();
        let options = match role {
            Role::Writer => options.pragma("cache_size", format!("-{WRITER_CACHE_KIB}")),
            _ => options,
        };
        let options = match role {
            Role::Keyless => options,
            _ => options.pragma("key", self.key_literal().to_string()),
        };
        let options = match &self.vfs {
            Some(name) => options.vfs(name.clone()),
            None => options,
        };
        let patience = Patience::new(self.busy_timeout);
        loop {
            match options.connect().await {
                Ok(conn) => return Ok(Conn(Some(conn))),
                Err(error) => patience.again(error).await?,
            }
        }
    }

    fn key_literal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("\"x'{}'\"", self.key.to_hex().as_str()))
    }
}

/// An open connection. Dropping it waits until the driver's thread has closed the file, which takes well under a
/// millisecond.
///
/// SQLCipher takes its allocator down when the process exits, whoever still uses it: a connection that were still being
/// closed then would crash the process after its work was done.
#[derive(Debug)]
pub(crate) struct Conn(Option<SqliteConnection>);

impl Conn {
    /// Closes the connection without holding up the thread.
    pub(crate) async fn close(mut self) -> Result<(), sqlx::Error> {
        match self.0.take() {
            Some(conn) => conn.close().await,
            None => Ok(()),
        }
    }
}

impl Deref for Conn {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.0.as_ref().expect(UNTIL_CLOSED)
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.0.as_mut().expect(UNTIL_CLOSED)
    }
}

const UNTIL_CLOSED: &str = "only closing and dropping take the connection, and both own it";

impl Drop for Conn {
    fn drop(&mut self) {
        if let Some(conn) = self.0.take()
            && let Err(error) = futures::executor::block_on(conn.close())
        {
            tracing::debug!(%error, "a connection did not close cleanly");
        }
    }
}

/// Whether SQLite here is SQLCipher. Touches no file.
pub(crate) async fn has_cipher() -> Result<bool, sqlx::Error> {
    let mut conn = Conn(Some(SqliteConnectOptions::new().in_memory(true).connect().await?));
    let version: Option<String> =
        sqlx::query_scalar("PRAGMA cipher_version").fetch_optional(&mut *conn).await?;
    Ok(version.is_some_and(|version| !version.is_empty()))
}

/// Whether to try again while the database is busy. SQLite refuses some locks at once whatever its own wait is: for a
/// switch of the journal mode, for a WAL that is being recovered.
pub(crate) struct Patience {
    deadline: Instant,
}

impl Patience {
    pub(crate) fn new(wait: Duration) -> Self {
        Self { deadline: Instant::now() + wait }
    }

    /// Pauses before another try, or gives the error back when there is to be none.
    pub(crate) async fn again(&self, error: sqlx::Error) -> Result<(), sqlx::Error> {
        self.again_if(code::of(&error) == Code::Busy, error).await
    }

    /// The same for a file that was empty a moment ago, and is perhaps being filled.
    pub(crate) async fn again_if_new(&self, error: sqlx::Error) -> Result<(), sqlx::Error> {
        let passing = matches!(code::of(&error), Code::Busy | Code::NotADatabase | Code::Corrupt);
        self.again_if(passing, error).await
    }

    async fn again_if(&self, passing: bool, error: sqlx::Error) -> Result<(), sqlx::Error> {
        if !passing || Instant::now() >= self.deadline {
            return Err(error);
        }
        // Uneven, so that two who wait don't keep meeting.
        tokio::time::sleep(Duration::from_micros(rand::random_range(500..3_000))).await;
        Ok(())
    }
}
