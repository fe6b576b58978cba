//! A member whose client isn't ours: plain OpenMLS, so that it can also say what no client of this project would.

use std::collections::BTreeMap;

use highwater_identity::sign::{self, LocalWallet};
use highwater_wire::proto::associations::IdentityUpdate;
use highwater_wire::proto::backend::{ClientEnvelope, KeyPackage as WireKeyPackage, WelcomeMessage};
use highwater_wire::proto::backend::{client_envelope, welcome_message};
use highwater_wire::proto::contents::{MlsCredential, PlaintextEnvelope, plaintext_envelope};
use highwater_wire::proto::contents::{WelcomeWrapperAlgorithm, WelcomeWrapperEncryption};
use highwater_wire::{InboxId, InstallationKey, SequenceId, Topic};
use openmls::component::ComponentData;
use openmls::extensions::UnknownExtension;
use openmls::group::{MlsGroup, MlsGroupJoinConfig, PURE_CIPHERTEXT_WIRE_FORMAT_POLICY, StagedWelcome};
use openmls::messages::proposals::{AppDataUpdateOperation, AppDataUpdateProposal};
use openmls::prelude::*;
use openmls_basic_credential::SignatureKeyPair;
use openmls_rust_crypto::OpenMlsRustCrypto;
use prost::Message as _;
use tls_codec::{Deserialize as _, Serialize as _};

use crate::World;

const SUITE: Ciphersuite = Ciphersuite::MLS_128_DHKEMX25519_CHACHA20POLY1305_SHA256_Ed25519;
/// Key package extension: the key that Welcomes are sealed to.
const WRAPPER_EXTENSION: u16 = 0xff03;

/// A component of the group's dictionary, the payload of its update (`None` removes it), and the value that the committer
/// says it leads to.
pub type RawUpdate = (u16, Option<Vec<u8>>, Option<Vec<u8>>);

/// A commit of anything.
#[derive(Default)]
pub struct RawCommit {
    /// Updates of components.
    pub updates: Vec<RawUpdate>,
    /// Key packages of leaves to add.
    pub add: Vec<KeyPackage>,
    /// Leaves to remove.
    pub remove: Vec<InstallationKey>,
    /// What the committer's new leaf is to be.
    pub leaf: Option<LeafNodeParameters>,
    /// Further proposals, by value.
    pub proposals: Vec<Proposal>,
    /// New extensions of the group context.
    pub context: Option<Extensions<GroupContext>>,
    /// Take up the proposals this member stored, by reference.
    pub take_up_stored: bool,
    /// The values that the taken up updates of components lead to.
    pub values: Vec<(u16, Vec<u8>)>,
}

/// The member.
pub struct Foreign {
    /// Its inbox.
    pub inbox: InboxId,
    /// Its installation.
    pub installation: InstallationKey,
    /// Its keys and groups.
    pub provider: OpenMlsRustCrypto,
    /// Signs for its leaf.
    pub signer: SignatureKeyPair,
    wallet: LocalWallet,
    wrapper: HpkeKeyPair,
    group: Option<MlsGroup>,
}

impl Foreign {
    /// A registered member with a published key package, in no group yet.
    pub fn new(world: &mut World) -> Self {
        let provider = OpenMlsRustCrypto::default();
        let crypto = provider.crypto();
        let (private, public) =
            crypto.signature_key_gen(SUITE.signature_algorithm()).expect("a signature key");
        let seed: [u8; 32] = private[..32].try_into().expect("32 bytes");
        let installation = InstallationKey::try_from(public.as_slice()).expect("32 bytes");
        let signer = SignatureKeyPair::from_raw(SUITE.signature_algorithm(), private, public);
        let wrapper = crypto.derive_hpke_keypair(SUITE.hpke_config(), &[7; 32]).expect("a wrapper key");
        let wallet = LocalWallet::generate();
        let unsigned = sign::registration(wallet.address(), 0, installation, 1);
        let text = unsigned.text().to_owned();
        let update = unsigned.finish(wallet.sign_erc191(&text), sign::sign_as_installation(&seed, &text));
        let inbox = update.inbox_id.parse().expect("an inbox id");
        publish_update(world, update);
        let member = Self { inbox, installation, provider, signer, wallet, wrapper, group: None };
        member.publish_key_package(world);
        member
    }

    /// Publishes a fresh key package. One is used up by one join.
    pub fn publish_key_package(&self, world: &mut World) {
        let package = self.key_package(&credential(self.inbox));
        let key_package_tls_serialized = package.tls_serialize_detached().expect("its bytes");
        let payload = client_envelope::Payload::KeyPackage(WireKeyPackage { key_package_tls_serialized });
        let envelope = ClientEnvelope { payload: Some(payload) };
        world.publish_on(Topic::key_package(self.installation), envelope);
    }

    /// A key package of this member's key under any credential.
    pub fn key_package(&self, identity: &[u8]) -> KeyPackage {
        self.key_package_for(identity, Lifetime::default())
    }

    /// The same for a time that may be over.
    pub fn key_package_for(&self, identity: &[u8], lifetime: Lifetime) -> KeyPackage {
        let wrapper = WelcomeWrapperEncryption {
            pub_key: self.wrapper.public.clone(),
            algorithm: WelcomeWrapperAlgorithm::Curve25519 as i32,
        };
        let wrapper = UnknownExtension(wrapper.encode_to_vec());
        let extensions = Extensions::single(Extension::Unknown(WRAPPER_EXTENSION, wrapper));
        KeyPackage::builder()
            .key_package_lifetime(lifetime)
            .leaf_node_capabilities(capabilities())
            .key_package_extensions(extensions.expect("an extension of key packages"))
            .build(SUITE, &self.provider, &self.signer, self.claiming(identity))
            .expect("a key package")
            .key_package()
            .clone()
    }

    /// A credential of any identity with this member's key.
    pub fn claiming(&self, identity: &[u8]) -> CredentialWithKey {
        CredentialWithKey {
            credential: BasicCredential::new(identity.to_vec()).into(),
            signature_key: self.installation.as_bytes().as_slice().into(),
        }
    }

    /// Joins the group of the newest Welcome to this member. Nothing is checked but what OpenMLS checks.
    pub fn join(&mut self, world: &World) {
        let newest = world.newest(Topic::welcome(self.installation)).and_then(|found| found.payload.clone());
        let Some(client_envelope::Payload::WelcomeMessage(WelcomeMessage { version: Some(version) })) =
            newest
        else {
            panic!("there is a Welcome")
        };
        let welcome_message::Version::V1(sealed) = version else { panic!("no pointer was advertised") };
        let sealed = HpkeCiphertext::tls_deserialize_exact(sealed.data).expect("a ciphertext");
        let opened = self
            .provider
            .crypto()
            .hpke_open(SUITE.hpke_config(), &sealed, &self.wrapper.private, &[], &[])
            .expect("sealed to this member");
        let message = MlsMessageIn::tls_deserialize_exact(opened).expect("an MLS message");
        let MlsMessageBodyIn::Welcome(welcome) = message.extract() else { panic!("a Welcome") };
        let config = MlsGroupJoinConfig::builder()
            .wire_format_policy(PURE_CIPHERTEXT_WIRE_FORMAT_POLICY)
            .max_past_epochs(10)
            .use_ratchet_tree_extension(true)
            .build();
        let staged = StagedWelcome::new_from_welcome(&self.provider, &config, welcome, None);
        self.group = Some(staged.expect("a valid Welcome").into_group(&self.provider).expect("a group"));
    }

    /// Its group.
    pub fn group(&mut self) -> &mut MlsGroup {
        self.group.as_mut().expect("a group was joined")
    }

    /// The group with what its operations take.
    pub fn parts(&mut self) -> (&mut MlsGroup, &OpenMlsRustCrypto, &SignatureKeyPair) {
        (self.group.as_mut().expect("a group was joined"), &self.provider, &self.signer)
    }

    /// An application message of any plaintext.
    pub fn encrypt(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let (group, provider, signer) = self.parts();
        let message = group.create_message(provider, signer, plaintext).expect("a message");
        message.to_bytes().expect("its bytes")
    }

    /// A message with this text as its whole content, and as its idempotency key.
    pub fn say(&mut self, text: &str) -> Vec<u8> {
        self.say_content(text, crate::text_content(text))
    }

    /// A message with this content.
    pub fn say_content(&mut self, idempotency_key: &str, content: Vec<u8>) -> Vec<u8> {
        let v1 = plaintext_envelope::V1 { content, idempotency_key: idempotency_key.to_owned() };
        let content = Some(plaintext_envelope::Content::V1(v1));
        self.encrypt(&PlaintextEnvelope { content }.encode_to_vec())
    }

    /// A standalone proposal, kept in this member's store.
    pub fn propose(&mut self, proposal: Propose) -> Vec<u8> {
        let (group, provider, signer) = self.parts();
        let (message, _) =
            group.propose(provider, signer, proposal, ProposalOrRefType::Reference).expect("a proposal");
        message.to_bytes().expect("its bytes")
    }

    /// A commit that this member forgets at once.
    pub fn commit(&mut self, raw: RawCommit) -> Vec<u8> {
        let data = self.build(raw);
        let (group, provider, _) = self.parts();
        group.clear_pending_commit(provider.storage()).expect("storage");
        data
    }

    /// A commit that this member goes on from.
    pub fn advance(&mut self, raw: RawCommit) -> Vec<u8> {
        let data = self.build(raw);
        let (group, provider, _) = self.parts();
        group.merge_pending_commit(provider).expect("a pending commit");
        data
    }

    /// Follows another member's commit. `values` are the new ones of the components it updates that aren't scalars.
    pub fn follow(&mut self, data: &[u8], values: &[(u16, Vec<u8>)]) {
        let (group, provider, _) = self.parts();
        let message = MlsMessageIn::tls_deserialize_exact(data).expect("a message");
        let message = message.try_into_protocol_message().expect("a group message");
        let processed = group.process_message(provider, message).expect("a valid message");
        let staged = match processed.into_content() {
            ProcessedMessageContent::StagedCommitMessage(staged) => *staged,
            ProcessedMessageContent::UnresolvedAppDataCommit(commit) => {
                let mut updater = group.app_data_dictionary_updater();
                for update in commit.app_data_update_proposals() {
                    let AppDataUpdateOperation::Update(value) = update.operation() else { continue };
                    let given = values.iter().find(|(component, _)| *component == update.component_id());
                    let value = given.map_or(value.as_slice().to_vec(), |(_, value)| value.clone());
                    updater.set(ComponentData::from_parts(update.component_id(), value.into()));
                }
                let changes = updater.changes();
                group.stage_app_data_commit(provider, *commit, changes).expect("scalars only")
            }
            _ => panic!("a commit is followed"),
        };
        group.merge_staged_commit(provider, staged).expect("a staged commit");
    }

    fn build(&mut self, raw: RawCommit) -> Vec<u8> {
        let (group, provider, signer) = self.parts();
        let leaves: BTreeMap<_, _> =
            group.members().map(|member| (member.signature_key.clone(), member.index)).collect();
        let removed = raw.remove.iter().map(|key| leaves[key.as_bytes().as_slice()]);
        let updates = raw.updates.iter().map(|(component, payload, _)| {
            Proposal::AppDataUpdate(Box::new(match payload {
                Some(payload) => AppDataUpdateProposal::update(*component, payload.clone()),
                None => AppDataUpdateProposal::remove(*component),
            }))
        });
        let mut builder = group
            .commit_builder()
            .consume_proposal_store(raw.take_up_stored)
            .force_self_update(true)
            .propose_removals(removed)
            .propose_adds(raw.add)
            .add_proposals(updates)
            .add_proposals(raw.proposals);
        if let Some(leaf) = raw.leaf {
            builder = builder.leaf_node_parameters(leaf);
        }
        if let Some(context) = raw.context {
            builder = builder.propose_group_context_extensions(context).expect("an extension");
        }
        let mut builder = builder.load_psks(provider.storage()).expect("every key is stored");
        let mut updater = builder.app_data_dictionary_updater();
        for (component, _, value) in raw.updates {
            match value {
                Some(value) => updater.set(ComponentData::from_parts(component, value.into())),
                None => updater.remove(&component),
            }
        }
        for (component, value) in raw.values {
            updater.set(ComponentData::from_parts(component, value.into()));
        }
        let changes = updater.changes();
        builder.with_app_data_dictionary_updates(changes);
        let built = builder.build(provider.rand(), provider.crypto(), signer, |_| true);
        let bundle = built.expect("a commit").stage_commit(provider).expect("a staged commit");
        bundle.commit().to_bytes().expect("its bytes")
    }

    /// Takes an installation out of this member's inbox. Returns the update's place.
    pub fn revoke(&self, world: &mut World, installation: InstallationKey) -> SequenceId {
        let unsigned = sign::revoke_installation(self.inbox, installation, 1_000);
        let text = unsigned.text().to_owned();
        publish_update(world, unsigned.finish(self.wallet.sign_erc191(&text)))
    }
}

fn publish_update(world: &mut World, update: IdentityUpdate) -> SequenceId {
    let payload = Some(client_envelope::Payload::IdentityUpdate(update));
    world.publish(&ClientEnvelope { payload }.encode_to_vec())
}

/// The identity of a leaf of an inbox.
pub fn credential(inbox: InboxId) -> Vec<u8> {
    MlsCredential { inbox_id: inbox.to_string() }.encode_to_vec()
}

fn capabilities() -> Capabilities {
    Capabilities::new(
        None,
        Some(&[SUITE]),
        Some(&[ExtensionType::AppDataDictionary, ExtensionType::Unknown(WRAPPER_EXTENSION)]),
        Some(&[ProposalType::AppDataUpdate]),
        Some(&[CredentialType::Basic]),
    )
}
