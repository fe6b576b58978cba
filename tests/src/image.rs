//! More than one of the same client: at one moment, and in one moment.

use std::sync::Arc;

use highwater_store::DatabaseKey;
use highwater_testkit_base::Disk;
use highwater_wire::{InboxId, InstallationKey};

use crate::Peer;
use crate::peer::{FILE, open};

/// A client at one moment, to go on from as often as a test likes.
pub struct PeerImage {
    database: Vec<u8>,
    inbox: InboxId,
    installation: InstallationKey,
    key: DatabaseKey,
}

impl PeerImage {
    /// The client as it was.
    pub async fn open(&self) -> Peer {
        self.opened(None).await
    }

    /// The client as it was, on a disk that can fail.
    pub async fn open_on(&self, disk: &Disk) -> Peer {
        self.opened(Some(disk)).await
    }

    async fn opened(&self, disk: Option<&Disk>) -> Peer {
        let folder = Arc::new(folder());
        let path = folder.path().join(FILE);
        std::fs::write(&path, &self.database).expect("a copy");
        let store = open(&path, &self.key, disk).await;
        let (inbox, installation, key) = (self.inbox, self.installation, self.key.clone());
        Peer { store, inbox, installation, path, key, folder }
    }
}

/// A copy lives for one test: in memory where the system has a place for that, so that waiting for a real disk doesn't
/// bound how many of them a test can afford.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

impl Peer {
    /// Another process of the same client, on the same database.
    pub async fn another_process(&self) -> Self {
        Self {
            store: open(&self.path, &self.key, None).await,
            inbox: self.inbox,
            installation: self.installation,
            path: self.path.clone(),
            key: self.key.clone(),
            folder: Arc::clone(&self.folder),
        }
    }

    /// Ends the client and keeps what it was.
    pub async fn into_image(self) -> PeerImage {
        self.store.close().await;
        let database = std::fs::read(&self.path).expect("the database file");
        PeerImage { database, inbox: self.inbox, installation: self.installation, key: self.key }
    }
}
