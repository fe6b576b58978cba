//! The floor of processing: OpenMLS with its own RustCrypto provider and in-memory storage, and nothing else.

use anyhow::{Context as _, Result, bail};
use openmls::prelude::{
    BasicCredential, Ciphersuite, CredentialWithKey, KeyPackage, MlsGroup, MlsGroupCreateConfig,
    MlsGroupJoinConfig, MlsMessageBodyIn, MlsMessageIn, PURE_CIPHERTEXT_WIRE_FORMAT_POLICY,
    ProcessedMessageContent, SenderRatchetConfiguration, StagedWelcome,
};
use openmls_basic_credential::SignatureKeyPair;
use openmls_rust_crypto::OpenMlsRustCrypto;
use tls_codec::{Deserialize as _, Serialize as _};

/// Suite, window and retained epochs are those of Highwater's groups.
const SUITE: Ciphersuite = Ciphersuite::MLS_128_DHKEMX25519_CHACHA20POLY1305_SHA256_Ed25519;
const RETAINED_EPOCHS: usize = 3;

struct Member {
    provider: OpenMlsRustCrypto,
    signer: SignatureKeyPair,
    credential: CredentialWithKey,
}

impl Member {
    fn new(name: &str) -> Result<Self> {
        let provider = OpenMlsRustCrypto::default();
        let signer = SignatureKeyPair::new(SUITE.signature_algorithm())?;
        let credential = CredentialWithKey {
            credential: BasicCredential::new(name.as_bytes().to_vec()).into(),
            signature_key: signer.to_public_vec().into(),
        };
        Ok(Self { provider, signer, credential })
    }
}

/// The receiving member of a group of two, and what the other one sent it.
pub(crate) struct Receiver {
    member: Member,
    group: MlsGroup,
    messages: std::vec::IntoIter<Vec<u8>>,
}

impl Receiver {
    /// A new group in which these plaintexts were sent.
    pub(crate) fn new(plaintexts: &[Vec<u8>]) -> Result<Self> {
        let (sender, receiver) = (Member::new("sender")?, Member::new("receiver")?);
        let window = SenderRatchetConfiguration::new(32, 10_000);
        let create = MlsGroupCreateConfig::builder()
            .ciphersuite(SUITE)
            .wire_format_policy(PURE_CIPHERTEXT_WIRE_FORMAT_POLICY)
            .max_past_epochs(RETAINED_EPOCHS)
            .use_ratchet_tree_extension(true)
            .sender_ratchet_configuration(window)
            .build();
        let join = MlsGroupJoinConfig::builder()
            .wire_format_policy(PURE_CIPHERTEXT_WIRE_FORMAT_POLICY)
            .max_past_epochs(RETAINED_EPOCHS)
            .use_ratchet_tree_extension(true)
            .sender_ratchet_configuration(window)
            .build();
        let mut group = MlsGroup::new(&sender.provider, &sender.signer, &create, sender.credential.clone())?;
        let package = KeyPackage::builder().build(
            SUITE,
            &receiver.provider,
            &receiver.signer,
            receiver.credential.clone(),
        )?;
        let (_, welcome, _) =
            group.add_members(&sender.provider, &sender.signer, &[package.key_package().clone()])?;
        group.merge_pending_commit(&sender.provider)?;
        let welcome = MlsMessageIn::tls_deserialize_exact(welcome.tls_serialize_detached()?)?;
        let MlsMessageBodyIn::Welcome(welcome) = welcome.extract() else {
            bail!("adding a member made no Welcome");
        };
        let joined = StagedWelcome::new_from_welcome(&receiver.provider, &join, welcome, None)?
            .into_group(&receiver.provider)?;
        let messages = plaintexts.iter().map(|plaintext| {
            let message = group.create_message(&sender.provider, &sender.signer, plaintext)?;
            anyhow::Ok(message.to_bytes()?)
        });
        let messages = messages.collect::<Result<Vec<_>>>()?.into_iter();
        Ok(Self { member: receiver, group: joined, messages })
    }

    /// Decrypts the next messages, from their bytes to their plaintexts.
    pub(crate) fn decrypt(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let bytes = self.messages.next().context("no message is left")?;
            let message = MlsMessageIn::tls_deserialize(&mut bytes.as_slice())?;
            let processed =
                self.group.process_message(&self.member.provider, message.try_into_protocol_message()?)?;
            let ProcessedMessageContent::ApplicationMessage(message) = processed.into_content() else {
                bail!("not an application message");
            };
            std::hint::black_box(message.into_bytes());
        }
        Ok(())
    }
}
