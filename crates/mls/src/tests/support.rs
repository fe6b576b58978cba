//! People with identity logs, their clients, and a topic between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use highwater_identity::sign::{self, LocalWallet};
use highwater_identity::{AssociationState, Verdicts};
use highwater_store::{ReadTx, Store, StoreError, WriteTx};
use highwater_testkit_base::StoreFixture;
use highwater_wire::proto::associations::IdentityUpdate;
use highwater_wire::proto::backend::{ClientEnvelope, WelcomeMessage, client_envelope};
use highwater_wire::{GroupId, InboxId, InstallationKey, SequenceId};
use prost::Message as _;

use crate::*;

/// What the backend would hold, and what every client could verify from it.
#[derive(Default)]
pub(crate) struct World {
    last_id: u64,
    pub(crate) snapshots: Snapshots,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The place of the next envelope.
    pub(crate) fn next_id(&mut self) -> SequenceId {
        self.last_id += 1;
        SequenceId::try_from(self.last_id).unwrap()
    }
}

/// A wallet's inbox.
pub(crate) struct Person {
    wallet: LocalWallet,
    pub(crate) inbox: InboxId,
    pub(crate) head: Option<SequenceId>,
    state: Option<AssociationState>,
}

impl Person {
    pub(crate) fn new() -> Self {
        let wallet = LocalWallet::generate();
        let inbox = highwater_identity::inbox_id(&wallet.address().to_string(), 0);
        Self { wallet, inbox, head: None, state: None }
    }

    fn apply(&mut self, world: &mut World, update: &IdentityUpdate) {
        let state =
            AssociationState::apply(self.state.as_ref(), self.inbox, update, &Verdicts::default()).unwrap();
        let id = world.next_id();
        world.snapshots.insert((self.inbox, id), state.clone());
        (self.state, self.head) = (Some(state), Some(id));
    }

    /// A new client whose installation belongs to this inbox.
    pub(crate) async fn client(&mut self, world: &mut World) -> Client {
        let fixture = StoreFixture::new(vec![MIGRATIONS]).await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        // OpenMLS compares lifetimes with the system's clock.
        fixture.clock().set(i64::try_from(now.as_nanos()).unwrap());
        let store = fixture.store().clone();
        let installation = write(&store, |tx| Box::pin(create_installation(tx))).await.unwrap();
        self.add(world, &installation);
        let inbox = self.inbox;
        write(&store, move |tx| {
            Box::pin(async move {
                set_registration(tx, inbox, Bytes::from_static(b"exact bytes")).await?;
                registered(tx).await
            })
        })
        .await
        .unwrap();
        Client { fixture, key: installation.key, inbox }
    }

    fn add(&mut self, world: &mut World, installation: &Installation) {
        let now = self.head.map_or(1, |head| head.get().cast_signed() + 1);
        let update = if self.state.is_none() {
            let unsigned = sign::registration(self.wallet.address(), 0, installation.key, now);
            let text = unsigned.text().to_owned();
            unsigned.finish(self.wallet.sign_erc191(&text), installation.sign(&text))
        } else {
            let unsigned = sign::add_installation(self.inbox, installation.key, now);
            let text = unsigned.text().to_owned();
            unsigned.finish(self.wallet.sign_erc191(&text), installation.sign(&text))
        };
        self.apply(world, &update);
    }

    pub(crate) fn revoke(&mut self, world: &mut World, installation: InstallationKey) {
        let unsigned = sign::revoke_installation(self.inbox, installation, 1_000);
        let text = unsigned.text().to_owned();
        self.apply(world, &unsigned.finish(self.wallet.sign_erc191(&text)));
    }

    pub(crate) fn entry(&self) -> MembershipEntry {
        MembershipEntry { sequence_id: self.head.unwrap().get(), failed: BTreeSet::new() }
    }
}

pub(crate) struct Client {
    pub(crate) fixture: StoreFixture,
    pub(crate) key: InstallationKey,
    pub(crate) inbox: InboxId,
}

pub(crate) async fn write<T, F>(store: &Store, f: F) -> Result<T, MlsError>
where
    T: Send + 'static,
    F: for<'t> FnOnce(
            &'t mut WriteTx,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<T, MlsError>> + Send + 't>>
        + Send
        + 'static,
{
    store.write("test", f).await
}

/// What a client makes of a message, without the machinery above.
#[derive(Debug, PartialEq)]
pub(crate) enum Got {
    Text(Member, String),
    Proposal,
    Merged,
    Removed,
    Own,
    Failed(InputFailure),
}

impl Client {
    pub(crate) fn member(&self) -> Member {
        Member { inbox: self.inbox, installation: self.key }
    }

    /// Loads the group, works on it and stores it, as one attempt.
    pub(crate) async fn attempt<T: Send + 'static>(
        &self,
        group: GroupId,
        work: impl FnOnce(&mut Trial) -> Result<T, MlsError> + Send + 'static,
    ) -> Result<T, MlsError> {
        write(self.fixture.store(), move |tx| {
            Box::pin(async move {
                let mut trial = Trial::load(tx, group).await?.expect("the group is there");
                let done = work(&mut trial)?;
                trial.store(tx).await?;
                Ok(done)
            })
        })
        .await
    }

    pub(crate) async fn create(&self, group: GroupId, components: Components) {
        write(self.fixture.store(), move |tx| {
            Box::pin(async move { Trial::create(tx, group, components).await?.store(tx).await })
        })
        .await
        .unwrap();
    }

    pub(crate) async fn encrypt(&self, group: GroupId, text: &str) -> Vec<u8> {
        let text = text.to_owned();
        self.attempt(group, move |trial| trial.encrypt(text.as_bytes())).await.unwrap()
    }

    pub(crate) async fn commit(&self, group: GroupId, change: Change) -> Result<PreparedCommit, MlsError> {
        self.attempt(group, move |trial| trial.commit(change)).await
    }

    /// Reads a message at its place in the topic, as ordered processing does.
    pub(crate) async fn read(&self, world: &World, group: GroupId, at: SequenceId, data: &[u8]) -> Got {
        let (data, snapshots) = (data.to_vec(), world.snapshots.clone());
        self.attempt(group, move |trial| {
            trial.mark()?;
            let got = settle(trial, at, &data, &snapshots)?;
            if let Got::Failed(_) = got {
                trial.rollback_to_mark()?;
            }
            Ok(got)
        })
        .await
        .unwrap()
    }

    /// Applies the own pending commit, its echo having come back.
    pub(crate) async fn echo(
        &self,
        world: &World,
        group: GroupId,
        at: SequenceId,
    ) -> Result<CommitFacts, InputFailure> {
        let snapshots = world.snapshots.clone();
        self.attempt(group, move |trial| {
            let own = trial.own_pending_commit()?.expect("a commit is pending");
            let facts = own.facts().clone();
            if let Err(failure) = check_commit(&facts, at, &snapshots) {
                trial.clear_pending_commit()?;
                return Ok(Err(failure));
            }
            trial.merge_own(own, at)?;
            Ok(Ok(facts))
        })
        .await
        .unwrap()
    }

    /// Commits, and takes the echo at once.
    pub(crate) async fn change(
        &self,
        world: &mut World,
        group: GroupId,
        change: Change,
    ) -> (SequenceId, PreparedCommit) {
        let prepared = self.commit(group, change).await.unwrap();
        let at = world.next_id();
        self.echo(world, group, at).await.unwrap();
        (at, prepared)
    }

    /// This client's key package, published.
    pub(crate) async fn key_package(&self) -> Vec<u8> {
        let prepared = write(self.fixture.store(), |tx| {
            Box::pin(async move {
                let prepared = prepare_key_package(tx).await?;
                key_package_published(tx, prepared.id).await?;
                Ok(prepared)
            })
        })
        .await
        .unwrap();
        key_package_bytes(&prepared.envelope)
    }

    /// The Welcome to this client, through its own unwrapping and checks, installed.
    pub(crate) async fn join(
        &self,
        world: &mut World,
        prepared: &PreparedCommit,
        anchor: SequenceId,
    ) -> Member {
        let message = self.sealed(prepared, anchor);
        let at = world.next_id();
        self.join_with(world, &message, at).await.unwrap()
    }

    pub(crate) fn sealed(&self, prepared: &PreparedCommit, anchor: SequenceId) -> WelcomeMessage {
        let mine = |recipient: &&Recipient| recipient.installation == self.key;
        let recipient = prepared.added.iter().find(mine).expect("the commit added this client");
        let welcome = prepared.welcome.as_ref().expect("there is a Welcome");
        welcome_message(&seal_welcome(welcome, anchor, recipient).unwrap())
    }

    pub(crate) async fn join_with(
        &self,
        world: &World,
        message: &WelcomeMessage,
        at: SequenceId,
    ) -> Result<Member, WelcomeFailure> {
        let (message, snapshots) = (message.clone(), world.snapshots.clone());
        let joined: Result<Result<Member, WelcomeFailure>, MlsError> =
            write(self.fixture.store(), move |tx| {
                Box::pin(async move {
                    Ok(match checked(tx, &message, at, &snapshots).await {
                        Ok(join) => {
                            let adder = join.adder();
                            join.install(tx).await?;
                            Ok(adder)
                        }
                        Err(failure) => Err(failure),
                    })
                })
            })
            .await;
        joined.unwrap()
    }

    pub(crate) async fn view<T: Send + 'static>(
        &self,
        group: GroupId,
        look: impl FnOnce(&Trial) -> T + Send + 'static,
    ) -> T {
        self.attempt(group, move |trial| Ok(look(trial))).await.unwrap()
    }

    pub(crate) async fn audit(&self) {
        let audit =
            self.fixture.store().read("audit", |tx: &mut ReadTx| Box::pin(crate::audit(tx))).await.unwrap();
        assert_eq!(audit.violations, []);
        assert!(audit.checks > 0);
    }

    /// All rows of this crate, to compare before and after.
    pub(crate) async fn rows(&self) -> Vec<(Vec<u8>, String, Vec<u8>, Vec<u8>)> {
        use sqlx::Row as _;
        self.fixture
            .store()
            .read("rows", |tx: &mut ReadTx| {
                Box::pin(async move {
                    let rows =
                        sqlx::query("SELECT group_id, label, key, value FROM mls_values ORDER BY 1, 2, 3")
                            .fetch_all(tx.conn())
                            .await?;
                    let rows = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)));
                    Ok::<_, StoreError>(rows.collect())
                })
            })
            .await
            .unwrap()
    }
}

async fn checked(
    tx: &mut WriteTx,
    message: &WelcomeMessage,
    at: SequenceId,
    snapshots: &Snapshots,
) -> Result<CheckedJoin, WelcomeFailure> {
    let opened = match open_welcome(tx, message).await? {
        Unwrapped::Welcome(opened) => opened,
        Unwrapped::Pointer(_) => panic!("no pointer is expected"),
    };
    StagedJoin::stage(tx, opened).await?.check(at, snapshots)
}

fn settle(trial: &mut Trial, at: SequenceId, data: &[u8], snapshots: &Snapshots) -> Result<Got, MlsError> {
    let processed = trial.header(data).and_then(|_| trial.process(data));
    Ok(match processed {
        Ok(Input::Application { sender, plaintext, .. }) => {
            Got::Text(sender, String::from_utf8(plaintext).unwrap())
        }
        Ok(Input::Proposal { .. }) => Got::Proposal,
        Ok(Input::OwnMessage { .. }) => Got::Own,
        Ok(Input::Commit(staged)) => match check_commit(staged.facts(), at, snapshots) {
            Err(failure) => Got::Failed(failure),
            Ok(()) if trial.merge(staged, at)?.removed_self => Got::Removed,
            Ok(()) => Got::Merged,
        },
        Err(failure) => Got::Failed(failure),
    })
}

pub(crate) fn key_package_bytes(envelope: &[u8]) -> Vec<u8> {
    match ClientEnvelope::decode(envelope).unwrap().payload {
        Some(client_envelope::Payload::KeyPackage(package)) => package.key_package_tls_serialized,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn welcome_message(envelope: &[u8]) -> WelcomeMessage {
    match ClientEnvelope::decode(envelope).unwrap().payload {
        Some(client_envelope::Payload::WelcomeMessage(message)) => message,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn group_id(number: u8) -> GroupId {
    GroupId::from_bytes([number; 16])
}

/// The components of a new group of this creator.
pub(crate) fn group_of(creator: InboxId) -> Components {
    Components {
        super_admins: BTreeSet::from([creator]),
        membership: BTreeMap::from([(creator, MembershipEntry::default())]),
        ..Components::empty(creator)
    }
}

pub(crate) fn dm_of(creator: InboxId, peer: InboxId) -> Components {
    Components {
        membership: BTreeMap::from([(creator, MembershipEntry::default())]),
        conversation: ConversationType::Dm,
        dm_pair: Some(BTreeSet::from([creator, peer])),
        ..Components::empty(creator)
    }
}

/// Adds these clients' leaves, with these people's entries.
pub(crate) async fn adding(people: &[&Person], clients: &[&Client]) -> Change {
    let mut add_leaves = Vec::new();
    for client in clients {
        add_leaves.push(client.key_package().await);
    }
    Change::Membership {
        upsert: people.iter().map(|person| (person.inbox, person.entry())).collect(),
        remove: BTreeSet::new(),
        add_leaves,
        remove_leaves: BTreeSet::new(),
    }
}

pub(crate) fn removing(person: &Person, clients: &[&Client]) -> Change {
    Change::Membership {
        upsert: BTreeMap::new(),
        remove: BTreeSet::from([person.inbox]),
        add_leaves: Vec::new(),
        remove_leaves: clients.iter().map(|client| client.key).collect(),
    }
}

/// Alice and Bob, each with one client, in a group that Alice created.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) alice: Person,
    pub(crate) bob: Person,
    pub(crate) a: Client,
    pub(crate) b: Client,
    pub(crate) group: GroupId,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        let mut world = World::new();
        let (mut alice, mut bob) = (Person::new(), Person::new());
        let a = alice.client(&mut world).await;
        let b = bob.client(&mut world).await;
        let group = group_id(1);
        a.create(group, group_of(alice.inbox)).await;
        let change = adding(&[&alice, &bob], &[&b]).await;
        let (at, prepared) = a.change(&mut world, group, change).await;
        assert_eq!(b.join(&mut world, &prepared, at).await, a.member());
        Self { world, alice, bob, a, b, group }
    }

    /// Another person's client, added by Alice and known to Bob.
    pub(crate) async fn add_carol(&mut self) -> (Person, Client) {
        let mut carol = Person::new();
        let c = carol.client(&mut self.world).await;
        let change = adding(&[&carol], &[&c]).await;
        let (at, prepared) = self.a.change(&mut self.world, self.group, change).await;
        assert_eq!(self.b.read(&self.world, self.group, at, &prepared.data).await, Got::Merged);
        c.join(&mut self.world, &prepared, at).await;
        (carol, c)
    }

    /// Bob reads a commit of Alice's at the next place.
    pub(crate) async fn bob_reads(&mut self, data: &[u8]) -> Got {
        let at = self.world.next_id();
        self.b.read(&self.world, self.group, at, data).await
    }

    pub(crate) async fn agree(&self) {
        let a = self.a.view(self.group, |trial| (trial.epoch(), trial.epoch_authenticator())).await;
        let b = self.b.view(self.group, |trial| (trial.epoch(), trial.epoch_authenticator())).await;
        assert_eq!(a, b);
    }
}

/// Component, payload of its update (`None` removes it), and the value the rogue pretends it leads to.
pub(crate) type RogueUpdate = (u16, Option<Vec<u8>>, Option<Vec<u8>>);

/// A commit or proposal that this client's own checks would never let out.
#[derive(Default)]
pub(crate) struct Rogue {
    pub(crate) updates: Vec<RogueUpdate>,
    pub(crate) add: Vec<Vec<u8>>,
    pub(crate) remove: Vec<InstallationKey>,
    pub(crate) leaf: Option<openmls::prelude::LeafNodeParameters>,
    pub(crate) proposals: Vec<openmls::prelude::Proposal>,
    pub(crate) context: Option<openmls::extensions::Extensions<openmls::group::GroupContext>>,
    pub(crate) take_up_stored: bool,
}

impl Rogue {
    /// The updates between what a group's components are and what `change` makes of them.
    pub(crate) async fn changing(
        client: &Client,
        group: GroupId,
        change: impl FnOnce(&mut Components),
    ) -> Self {
        let before = client.view(group, |trial| trial.components().unwrap()).await;
        let mut after = Components::clone(&before);
        change(&mut after);
        let new = after.encode();
        let updates = before
            .updates(&after)
            .into_iter()
            .map(|(component, payload)| {
                let value = new.get(&component).map(<[u8]>::to_vec);
                (component, payload, value)
            })
            .collect();
        Self { updates, ..Self::default() }
    }

    /// The commit's bytes. It doesn't stay pending.
    pub(crate) async fn commit(self, client: &Client, group: GroupId) -> Vec<u8> {
        client.attempt(group, move |trial| Ok(self.build(trial))).await.unwrap()
    }

    fn build(self, trial: &mut Trial) -> Vec<u8> {
        use openmls::component::ComponentData;
        use openmls::prelude::{AppDataUpdateProposal, Proposal};
        use openmls_traits::OpenMlsProvider as _;

        let signing = crate::installation::loaded_signing_key(&trial.provider.overlay).unwrap();
        let signer = crate::provider::InstallationSigner(&signing);
        let removed: Vec<_> = trial
            .leaves()
            .into_iter()
            .filter(|(_, member)| self.remove.contains(&member.installation))
            .map(|(leaf, _)| leaf)
            .collect();
        let added: Vec<_> = self.add.iter().map(|bytes| lax_key_package(bytes)).collect();
        let proposals = self.updates.iter().map(|(component, payload, _)| {
            let update = match payload {
                Some(payload) => AppDataUpdateProposal::update(*component, payload.clone()),
                None => AppDataUpdateProposal::remove(*component),
            };
            Proposal::AppDataUpdate(Box::new(update))
        });
        let mut builder = trial
            .group
            .commit_builder()
            .consume_proposal_store(self.take_up_stored)
            .propose_removals(removed)
            .propose_adds(added)
            .add_proposals(proposals)
            .add_proposals(self.proposals);
        if let Some(leaf) = self.leaf {
            builder = builder.leaf_node_parameters(leaf);
        }
        if let Some(context) = self.context {
            builder = builder.propose_group_context_extensions(context).unwrap();
        }
        let mut builder = builder.load_psks(&trial.provider.overlay).unwrap();
        let mut updater = builder.app_data_dictionary_updater();
        for (component, _, value) in self.updates {
            match value {
                Some(value) => updater.set(ComponentData::from_parts(component, value.into())),
                None => updater.remove(&component),
            }
        }
        let changes = updater.changes();
        builder.with_app_data_dictionary_updates(changes);
        let bundle = builder
            .build(trial.provider.rand(), trial.provider.crypto(), &signer, |_| true)
            .unwrap()
            .stage_commit(&trial.provider)
            .unwrap();
        trial.journal.other_use();
        trial.clear_pending_commit().unwrap();
        bundle.commit().to_bytes().unwrap()
    }
}

fn lax_key_package(bytes: &[u8]) -> openmls::prelude::KeyPackage {
    use tls_codec::Deserialize as _;
    openmls::prelude::KeyPackageIn::tls_deserialize_exact(bytes)
        .unwrap()
        .validate(crate::provider::crypto(), openmls::prelude::ProtocolVersion::Mls10)
        .unwrap()
}

/// Lets a client do something with the bare MLS group, as a foreign client might.
pub(crate) async fn bare<T: Send + 'static>(
    client: &Client,
    group: GroupId,
    work: impl FnOnce(
        &mut openmls::group::MlsGroup,
        &crate::provider::Provider,
        &crate::provider::InstallationSigner<'_>,
    ) -> T
    + Send
    + 'static,
) -> T {
    let done = client.attempt(group, move |trial| {
        let signing = crate::installation::loaded_signing_key(&trial.provider.overlay)?;
        let signer = crate::provider::InstallationSigner(&signing);
        let done = work(&mut trial.group, &trial.provider, &signer);
        trial.journal.other_use();
        Ok(done)
    });
    done.await.unwrap()
}
