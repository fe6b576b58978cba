//! Whoever publishes: wallets with an inbox, members of MLS groups.

use highwater_identity::sign::{self, LocalWallet};
use highwater_wire::{
    InboxId, InstallationKey,
    proto::{associations::IdentityUpdate, contents::MlsCredential},
};
use openmls::prelude::{
    BasicCredential, Ciphersuite, CredentialWithKey, LeafNodeParameters, Lifetime, MlsGroup,
    MlsGroupCreateConfig, tls_codec::Serialize as _,
};
use openmls_basic_credential::SignatureKeyPair;
use openmls_rust_crypto::OpenMlsRustCrypto;
use prost::Message as _;

pub(crate) const SUITE: Ciphersuite = Ciphersuite::MLS_128_DHKEMX25519_CHACHA20POLY1305_SHA256_Ed25519;

/// A wallet with an inbox.
pub(crate) struct Person {
    pub(crate) wallet: LocalWallet,
    pub(crate) inbox: InboxId,
    pub(crate) registration: IdentityUpdate,
}

impl Person {
    pub(crate) fn new(seed: u8) -> Self {
        let wallet = LocalWallet::generate();
        let seed = [seed; 32];
        let unsigned = sign::registration(wallet.address(), 0, public_key(&seed), 1);
        let text = unsigned.text().to_owned();
        let inbox = unsigned.inbox_id();
        let registration =
            unsigned.finish(wallet.sign_erc191(&text), sign::sign_as_installation(&seed, &text));
        Self { wallet, inbox, registration }
    }

    /// An update that adds another installation.
    pub(crate) fn add(&self, seed: u8) -> IdentityUpdate {
        self.add_at(seed, 2)
    }

    /// The same addition, signed at another time.
    pub(crate) fn add_at(&self, seed: u8, timestamp_ns: i64) -> IdentityUpdate {
        let seed = [seed; 32];
        let unsigned = sign::add_installation(self.inbox, public_key(&seed), timestamp_ns);
        let text = unsigned.text().to_owned();
        unsigned.finish(self.wallet.sign_erc191(&text), sign::sign_as_installation(&seed, &text))
    }
}

fn public_key(seed: &[u8; 32]) -> InstallationKey {
    // The public key of a seed, as the signature that it makes names it.
    let signature = sign::sign_as_installation(seed, "");
    match signature.signature {
        Some(highwater_wire::proto::associations::signature::Signature::InstallationKey(key)) => {
            InstallationKey::try_from(key.public_key.as_slice()).expect("32 bytes")
        }
        _ => panic!("an installation signs with its key"),
    }
}

/// A real MLS member of one group.
pub(crate) struct MlsMember {
    provider: OpenMlsRustCrypto,
    signer: SignatureKeyPair,
    credential: CredentialWithKey,
    group: MlsGroup,
}

impl MlsMember {
    pub(crate) fn new(group: &[u8]) -> Self {
        let inbox_id = InboxId::from_bytes([9; 32]).to_string();
        Self::with_identity(group, MlsCredential { inbox_id }.encode_to_vec())
    }

    pub(crate) fn with_identity(group: &[u8], identity: Vec<u8>) -> Self {
        let provider = OpenMlsRustCrypto::default();
        let signer = SignatureKeyPair::new(SUITE.signature_algorithm()).expect("a key pair");
        let credential = CredentialWithKey {
            credential: BasicCredential::new(identity).into(),
            signature_key: signer.public().into(),
        };
        let config = MlsGroupCreateConfig::builder().ciphersuite(SUITE).build();
        let group = MlsGroup::new_with_group_id(
            &provider,
            &signer,
            &config,
            openmls::group::GroupId::from_slice(group),
            credential.clone(),
        )
        .expect("a group");
        Self { provider, signer, credential, group }
    }

    pub(crate) fn installation(&self) -> InstallationKey {
        InstallationKey::try_from(self.signer.public()).expect("32 bytes")
    }

    pub(crate) fn message(&mut self, text: &[u8]) -> Vec<u8> {
        let message = self.group.create_message(&self.provider, &self.signer, text);
        message.expect("a message").to_bytes().expect("bytes")
    }

    pub(crate) fn commit(&mut self) -> Vec<u8> {
        let bundle = self
            .group
            .self_update(&self.provider, &self.signer, LeafNodeParameters::default())
            .expect("a commit");
        bundle.into_commit().to_bytes().expect("bytes")
    }

    pub(crate) fn proposal(&mut self) -> Vec<u8> {
        let (proposal, _) = self
            .group
            .propose_self_update(&self.provider, &self.signer, LeafNodeParameters::default())
            .expect("a proposal");
        proposal.to_bytes().expect("bytes")
    }

    pub(crate) fn key_package(&self, lifetime: Lifetime) -> Vec<u8> {
        openmls::prelude::KeyPackage::builder()
            .key_package_lifetime(lifetime)
            .build(SUITE, &self.provider, &self.signer, self.credential.clone())
            .expect("a key package")
            .into_key_package()
            .tls_serialize_detached()
            .expect("bytes")
    }
}
