//! Opening a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_store::{DatabaseKey, Migrations, OpenOptions, Store};
use highwater_sync::ReceiverKind;

use crate::content::{AnyCodec, Codecs};
use crate::network::Network;
use crate::registration::{self, AnySigner};
use crate::{Client, Codec, Error, Signer};

/// Where a client's encrypted database is, and the key that opens it.
pub struct Database {
    path: PathBuf,
    key: DatabaseKey,
}

impl Database {
    /// A file. It is created when a signer is given too, and must exist otherwise.
    pub fn file(path: impl AsRef<Path>, key: DatabaseKey) -> Self {
        Self { path: path.as_ref().to_owned(), key }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What a client is opened with. Made by [`Client::builder`].
#[derive(Default)]
pub struct ClientBuilder {
    database: Option<Database>,
    backend: Option<String>,
    signer: Option<Box<dyn AnySigner>>,
    nonce: u64,
    receiver: ReceiverKind,
    codecs: Vec<Box<dyn AnyCodec>>,
}

impl ClientBuilder {
    /// The database. Required.
    pub fn database(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// The backend, as `http://host:port` or `https://host:port`, the latter trusted as the system
    /// trusts certificates. Without one, only what is stored can be read.
    pub fn backend(mut self, url: impl Into<String>) -> Self {
        self.backend = Some(url.into());
        self
    }

    /// The wallet that owns the inbox. Asked only while the database has no registered installation.
    pub fn signer(mut self, signer: impl Signer + 'static) -> Self {
        self.signer = Some(Box::new(signer));
        self
    }

    /// Which of the wallet's inboxes: 0, the default, is its first.
    pub fn nonce(mut self, nonce: u64) -> Self {
        self.nonce = nonce;
        self
    }

    /// How envelopes are received as they are published. The default is one stream in both directions; take
    /// [`ReceiverKind::Static`] where that doesn't get through, behind a proxy or a gateway that knows streams from the
    /// server only.
    pub fn receiver(mut self, receiver: ReceiverKind) -> Self {
        self.receiver = receiver;
        self
    }

    /// Reads content of one more type. Messages of it come as [`Content::Custom`](crate::Content::Custom) with the
    /// codec's own value.
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.codecs.push(Box::new(codec));
        self
    }

    /// Opens the database, and registers its installation if that hasn't been done.
    ///
    /// Opening a registered database needs no signer and never touches the network. Otherwise the installation's key is
    /// durable first, then the signed registration, and only then is it published; killed or cancelled anywhere, the
    /// next call goes on from there with the same inbox.
    ///
    /// # Errors
    /// [`Error::CodecTaken`] when a type has two codecs; [`Error::Open`] with the database untouched; [`Error::NotRegistered`] when there is nothing to register with;
    /// the signer's and the backend's failures otherwise, after which the same call can be repeated.
    pub async fn open(self) -> Result<Client, Error> {
        let database = self.database.ok_or(Error::NoDatabase)?;
        let codecs = Codecs::of(self.codecs).map_err(Error::CodecTaken)?;
        let options =
            OpenOptions::new(database.path, database.key, migrations()).create(self.signer.is_some());
        let store = Store::open(options).await?;
        let network = Arc::new(Network::new(store.clone(), self.backend, self.receiver));
        let ready = registration::ensure(&store, &network, self.signer.as_deref(), self.nonce).await;
        match ready {
            Ok(me) => Ok(Client::new(store, network, me, codecs)),
            Err(error) => {
                network.shutdown().await;
                store.close().await;
                Err(error)
            }
        }
    }
}

/// Every owner's tables.
fn migrations() -> Vec<Migrations> {
    vec![
        highwater_receipt::MIGRATIONS,
        highwater_delivery::MIGRATIONS,
        highwater_mls::MIGRATIONS,
        highwater_outbox::MIGRATIONS,
        highwater_processing::MIGRATIONS,
        highwater_join::MIGRATIONS,
    ]
}
