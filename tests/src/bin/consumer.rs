//! A default consumer in a process of its own that does one thing at a time, as it is told: for tests that kill and
//! freeze it between two of them.
//!
//! It reads commands from its standard input, a word a line, and answers each with a line of JSON:
//!
//! - `open`: becomes the default consumer.
//! - `next`: says that it asks, asks for the next item, and says what came.
//! - `acknowledge`: says that it asks, and acknowledges.
//! - `save`: what an app does with an item: a line in a file of its own, durable.
//! - `fail`: the next thing written to the disk fails, once.
//! - `close`: gives the place up in order.
//!
//! It ends when its standard input closes.

#![allow(clippy::print_stdout, reason = "its output is what the test reads")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use highwater_delivery::{ConsumerError, DefaultConsumer, Item, MIGRATIONS, Selection};
use highwater_store::{DatabaseKey, Store, SystemClock};
use highwater_testkit_base::{Disk, Fault};
use serde_json::{Value, json};

/// Consumes as it is told.
#[derive(Debug, Parser)]
struct Arguments {
    /// The database.
    #[arg(long)]
    database: PathBuf,
    /// Its key, in hex.
    #[arg(long)]
    key: String,
    /// The app's own file.
    #[arg(long)]
    saved: PathBuf,
    /// The lease, in milliseconds.
    #[arg(long)]
    lease: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let disk = Disk::new();
    let key = DatabaseKey::from_hex(&arguments.key)?;
    let mut options = highwater_store::OpenOptions::new(&arguments.database, key, vec![MIGRATIONS])
        .clock(Arc::new(SystemClock))
        .vfs(disk.vfs());
    options.busy_timeout = Duration::from_secs(20);
    let store = Store::open(options).await?;
    let mut app = App { arguments, disk, store: store.clone(), consumer: None, item: None };
    println!("{}", json!({"ready": std::process::id()}));
    let mut commands = commands();
    while let Some(command) = commands.recv().await {
        println!("{}", app.obey(&command).await?);
    }
    drop(app);
    store.close().await;
    Ok(())
}

/// What comes in on standard input, read on a thread of its own so that a runtime needn't wait for it.
fn commands() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (command, commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if command.send(line).is_err() {
                return;
            }
        }
    });
    commands
}

struct App {
    arguments: Arguments,
    disk: Disk,
    store: Store,
    consumer: Option<DefaultConsumer>,
    item: Option<Item>,
}

impl App {
    async fn obey(&mut self, command: &str) -> Result<Value> {
        Ok(match command {
            "open" => self.open().await,
            "next" => {
                println!("{}", json!({"asks": "next"}));
                self.next().await?
            }
            "acknowledge" => {
                println!("{}", json!({"asks": "acknowledge"}));
                match self.consumer()?.acknowledge().await {
                    Ok(()) => json!({"acknowledged": "stored"}),
                    Err(error) => failed(&error),
                }
            }
            "save" => self.save()?,
            "fail" => {
                self.disk.arm(0, Fault::FailOnce);
                json!({"armed": true})
            }
            "close" => match self.consumer.take().context("nothing is open")?.release().await {
                Ok(()) => json!({"closed": true}),
                Err(error) => failed(&error),
            },
            other => anyhow::bail!("unknown command {other:?}"),
        })
    }

    fn consumer(&mut self) -> Result<&mut DefaultConsumer> {
        self.consumer.as_mut().context("nothing is open")
    }

    async fn open(&mut self) -> Value {
        self.consumer = None;
        let lease = Duration::from_millis(self.arguments.lease);
        match DefaultConsumer::acquire_for(lease, self.store.clone(), Selection::all()).await {
            Ok(consumer) => {
                self.consumer = Some(consumer);
                json!({"opened": true})
            }
            Err(error) => failed(&error),
        }
    }

    async fn next(&mut self) -> Result<Value> {
        Ok(match self.consumer()?.next().await {
            Ok(Some(item)) => {
                let number = item.cursor.number().context("an item has a number")?.get();
                let said = json!({
                    "number": number,
                    "id": item.message.id.to_hex(),
                    "cursor": item.cursor.to_string(),
                });
                self.item = Some(item);
                said
            }
            Ok(None) => json!({"nothing": true}),
            Err(error) => failed(&error),
        })
    }

    fn save(&self) -> Result<Value> {
        let id = self.item.as_ref().context("no item is out")?.message.id.to_hex();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.arguments.saved)?;
        writeln!(file, "{id}")?;
        file.sync_all()?;
        Ok(json!({"saved": id}))
    }
}

fn failed(error: &ConsumerError) -> Value {
    let kind = match error {
        ConsumerError::AlreadyActive { .. } => "already active",
        ConsumerError::OwnershipLost => "ownership lost",
        ConsumerError::Ended => "ended",
        ConsumerError::Delivery(_) => "storage",
        _ => "other",
    };
    json!({"failed": kind, "error": error.to_string()})
}
