//! A client's home: a folder with its database, its keys and the address of its backend.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use highwater::{Client, Database, DatabaseKey, LocalWallet, ReceiverKind};
use serde::{Deserialize, Serialize};

use crate::args::HomeArgs;
use crate::failure::{Failure, no_home};

const DATABASE: &str = "client.db";
const DATABASE_KEY: &str = "client.key";
const WALLET_KEY: &str = "wallet.key";
const SETTINGS: &str = "home.json";
/// Keys and settings are the owner's alone.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// What a home remembers besides its database.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    backend: String,
}

pub(crate) struct Home {
    dir: PathBuf,
    backend: Option<String>,
    receiver: ReceiverKind,
}

impl Home {
    /// An existing home.
    pub(crate) fn existing(args: &HomeArgs) -> Result<Self, Failure> {
        let home = Self::at(&args.home)?;
        if !home.path(DATABASE_KEY).is_file() {
            return Err(no_home(&args.home));
        }
        let receiver = if args.static_streams { ReceiverKind::Static } else { home.receiver };
        Ok(Self { backend: args.backend.clone().or(home.backend), receiver, ..home })
    }

    /// Makes the home, or goes on where an earlier attempt was cut short. Each file appears whole or not at all, and
    /// none is ever replaced by another key.
    pub(crate) fn make(dir: &Path, backend: Option<&str>) -> Result<Self, Failure> {
        let home = Self::at(dir)?;
        let backend = backend
            .map(str::to_owned)
            .or_else(|| home.backend.clone())
            .ok_or_else(|| Failure::usage("a new home needs its backend: name it with --backend URL"))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIR)
            .create(dir)
            .map_err(|error| failed("make", dir, &error))?;
        if home.path(DATABASE).exists() && !home.path(DATABASE_KEY).exists() {
            return Err(Failure::new(format!(
                "{} has a database but no {DATABASE_KEY}: restore the key, without it the database can't be read",
                dir.display()
            )));
        }
        home.put_new(DATABASE_KEY, || key_text(&DatabaseKey::generate().to_hex()))?;
        home.put_new(WALLET_KEY, || key_text(&hex::encode(LocalWallet::generate().to_bytes())))?;
        let home = Self { backend: Some(backend), ..home };
        home.store_settings()?;
        Ok(home)
    }

    fn at(dir: &Path) -> Result<Self, Failure> {
        let settings = dir.join(SETTINGS);
        let backend = match fs::read(&settings) {
            Ok(bytes) => {
                let settings: Settings = serde_json::from_slice(&bytes).map_err(|error| {
                    Failure::new(format!(
                        "{} can't be read ({error}): restore it, or remove it and run `init` again",
                        settings.display()
                    ))
                })?;
                Some(settings.backend)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read", &settings, &error)),
        };
        Ok(Self { dir: dir.to_owned(), backend, receiver: ReceiverKind::default() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens the client of a registered home. Touches the network only when a command does.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        Ok(self.builder()?.open().await?)
    }

    /// Opens the client, registering it if that wasn't done.
    pub(crate) async fn open_and_register(&self) -> Result<Client, Failure> {
        let path = self.path(WALLET_KEY);
        let key = self.key(&path)?;
        let wallet = LocalWallet::from_bytes(&key)
            .ok_or_else(|| Failure::new(format!("{} holds no private key: restore it", path.display())))?;
        Ok(self.builder()?.signer(wallet).open().await?)
    }

    fn builder(&self) -> Result<highwater::ClientBuilder, Failure> {
        let key = DatabaseKey::from_bytes(self.key(&self.path(DATABASE_KEY))?);
        let builder =
            Client::builder().database(Database::file(self.path(DATABASE), key)).receiver(self.receiver);
        Ok(match &self.backend {
            Some(backend) => builder.backend(backend),
            None => builder,
        })
    }

    fn key(&self, path: &Path) -> Result<[u8; 32], Failure> {
        let text = fs::read_to_string(path).map_err(|error| failed("read", path, &error))?;
        let mut key = [0; 32];
        hex::decode_to_slice(text.trim(), &mut key).map_err(|_| {
            Failure::new(format!("{} is not a key of 64 hex digits: restore it", path.display()))
        })?;
        Ok(key)
    }

    /// Writes a file unless there is one. Whoever reads it sees all of it.
    fn put_new(&self, name: &str, content: impl FnOnce() -> Vec<u8>) -> Result<(), Failure> {
        let path = self.path(name);
        if path.exists() {
            return Ok(());
        }
        let written = self.write_aside(name, &content())?;
        // A link fails where a file appeared meanwhile; a rename would replace that one's key.
        let linked = fs::hard_link(&written, &path);
        let _ = fs::remove_file(&written);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked.and_then(|()| self.sync_dir()).map_err(|error| failed("write", &path, &error)),
        }
    }

    fn store_settings(&self) -> Result<(), Failure> {
        let Some(backend) = self.backend.clone() else {
            return Ok(());
        };
        let path = self.path(SETTINGS);
        let mut content = serde_json::to_vec(&Settings { backend })?;
        content.push(b'\n');
        let written = self.write_aside(SETTINGS, &content)?;
        fs::rename(&written, &path)
            .and_then(|()| self.sync_dir())
            .map_err(|error| failed("write", &path, &error))
    }

    fn write_aside(&self, name: &str, content: &[u8]) -> Result<PathBuf, Failure> {
        let aside = self.path(&format!(".{name}.{:016x}", rand::random::<u64>()));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&aside)?;
            file.write_all(content)?;
            file.sync_all()
        };
        write().map_err(|error| failed("write", &aside, &error))?;
        Ok(aside)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

fn key_text(hex: &str) -> Vec<u8> {
    format!("{hex}\n").into_bytes()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("can't {what} {}: {error}", path.display()))
}
