//! One client without a network: a database, and the calls that `sync` would make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use highwater_delivery::ConversationKind;
use highwater_identity::AssociationState;
use highwater_identity::sign::{self, LocalWallet};
use highwater_join::JoinReport;
use highwater_mls::{Need, Proof, Resolution, Resolutions};
use highwater_outbox::{ChangeRequest, CreateGroup, Inputs, IntentId, Next, Prepare};
use highwater_processing::{Report, Stop};
use highwater_store::{DatabaseKey, OpenOptions, Store, SystemClock};
use highwater_testkit_base::Disk;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::proto::contents::{ContentTypeId, DeleteMessage, EncodedContent};
use highwater_wire::{Cursor, GroupId, InboxId, InstallationKey, MessageId, SequenceId, Topic};
use prost::Message as _;

use crate::World;

/// What processing everything that was pending came to.
#[derive(Debug, Default)]
pub struct ProcessReport {
    /// Envelopes applied.
    pub applied: u32,
    /// Envelopes rejected.
    pub rejected: u32,
    /// How the last attempt ended.
    pub stop: Option<Stop>,
}

/// A client.
pub struct Peer {
    /// Its database.
    pub store: Store,
    /// Its inbox.
    pub inbox: InboxId,
    /// Its installation.
    pub installation: InstallationKey,
    pub(crate) path: PathBuf,
    pub(crate) key: DatabaseKey,
    pub(crate) folder: Arc<tempfile::TempDir>,
}

/// The name of the database file in its folder.
pub(crate) const FILE: &str = "client.db";

impl Peer {
    /// A registered client with a published key package.
    pub async fn new(world: &mut World) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(FILE);
        let key = DatabaseKey::generate();
        let store = open(&path, &key, None).await;
        let wallet = LocalWallet::generate();
        let installation =
            write(&store, |tx| Box::pin(async move { highwater_mls::create_installation(tx).await })).await;
        let unsigned = sign::registration(wallet.address(), 0, installation.key, 1);
        let text = unsigned.text().to_owned();
        let update = unsigned.finish(wallet.sign_erc191(&text), installation.sign(&text));
        let inbox: InboxId = update.inbox_id.parse().expect("an inbox id");
        let envelope = ClientEnvelope { payload: Some(client_envelope::Payload::IdentityUpdate(update)) }
            .encode_to_vec();
        world.publish(&envelope);
        write(&store, move |tx| {
            Box::pin(async move {
                highwater_mls::set_registration(tx, inbox, envelope.into()).await?;
                highwater_mls::registered(tx).await
            })
        })
        .await;
        let peer = Self { store, inbox, installation: installation.key, path, key, folder: Arc::new(folder) };
        peer.publish_key_package(world).await;
        peer
    }

    /// Publishes the key package that is owed, if one is.
    pub async fn publish_key_package(&self, world: &mut World) {
        let prepared = self
            .write(|tx| {
                Box::pin(async move {
                    match highwater_mls::key_package_owed(tx).await? {
                        true => highwater_mls::prepare_key_package(tx).await.map(Some),
                        false => Ok(None),
                    }
                })
            })
            .await;
        if let Some(prepared) = prepared {
            let envelope = ClientEnvelope::decode(prepared.envelope.as_ref()).expect("an envelope");
            world.publish_on(Topic::key_package(self.installation), envelope);
            self.write(move |tx| {
                Box::pin(async move { highwater_mls::key_package_published(tx, prepared.id).await })
            })
            .await;
        }
    }

    /// Closes the database and opens it again, as a restart does.
    pub async fn restart(&mut self) {
        self.store.close().await;
        self.store = open(&self.path, &self.key, None).await;
    }

    /// One transaction.
    pub async fn write<T, E, F>(&self, f: F) -> T
    where
        F: for<'t> FnOnce(
                &'t mut highwater_store::WriteTx,
            ) -> std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>
            + Send
            + 'static,
        T: Send + 'static,
        E: From<highwater_store::StoreError> + std::fmt::Debug + Send + 'static,
    {
        write(&self.store, f).await
    }

    /// Creates a group with these members and publishes what that takes, the echo included.
    pub async fn create_group(&self, world: &mut World, members: &[&Peer]) -> GroupId {
        self.create_group_of(world, members.iter().map(|peer| peer.inbox).collect()).await
    }

    /// The same with the inboxes of any members.
    pub async fn create_group_of(&self, world: &mut World, members: BTreeSet<InboxId>) -> GroupId {
        let (group, _) = self
            .write(move |tx| {
                Box::pin(async move {
                    let request = CreateGroup { kind: ConversationKind::Group, name: None, members };
                    highwater_outbox::create_group(tx, request).await
                })
            })
            .await;
        self.drain(world, group).await;
        self.catch_up(world, group).await;
        self.publish_welcomes(world).await;
        group
    }

    /// Queues a change and publishes it; the echo is left to the test.
    pub async fn change(&self, world: &mut World, group: GroupId, change: ChangeRequest) -> IntentId {
        let intent = self
            .write(move |tx| Box::pin(async move { highwater_outbox::queue_change(tx, group, change).await }))
            .await;
        self.drain(world, group).await;
        intent
    }

    /// Queues a text message without publishing it.
    pub async fn queue(&self, group: GroupId, text: &str) -> (IntentId, MessageId) {
        let content = text_content(text);
        self.write(move |tx| {
            Box::pin(async move { highwater_outbox::queue_message(tx, group, content, None).await })
        })
        .await
    }

    /// Queues a text message and publishes it; the echo is left to the test.
    pub async fn send(&self, world: &mut World, group: GroupId, text: &str) -> (IntentId, MessageId) {
        let queued = self.queue(group, text).await;
        self.drain(world, group).await;
        queued
    }

    /// Prepares without publishing. Returns the exact bytes of what may go out now.
    pub async fn prepare(&self, world: &World, group: GroupId) -> Vec<Vec<u8>> {
        self.prepare_believing(world, group, &BTreeMap::new()).await
    }

    /// The same, in the belief that these are the newest identity states.
    pub async fn prepare_believing(
        &self,
        world: &World,
        group: GroupId,
        believed: &BTreeMap<InboxId, (SequenceId, AssociationState)>,
    ) -> Vec<Vec<u8>> {
        let mut inputs = Inputs::default();
        loop {
            let next = self.read_next(group).await;
            let Next::Prepare { inboxes } = next else {
                break;
            };
            for inbox in inboxes {
                self.receive(world, Topic::identity(inbox)).await;
                self.process(Topic::identity(inbox)).await;
                let head = self.identity(inbox).await;
                inputs.identity.insert(inbox, believed.get(&inbox).cloned().or(head));
            }
            let given = inputs.clone();
            let prepared = self
                .write(move |tx| Box::pin(async move { highwater_outbox::prepare(tx, group, &given).await }))
                .await;
            if let Prepare::Needs(needs) = prepared {
                for need in needs {
                    let Need::KeyPackages { installations } = need else {
                        panic!("unexpected need {need:?}");
                    };
                    let package = |key: &InstallationKey| {
                        let newest = world.newest(Topic::key_package(*key))?.payload.clone();
                        match newest {
                            Some(client_envelope::Payload::KeyPackage(package)) => {
                                Some(package.key_package_tls_serialized)
                            }
                            _ => None,
                        }
                    };
                    inputs.key_packages.extend(installations.iter().map(|key| (*key, package(key))));
                }
            }
        }
        read(&self.store, move |tx| {
            Box::pin(async move { highwater_outbox::publishable(tx, group, usize::MAX).await })
        })
        .await
        .into_iter()
        .map(|attempt| attempt.envelope)
        .collect()
    }

    /// Prepares and publishes a group's queue until it has to wait for an echo.
    pub async fn drain(&self, world: &mut World, group: GroupId) {
        loop {
            self.prepare(world, group).await;
            let attempts = read(&self.store, move |tx| {
                Box::pin(async move { highwater_outbox::publishable(tx, group, usize::MAX).await })
            })
            .await;
            if attempts.is_empty() {
                return;
            }
            for attempt in attempts {
                let sequence_id = world.publish(&attempt.envelope);
                let hash = highwater_wire::MessageHash::from_bytes([1; 32]);
                self.write(move |tx| {
                    Box::pin(async move {
                        let (id, identity) = (attempt.id, attempt.payload_identity);
                        highwater_outbox::replied(tx, id, identity, sequence_id, hash).await
                    })
                })
                .await;
            }
        }
    }

    /// Publishes the Welcomes that applied commits owe.
    pub async fn publish_welcomes(&self, world: &mut World) {
        let owed =
            read(&self.store, |tx| Box::pin(async move { highwater_outbox::owed_welcomes(tx, 1000).await }))
                .await;
        for welcome in owed {
            world.publish(&welcome.envelope);
            self.write(move |tx| {
                Box::pin(async move { highwater_outbox::welcome_accepted(tx, welcome.id).await })
            })
            .await;
        }
    }

    /// Admits everything that a query after F would return.
    pub async fn receive(&self, world: &World, topic: Topic) {
        self.receive_through(world, topic, Cursor::from(SequenceId::MAX)).await;
    }

    /// The same, but nothing above `through`.
    pub async fn receive_through(&self, world: &World, topic: Topic, through: Cursor) {
        let received = read(&self.store, move |tx| {
            Box::pin(async move { highwater_receipt::received(tx, topic).await })
        })
        .await;
        let prefix = Arc::new(world.prefix_through(topic, received.cursor(), through));
        let mut reached = received;
        while reached.cursor() < prefix.last() {
            let given = Arc::clone(&prefix);
            let admission = self
                .write(move |tx| Box::pin(async move { highwater_receipt::admit(tx, &given).await }))
                .await;
            reached = admission.received();
        }
    }

    /// Attempts a topic until it is drained or held, without resolving anything.
    pub async fn process(&self, topic: Topic) -> ProcessReport {
        self.process_with(topic, Resolutions::default()).await
    }

    /// The same with resolutions at hand.
    pub async fn process_with(&self, topic: Topic, resolutions: Resolutions) -> ProcessReport {
        let mut total = ProcessReport::default();
        loop {
            let report: Report = highwater_processing::attempt(&self.store, topic, resolutions.clone())
                .await
                .expect("an attempt");
            total.applied += report.applied;
            total.rejected += report.rejected;
            let more = report.stop == Stop::More;
            total.stop = Some(report.stop);
            if !more {
                return total;
            }
        }
    }

    /// Receives and processes a group's topic, with the identity topics it turns out to need.
    pub async fn catch_up(&self, world: &World, group: GroupId) -> ProcessReport {
        let topic = Topic::group(group);
        self.receive(world, topic).await;
        let mut total = ProcessReport::default();
        loop {
            let report = self.process(topic).await;
            total.applied += report.applied;
            total.rejected += report.rejected;
            let needs = match &report.stop {
                Some(Stop::Held(hold)) => hold.needs.clone(),
                _ => Vec::new(),
            };
            total.stop = report.stop;
            if !self.supply(world, &needs).await {
                return total;
            }
        }
    }

    /// Fetches the identity topics among `needs`. Says whether that could help.
    async fn supply(&self, world: &World, needs: &[Need]) -> bool {
        let mut helped = false;
        for need in needs {
            if let Need::Identity { inbox, sequence_id } = *need {
                self.receive(world, Topic::identity(inbox)).await;
                self.process(Topic::identity(inbox)).await;
                helped |= read(&self.store, move |tx| {
                    Box::pin(async move { highwater_processing::snapshot(tx, inbox, sequence_id).await })
                })
                .await
                .is_some();
            }
        }
        helped
    }

    /// Receives this installation's Welcomes and attempts each, with what it turns out to need.
    pub async fn join(&self, world: &World) -> Vec<JoinReport> {
        let topic = Topic::welcome(self.installation);
        self.receive(world, topic).await;
        let pending = read(&self.store, move |tx| {
            Box::pin(async move { highwater_join::unresolved(tx, topic, Cursor::MAX).await })
        })
        .await;
        let mut reports = Vec::new();
        for sequence_id in pending {
            reports.push(self.attempt_join(world, sequence_id).await);
        }
        reports
    }

    async fn attempt_join(&self, world: &World, sequence_id: SequenceId) -> JoinReport {
        let topic = Topic::welcome(self.installation);
        let mut resolutions = Resolutions::default();
        loop {
            let report = highwater_join::attempt(&self.store, topic, sequence_id, resolutions.clone())
                .await
                .expect("a join attempt");
            let JoinReport::Held { needs, .. } = &report else {
                return report;
            };
            let mut helped = self.supply(world, needs).await;
            for need in needs {
                if let Need::Pointee { destination } = *need
                    && let Some(body) = world.first_welcome(destination)
                    && resolutions.get(need).is_none()
                {
                    let body = Proof::Pointee(body.encode_to_vec());
                    resolutions.insert(need.clone(), Resolution::Ready(body));
                    helped = true;
                }
                if let Need::Prefix { topic, through } = *need
                    && resolutions.get(need).is_none()
                {
                    let group = topic.group_id().expect("a group topic");
                    self.receive_through(world, topic, Cursor::from(through)).await;
                    self.catch_up_received(world, group).await;
                    resolutions.insert(need.clone(), Resolution::Ready(Proof::Done));
                    helped = true;
                }
            }
            if !helped {
                return report;
            }
        }
    }

    async fn catch_up_received(&self, world: &World, group: GroupId) {
        loop {
            let report = self.process(Topic::group(group)).await;
            let Some(Stop::Held(hold)) = report.stop else {
                return;
            };
            if !self.supply(world, &hold.needs).await {
                return;
            }
        }
    }

    /// Encrypts in this client's leaf without an attempt on record, and forgets that it did.
    pub async fn encrypt(&self, group: GroupId, plaintext: &'static [u8]) -> Vec<u8> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut trial = highwater_mls::Trial::load(tx, group).await?.expect("a group");
                trial.encrypt(plaintext)
            })
        })
        .await
    }

    async fn read_next(&self, group: GroupId) -> Next {
        read(&self.store, move |tx| Box::pin(async move { highwater_outbox::next(tx, group).await })).await
    }
}

/// The encoded text content of a message.
pub fn text_content(text: &str) -> Vec<u8> {
    EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: "xmtp.org".into(),
            type_id: "text".into(),
            version_major: 1,
            version_minor: 0,
        }),
        parameters: [("encoding".to_owned(), "UTF-8".to_owned())].into(),
        content: text.as_bytes().to_vec(),
        ..EncodedContent::default()
    }
    .encode_to_vec()
}

/// The content that deletes a message.
pub fn deletion_of(message: MessageId) -> Vec<u8> {
    EncodedContent {
        r#type: Some(ContentTypeId {
            authority_id: "xmtp.org".into(),
            type_id: "deleteMessage".into(),
            version_major: 1,
            version_minor: 0,
        }),
        content: DeleteMessage { message_id: message.to_hex() }.encode_to_vec(),
        ..EncodedContent::default()
    }
    .encode_to_vec()
}

pub(crate) async fn open(path: &std::path::Path, key: &DatabaseKey, disk: Option<&Disk>) -> Store {
    let migrations = vec![
        highwater_receipt::MIGRATIONS,
        highwater_delivery::MIGRATIONS,
        highwater_mls::MIGRATIONS,
        highwater_outbox::MIGRATIONS,
        highwater_processing::MIGRATIONS,
        highwater_join::MIGRATIONS,
    ];
    let options = OpenOptions::new(path, key.clone(), migrations).clock(Arc::new(SystemClock));
    let options = match disk {
        Some(disk) => options.vfs(disk.vfs()),
        None => options,
    };
    Store::open(options).await.expect("a database")
}

async fn write<T, E, F>(store: &Store, f: F) -> T
where
    F: for<'t> FnOnce(
            &'t mut highwater_store::WriteTx,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>
        + Send
        + 'static,
    T: Send + 'static,
    E: From<highwater_store::StoreError> + std::fmt::Debug + Send + 'static,
{
    store.write("test", f).await.expect("a transaction")
}

/// One snapshot of a store.
pub(crate) async fn read<T, E, F>(store: &Store, f: F) -> T
where
    F: for<'t> FnOnce(
            &'t mut highwater_store::ReadTx,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>
        + Send
        + 'static,
    T: Send + 'static,
    E: From<highwater_store::StoreError> + std::fmt::Debug + Send + 'static,
{
    store.read("test", f).await.expect("a snapshot")
}
