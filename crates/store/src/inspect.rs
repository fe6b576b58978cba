//! What a file is, found out without changing it.
//!
//! The file is never opened except through SQLite: closing a descriptor of our own would release the locks that other
//! connections of this process hold on the same file.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::SqliteConnection;

use crate::connect::{Conn, Connector, Role};
use crate::schema::{self, Migrations};
use crate::{OpenError, StoreError};

/// SQLCipher's page size.
const PAGE: u64 = 4096;

/// A file that is being written can look broken for a moment when it is read without locks.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// What stands at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or a file that nothing was ever written to.
    Nothing,
    /// A database that this key opens and this software understands, as far as could be seen from outside.
    Database,
}

/// Looks at the file with the key, and changes nothing.
pub(crate) async fn inspect(connector: &Connector, known: &[Migrations]) -> Result<Found, OpenError> {
    let Some(metadata) = metadata(&connector.path)? else {
        return Ok(Found::Nothing);
    };
    if !metadata.is_file() {
        return Err(OpenError::NotADatabase("it is not a file"));
    }
    if metadata.len() == 0 {
        return Ok(Found::Nothing);
    }
    // Also for a user who could write it all the same: the mark is somebody's decision.
    if metadata.permissions().readonly() {
        return Err(OpenError::ReadOnly);
    }
    if metadata.len() < PAGE && !has_companion(&connector.path, "-journal")? {
        return Err(OpenError::NotADatabase("it is shorter than any database"));
    }
    let mut looks = 1;
    loop {
        match look(connector, known).await {
            Err(OpenError::WrongKey | OpenError::Database(_)) if looks < LOOKS => {
                looks += 1;
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            Err(OpenError::WrongKey) => return Err(unreadable(connector).await?),
            Err(error) => return Err(error),
            Ok(()) => return Ok(Found::Database),
        }
    }
}

async fn look(connector: &Connector, known: &[Migrations]) -> Result<(), OpenError> {
    // With a WAL or a journal the main file alone is not the database. A reader doesn't check it in when it leaves.
    let at_rest = !has_companion(&connector.path, "-wal")? && !has_companion(&connector.path, "-journal")?;
    let role = if at_rest { Role::Inspector } else { Role::Reader };
    let checked = match connector.connect(role).await {
        Ok(mut conn) => {
            let checked = check(&mut conn, known).await;
            close(conn).await;
            checked
        }
        Err(error) => Err(error.into()),
    };
    match checked {
        // The journal of a process that died while it created the file: the writer's connection rolls it back.
        Err(OpenError::ReadOnly) if !at_rest => Ok(()),
        checked => checked,
    }
}

async fn check(conn: &mut SqliteConnection, known: &[Migrations]) -> Result<(), OpenError> {
    match schema::versions(conn).await? {
        Some(found) => schema::check(&found, known),
        None => Ok(()),
    }
}

/// Which kind of file the key doesn't open.
async fn unreadable(connector: &Connector) -> Result<OpenError, OpenError> {
    // The settings alone fail unless the file can be read.
    if let Ok(mut conn) = connector.connect(Role::Keyless).await {
        let plain = sqlx::query("PRAGMA schema_version").fetch_one(&mut *conn).await;
        close(conn).await;
        if plain.is_ok() {
            return Ok(OpenError::NotEncrypted);
        }
    }
    let length = metadata(&connector.path)?.map_or(0, |metadata| metadata.len());
    if length % PAGE != 0 {
        return Ok(OpenError::NotADatabase("its length is not one that a database has"));
    }
    Ok(OpenError::WrongKey)
}

fn has_companion(path: &Path, suffix: &str) -> Result<bool, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    Ok(metadata(&PathBuf::from(name))?.is_some_and(|metadata| metadata.len() > 0))
}

/// `None` when there is nothing. A missing folder is an error.
fn metadata(path: &Path) -> Result<Option<Metadata>, OpenError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match folder.map(std::fs::metadata).transpose() {
                Ok(_) => Ok(None),
                Err(error) => Err(OpenError::Io(error)),
            }
        }
        Err(error) => Err(OpenError::Io(error)),
    }
}

/// Waits until the connection is closed, so that nothing of it is left when the caller goes on.
pub(crate) async fn close(conn: Conn) {
    if let Err(error) = conn.close().await {
        let error = StoreError::from(error);
        tracing::warn!(%error, "a database connection didn't close in order");
    }
}
