//! A client's database at rest, from which any number of clients go on.

use std::sync::Arc;

use highwater_store::DatabaseKey;
use highwater_wire::{InboxId, InstallationKey};

use crate::Peer;
use crate::peer::open;

/// A closed database and its key.
pub struct Template {
    file: Vec<u8>,
    key: DatabaseKey,
    inbox: InboxId,
    installation: InstallationKey,
}

impl Template {
    /// Closes the peer's database and keeps it as it is now.
    pub async fn of(peer: Peer) -> Self {
        peer.store.close().await;
        let file = std::fs::read(&peer.path).expect("a closed database is one file");
        Self { file, key: peer.key, inbox: peer.inbox, installation: peer.installation }
    }

    /// A client that goes on from there, on a copy of its own.
    pub async fn open(&self) -> Peer {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("client.db");
        std::fs::write(&path, &self.file).expect("the folder can be written");
        Peer {
            store: open(&path, &self.key).await,
            inbox: self.inbox,
            installation: self.installation,
            path,
            key: self.key.clone(),
            _folder: Arc::new(folder),
        }
    }
}
