//! A backend in this process.

use std::net::SocketAddr;

use highwater_backend::{DatabaseConfig, ServeError, Server, ServerConfig};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A real server on a loopback port, over an SQLite file in a temporary folder.
pub struct TestBackend {
    dir: TempDir,
    address: SocketAddr,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl TestBackend {
    /// Starts it on a free port, with the protocol's limits.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, running) = serve(&dir, loopback).await;
        Self { dir, address, running: Some(running) }
    }

    /// Where it listens, running or not.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client connects to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it in an orderly way. Connections to it are refused from then on.
    pub async fn stop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let _ = running.stop.send(());
        running.task.await.expect("the server ends").expect("the server doesn't fail");
    }

    /// Ends it without any order, as a crash does.
    pub async fn crash(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        running.task.abort();
        // Aborted is what it is meant to be.
        let _ = running.task.await;
    }

    /// Starts it again on the same port and the same database.
    pub async fn restart(&mut self) {
        assert!(self.running.is_none(), "it is running");
        let (_, running) = serve(&self.dir, self.address).await;
        self.running = Some(running);
    }
}

async fn serve(dir: &TempDir, listen: SocketAddr) -> (SocketAddr, Running) {
    let mut config = ServerConfig::new(DatabaseConfig::Sqlite(dir.path().join("backend.db")));
    config.listen = listen;
    let server = Server::bind(config).await.expect("the server starts");
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.serve(async move {
        let _ = stopped.await;
    }));
    (address, Running { stop, task })
}
