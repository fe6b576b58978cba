//! One client of the demonstration: its home, its link, its open client and whoever reads its messages.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::{Client, Content, Message, MessageStream};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ledger::{Handed, Ledger};
use super::plan::{NAMES, Who};
use crate::failure::Failure;
use crate::home::Home;
use crate::proxy::Proxy;

/// How long a process that reads for a client may take to hand out what is owed to it.
const CHILD_PATIENCE: Duration = Duration::from_secs(60);
/// How long such a process takes to handle a message: it is killed long before.
const CHILD_PACE_MS: u64 = 600_000;

/// The ledger, shared by everybody who writes into it.
pub(super) type SharedLedger = Arc<Mutex<Ledger>>;

/// Looks at or writes into the ledger.
pub(super) fn with<T>(ledger: &SharedLedger, look: impl FnOnce(&mut Ledger) -> T) -> T {
    // Entries are single pushes: a panic elsewhere leaves none half written.
    look(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) struct Participant {
    pub(super) who: Who,
    pub(super) client: Client,
    pub(super) link: Proxy,
    dir: PathBuf,
    home: Home,
    ledger: SharedLedger,
    reader: Option<Reader>,
}

struct Reader {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), highwater::Error>>,
}

impl Participant {
    /// Makes the home, registers through the link, and starts to read.
    pub(super) async fn join(
        who: Who,
        dir: PathBuf,
        link: Proxy,
        ledger: SharedLedger,
    ) -> Result<Self, Failure> {
        let home = Home::make(&dir, Some(&link.url()))?;
        let client = home.open_and_register().await?;
        let mut participant = Self { who, client, link, dir, home, ledger, reader: None };
        participant.start_reading().await?;
        Ok(participant)
    }

    pub(super) fn name(&self) -> &'static str {
        NAMES[self.who]
    }

    async fn start_reading(&mut self) -> Result<(), Failure> {
        let stream = self.client.messages().all_groups().open().await?;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(read(stream, self.who, self.ledger.clone(), stopped));
        self.reader = Some(Reader { stop, task });
        Ok(())
    }

    /// Stops the reader after the item it handles, which is acknowledged.
    pub(super) async fn stop_reading(&mut self) -> Result<(), Failure> {
        let Some(reader) = self.reader.take() else {
            return Ok(());
        };
        reader.stop.send_replace(true);
        Ok(reader.task.await??)
    }

    /// Whether the reader ended by itself, which is never right.
    pub(super) fn has_stopped(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.task.is_finished())
    }

    /// Closes the client, and opens it again from what is on disk.
    pub(super) async fn reopen(&mut self) -> Result<(), Failure> {
        self.stop_reading().await?;
        self.client.close().await;
        self.client = self.home.open().await?;
        self.start_reading().await
    }

    /// Has another process read, kills it while it handles an item, and reads on here.
    ///
    /// Call with the reader stopped and something on its way to this client.
    pub(super) async fn read_elsewhere_and_kill(&mut self) -> Result<(), Failure> {
        let handed = tokio::time::timeout(CHILD_PATIENCE, self.killed_with_an_item())
            .await
            .map_err(|_| Failure::new("a reading process was handed nothing to be killed with"))??;
        with(&self.ledger, |ledger| {
            ledger.killed.push((self.who, handed.id));
            ledger.handed.entry(self.who).or_default().push(handed);
        });
        self.start_reading().await
    }

    async fn killed_with_an_item(&self) -> Result<Handed, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--json", "stream", "--pace", &CHILD_PACE_MS.to_string(), "--home"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::new("a process has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let handed = loop {
            let line = lines
                .next_line()
                .await?
                .ok_or_else(|| Failure::new("a reading process ended before it was handed a message"))?;
            let value: Value = serde_json::from_str(&line)?;
            // News about a group is handled at once; a message takes the process until it is killed.
            if value["event"] == "message" {
                break parse(&value)?;
            }
        };
        child.kill().await?;
        Ok(handed)
    }

    pub(super) async fn leave(&mut self) {
        if let Err(failure) = self.stop_reading().await {
            tracing::warn!(?failure, "a reader failed");
        }
        self.client.close().await;
    }
}

fn parse(value: &Value) -> Result<Handed, Failure> {
    let field = |name: &str| value[name].as_str().unwrap_or_default();
    Ok(Handed {
        id: field("message_id").parse()?,
        group: field("group_id").parse()?,
        sequence_id: value["sequence_id"].as_u64().unwrap_or_default(),
    })
}

async fn read(
    mut stream: MessageStream,
    who: Who,
    ledger: SharedLedger,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), highwater::Error> {
    loop {
        let item = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            item = stream.next() => item,
        };
        match item {
            Some(item) => record(&ledger, who, &item?.message),
            None => break,
        }
    }
    stream.acknowledge().await?;
    stream.close().await;
    Ok(())
}

fn record(ledger: &SharedLedger, who: Who, message: &Message) {
    if matches!(message.content, Content::Membership(_)) {
        return;
    }
    let handed = Handed {
        id: message.id,
        group: message.group_id,
        sequence_id: message.sequence_id.map_or(0, highwater::SequenceId::get),
    };
    with(ledger, |ledger| ledger.handed.entry(who).or_default().push(handed));
}
