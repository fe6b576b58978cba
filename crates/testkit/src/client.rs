//! Clients in one line.

use std::ops::Deref;
use std::path::PathBuf;

use highwater::{Client, Database, DatabaseKey, LocalWallet, ReceiverKind};
use tempfile::TempDir;

/// A client with a database of its own in a temporary folder. Dereferences to the open client.
pub struct TestClient {
    dir: TempDir,
    key: [u8; 32],
    wallet: [u8; 32],
    url: String,
    receiver: ReceiverKind,
    client: Option<Client>,
}

impl TestClient {
    /// A new inbox with its first installation, registered with a backend.
    pub async fn new(url: &str) -> Self {
        Self::of_wallet(LocalWallet::generate().to_bytes(), url).await
    }

    /// One more installation of this client's inbox, registered with the same backend.
    pub async fn another_installation(&self) -> Self {
        Self::of_wallet(self.wallet, &self.url).await
    }

    async fn of_wallet(wallet: [u8; 32], url: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let mut client = Self {
            dir,
            key: LocalWallet::generate().to_bytes(),
            wallet,
            url: url.to_owned(),
            receiver: ReceiverKind::default(),
            client: None,
        };
        let signer = LocalWallet::from_bytes(&wallet).expect("a wallet's own key");
        let opened = client.builder().signer(signer).open().await;
        client.client = Some(opened.expect("the client registers"));
        client
    }

    fn builder(&self) -> highwater::ClientBuilder {
        let key = DatabaseKey::from_bytes(self.key);
        Client::builder()
            .database(Database::file(self.path(), key))
            .backend(&self.url)
            .receiver(self.receiver)
    }

    /// The database's file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("client.db")
    }

    /// The key of the database, for whoever opens it beside the client.
    pub fn key(&self) -> DatabaseKey {
        DatabaseKey::from_bytes(self.key)
    }

    /// Talks to this address from the next [`open`](Self::open) on.
    pub fn set_backend(&mut self, url: &str) {
        url.clone_into(&mut self.url);
    }

    /// Receives in this way from the next [`open`](Self::open) on.
    pub fn set_receiver(&mut self, receiver: ReceiverKind) {
        self.receiver = receiver;
    }

    /// Closes the client.
    pub async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            client.close().await;
        }
    }

    /// Opens the client from what is on disk. Needs no backend.
    pub async fn open(&mut self) {
        assert!(self.client.is_none(), "it is open");
        self.client = Some(self.open_another().await);
    }

    /// Closes and opens the client.
    pub async fn reopen(&mut self) {
        self.close().await;
        self.open().await;
    }

    /// One more client over the same database, as another process would have it.
    pub async fn open_another(&self) -> Client {
        self.builder().open().await.expect("a registered database opens without a signer")
    }
}

impl Deref for TestClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("the client is open")
    }
}
