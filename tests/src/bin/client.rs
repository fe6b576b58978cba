//! A client in a process of its own, for tests that kill and freeze processes.
//!
//! It reads messages, the default consumer's or a replay, and says one line of JSON about each item before it asks for
//! the next; with `--say` it also sends, and says so when a send was confirmed. It ends in order when its standard input
//! closes, so that it never outlives its test.

#![allow(clippy::print_stdout, reason = "its output is what the test reads")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use highwater::{Client, Database, DatabaseKey, Group, GroupId, Item, Outcome};
use serde_json::json;

/// Reads messages, and sends some.
#[derive(Debug, Parser)]
struct Arguments {
    /// The database of a registered client.
    #[arg(long)]
    database: PathBuf,
    /// Its key, in hex.
    #[arg(long)]
    key: String,
    /// The backend.
    #[arg(long)]
    backend: String,
    /// Reads all that is stored and comes, instead of as the default consumer.
    #[arg(long)]
    replay: bool,
    /// Sends texts that begin with this, one after another.
    #[arg(long, requires = "group")]
    say: Option<String>,
    /// Where to.
    #[arg(long)]
    group: Option<GroupId>,
    /// The pause between two sends, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pace: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let database = Database::file(&arguments.database, DatabaseKey::from_hex(&arguments.key)?);
    let client = Client::builder().database(database).backend(&arguments.backend).open().await?;
    println!("{}", json!({"open": true}));
    tokio::select! {
        ended = read(&client, arguments.replay) => ended?,
        ended = say(&client, &arguments) => ended?,
        _ = until_told() => {}
    }
    client.close().await;
    Ok(())
}

async fn read(client: &Client, replay: bool) -> Result<()> {
    if replay {
        let mut stream = client.replay(client.beginning()).open().await?;
        while let Some(item) = stream.next().await {
            tell(&item?);
        }
    } else {
        let mut stream = client.messages().open().await?;
        while let Some(item) = stream.next().await {
            tell(&item?);
        }
    }
    Ok(())
}

fn tell(item: &Item) {
    let number = item.cursor.number().map(|number| number.get());
    let text = item.message.text().ok();
    println!("{}", json!({"got": item.message.id.to_hex(), "number": number, "text": text}));
}

async fn say(client: &Client, arguments: &Arguments) -> Result<()> {
    let (Some(prefix), Some(group)) = (&arguments.say, arguments.group) else {
        return std::future::pending().await;
    };
    let group: Group = client.group(group).await?.within(Duration::from_secs(20));
    for n in 0.. {
        let text = format!("{prefix}.{n}");
        let sent = group.send_text(&text).await?;
        if let Outcome::Confirmed { .. } = sent.outcome {
            println!("{}", json!({"sent": sent.message_id.to_hex(), "text": text}));
        }
        tokio::time::sleep(Duration::from_millis(arguments.pace)).await;
    }
    Ok(())
}

/// Resolves when standard input closes.
async fn until_told() {
    let (told, is_told) = tokio::sync::oneshot::channel::<()>();
    // Not a task: it may wait for ever, and a runtime waits for its tasks.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(told);
    });
    let _ = is_told.await;
}
