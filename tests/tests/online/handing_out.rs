//! A default consumer in a process of its own, killed at each point between being handed an item and its
//! acknowledgement.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use highwater_delivery::{
    Consent, Conversation, ConversationKind, ConversationState, DeliveryError, MIGRATIONS, MessageKind,
    NewMessage, audit, delivered, insert_published, put_conversation,
};
use highwater_store::{DatabaseKey, OpenOptions, Store, SystemClock};
use highwater_wire::{GroupId, InboxId, MessageId, SequenceId};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::process::Process;

const GROUP: GroupId = GroupId::from_bytes([7; 16]);

/// A database of messages that nobody has been handed yet.
pub(crate) struct Inbox {
    folder: tempfile::TempDir,
    key: DatabaseKey,
    pub(crate) store: Store,
    ids: Vec<String>,
    lease: Duration,
}

impl Inbox {
    /// With messages whose delivery numbers are 1 to `count`.
    pub(crate) async fn with(count: u64, lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = DatabaseKey::generate();
        let options = OpenOptions::new(folder.path().join("inbox.db"), key.clone(), vec![MIGRATIONS])
            .clock(Arc::new(SystemClock));
        let store = Store::open(options).await.unwrap();
        let mut inbox = Self { folder, key, store, ids: Vec::new(), lease };
        inbox.arrive(count).await;
        inbox
    }

    /// So many more messages.
    pub(crate) async fn arrive(&mut self, count: u64) {
        let first = self.ids.len() as u64 + 1;
        let messages: Vec<_> = (first..first + count).map(message).collect();
        self.ids.extend(messages.iter().map(|message| message.id.to_hex()));
        let stored: Result<_, DeliveryError> = self
            .store
            .write("arrive", move |tx| {
                Box::pin(async move {
                    put_conversation(tx, conversation()).await?;
                    insert_published(tx, &messages).await
                })
            })
            .await;
        stored.unwrap();
    }

    pub(crate) async fn d(&self) -> u64 {
        let found: Result<_, DeliveryError> =
            self.store.read("D", |tx| Box::pin(async move { delivered(tx, GROUP).await })).await;
        found.unwrap().get()
    }

    pub(crate) async fn audit(&self) {
        let audit: Result<_, DeliveryError> =
            self.store.read("audit", |tx| Box::pin(async move { audit(tx).await })).await;
        assert!(audit.unwrap().violations.is_empty());
    }

    /// The ids that the app has made durable, in order.
    fn saved(&self) -> Vec<String> {
        std::fs::read_to_string(self.app_file()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn app_file(&self) -> PathBuf {
        self.folder.path().join("saved")
    }

    /// What opens the database for somebody who doesn't wait for its writer.
    pub(crate) fn without_waiting(&self) -> OpenOptions {
        let mut options = OpenOptions::new(self.store.path(), self.key.clone(), vec![MIGRATIONS]);
        options.busy_timeout = Duration::ZERO;
        options
    }

    /// Takes the writer, which all processes share, until it is given back.
    pub(crate) async fn take_writer(&self) -> HeldWriter {
        let (entered, inside) = oneshot::channel();
        let (give_back, given_back) = oneshot::channel::<()>();
        let store = self.store.clone();
        let task = tokio::spawn(async move {
            let held: Result<(), DeliveryError> = store
                .write("held", move |_| {
                    Box::pin(async move {
                        let _ = entered.send(());
                        let _ = given_back.await;
                        Ok(())
                    })
                })
                .await;
            held.unwrap();
        });
        inside.await.unwrap();
        HeldWriter { give_back, task }
    }
}

/// Nobody else can write.
pub(crate) struct HeldWriter {
    give_back: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl HeldWriter {
    pub(crate) async fn give_back(self) {
        self.give_back.send(()).unwrap();
        self.task.await.unwrap();
    }
}

fn conversation() -> Conversation {
    Conversation {
        group: GROUP,
        kind: ConversationKind::Group,
        state: ConversationState::Active,
        consent: Consent::Allowed,
        name: None,
        created_ns: 1,
        adder: None,
        discovered_by: None,
    }
}

fn message(number: u64) -> NewMessage {
    let name = number.to_string();
    NewMessage {
        id: MessageId::derive(GROUP, &name, name.as_bytes()),
        group: GROUP,
        kind: MessageKind::Application,
        sender_inbox: InboxId::from_bytes([1; 32]),
        sender_installation: None,
        sent_ns: 1,
        content: name.clone().into_bytes(),
        idempotency_key: name,
        sequence_id: SequenceId::try_from(number).ok(),
        expires_ns: None,
    }
}

/// The process `consumer`, told one thing at a time.
pub(crate) struct Consumer {
    pub(crate) process: Process,
    heard: usize,
}

impl Consumer {
    /// A process with the database open, which consumes nothing yet.
    pub(crate) async fn start(inbox: &Inbox) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_consumer"));
        command.arg("--database").arg(inbox.store.path()).args(["--key", &inbox.key.to_hex()]);
        command.arg("--saved").arg(inbox.app_file());
        command.args(["--lease", &inbox.lease.as_millis().to_string()]);
        let mut consumer = Self { process: Process::run(command), heard: 0 };
        assert!(consumer.answer().await["ready"].is_u64());
        consumer
    }

    /// A process that is the default consumer.
    pub(crate) async fn owner(inbox: &Inbox) -> Self {
        let mut consumer = Self::start(inbox).await;
        assert_eq!(consumer.ask("open").await["opened"], true);
        consumer
    }

    /// What it says next.
    pub(crate) async fn answer(&mut self) -> Value {
        self.heard += 1;
        self.process.said_line(self.heard).await
    }

    /// Tells it to do something, and waits until it says that it begins.
    pub(crate) async fn begin(&mut self, command: &str) {
        self.process.tell(command).await;
        assert_eq!(self.answer().await["asks"], command);
    }

    /// Tells it to do something, and waits for what came of it.
    pub(crate) async fn ask(&mut self, command: &str) -> Value {
        self.process.tell(command).await;
        let answer = self.answer().await;
        if answer["asks"].is_string() { self.answer().await } else { answer }
    }

    /// Asks for the next item, which must have this number.
    pub(crate) async fn expect(&mut self, number: u64) -> Value {
        let item = self.ask("next").await;
        assert_eq!(item["number"], number, "{item}");
        item
    }
}

/// Where a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// The item is out, and the app has done nothing with it.
    BeforeTheAppSaved,
    /// The app is done with it, and hasn't said so.
    AfterTheAppSaved,
    /// The app has asked for the next item, and D isn't written.
    BeforeDWasWritten,
    /// No death: writing D fails, and the app opens another reader.
    TheWriteFailed,
}

/// For each of twenty messages, at each point: what was out comes again under the same id and cursor, nothing else does,
/// nothing is lost, and no item comes before the one ahead of it is settled.
///
/// Shows: STR-094, STR-095, STR-097, PROC-024, PROC-026, PROC-031, PROC-040, PROC-052.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_killed_around_any_item_repeats_that_one_and_loses_none() {
    for death in
        [Death::BeforeTheAppSaved, Death::AfterTheAppSaved, Death::BeforeDWasWritten, Death::TheWriteFailed]
    {
        let inbox = Inbox::with(20, Duration::from_secs(30)).await;
        let mut consumer = Consumer::owner(&inbox).await;
        for number in 1..=20 {
            let item = consumer.expect(number).await;
            assert_eq!(inbox.d().await, number - 1, "{death:?}");
            consumer = die(death, &inbox, consumer).await;
            assert_eq!(inbox.d().await, number - 1, "{death:?}: {number} was out");
            // The very same item, to the letter.
            assert_eq!(consumer.expect(number).await, item, "{death:?}");
            consumer.ask("save").await;
        }
        assert_eq!(consumer.ask("next").await["nothing"], true);
        assert_eq!(inbox.d().await, 20);
        consumer.process.end().await;
        // What the app kept: all of it, in order, each once but for the one that was out.
        let mut saved = inbox.saved();
        assert_eq!(saved.len(), if death == Death::BeforeTheAppSaved { 20 } else { 40 });
        saved.dedup();
        assert_eq!(saved, inbox.ids, "{death:?}");
        inbox.audit().await;
    }
}

/// Ends the life of a consumer that has an item out. Returns the next owner.
async fn die(death: Death, inbox: &Inbox, mut consumer: Consumer) -> Consumer {
    if death != Death::BeforeTheAppSaved {
        consumer.ask("save").await;
    }
    match death {
        Death::BeforeTheAppSaved | Death::AfterTheAppSaved => {
            consumer.process.kill().await;
        }
        Death::BeforeDWasWritten => {
            let writer = inbox.take_writer().await;
            consumer.begin("next").await;
            consumer.process.kill().await;
            writer.give_back().await;
        }
        Death::TheWriteFailed => {
            consumer.ask("fail").await;
            assert_eq!(consumer.ask("next").await["failed"], "storage");
            assert_eq!(consumer.ask("next").await["failed"], "ended");
            assert_eq!(consumer.ask("open").await["opened"], true);
            return consumer;
        }
    }
    // The lease has nearly all of its time left: that the process is gone is enough.
    Consumer::owner(inbox).await
}
