//! Where the demonstration takes place: a folder, and a backend on a free loopback port.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use highwater_backend::{DatabaseConfig, ServeError, Server, ServerConfig};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::failure::Failure;

pub(super) struct Backend {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Backend {
    pub(super) async fn start(database: &Path) -> Result<Self, Failure> {
        let server = Server::bind(ServerConfig::new(DatabaseConfig::Sqlite(database.to_owned()))).await?;
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(async move {
            // Dropping the sender stops it as well.
            let _ = stopped.await;
        }));
        Ok(Self { address, stop, task })
    }

    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the backend failed"),
            Err(error) => tracing::warn!(%error, "the backend ended abnormally"),
        }
    }
}

/// The folder to play in: the one to keep, which must be new or empty, or a temporary one.
pub(super) fn folder(keep: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), Failure> {
    let Some(keep) = keep else {
        let temporary = tempfile::Builder::new().prefix("highwater-demo-").tempdir()?;
        return Ok((temporary.path().to_owned(), Some(temporary)));
    };
    fs::create_dir_all(keep)
        .map_err(|error| Failure::new(format!("can't make {}: {error}", keep.display())))?;
    if fs::read_dir(keep)?.next().is_some() {
        return Err(Failure::new(format!(
            "{} is not empty: name a new folder to keep the homes in",
            keep.display()
        )));
    }
    // Child processes are given it too.
    Ok((fs::canonicalize(keep)?, None))
}
