//! The one MLS profile of this protocol: suite, windows, capabilities, credentials.

use highwater_wire::proto::contents::MlsCredential;
use highwater_wire::{InboxId, InstallationKey};
use openmls::extensions::{
    AppDataDictionary, AppDataDictionaryExtension, Extension, ExtensionType, Extensions,
    RequiredCapabilitiesExtension,
};
use openmls::group::{
    GroupContext, MlsGroupCreateConfig, MlsGroupJoinConfig, PURE_CIPHERTEXT_WIRE_FORMAT_POLICY,
};
use openmls::prelude::{
    BasicCredential, Capabilities, Ciphersuite, Credential, CredentialType, CredentialWithKey, Lifetime,
    ProposalType, ProtocolVersion, SenderRatchetConfiguration,
};
use prost::Message as _;

use crate::MlsError;

/// The version a group's floor is compared with. All crates of the workspace have one version.
pub const CLIENT_VERSION: &str = env!("CARGO_PKG_VERSION");

/// How many epochs before the current one application messages can still be read from.
pub const RETAINED_EPOCHS: u64 = 3;

pub(crate) const SUITE: Ciphersuite = Ciphersuite::MLS_128_DHKEMX25519_CHACHA20POLY1305_SHA256_Ed25519;

/// Key package extension: the key and algorithm that Welcomes are sealed to.
pub(crate) const WRAPPER_EXTENSION: u16 = 0xff03;
/// Key package extension: which AEADs an installation opens pointees with.
pub(crate) const POINTEE_EXTENSION: u16 = 0xff04;

/// How many generations of a sender's ratchet may still arrive after a later one was read. A topic orders what the
/// backend got, but a client publishes from several tasks and may publish again after an ambiguous failure.
const OUT_OF_ORDER_GENERATIONS: u32 = 32;
/// How many generations of a sender may be missing. A sender burns one for each message that was prepared and never
/// accepted; a whole offline queue may burn many.
const SKIPPED_GENERATIONS: u32 = 10_000;

pub(crate) fn join_config() -> MlsGroupJoinConfig {
    MlsGroupJoinConfig::builder()
        .wire_format_policy(PURE_CIPHERTEXT_WIRE_FORMAT_POLICY)
        .max_past_epochs(RETAINED_EPOCHS as usize)
        .number_of_resumption_psks(0)
        .use_ratchet_tree_extension(true)
        .sender_ratchet_configuration(ratchet_window())
        .build()
}

pub(crate) fn create_config(
    dictionary: AppDataDictionary,
    lifetime: Lifetime,
) -> Result<MlsGroupCreateConfig, MlsError> {
    Ok(MlsGroupCreateConfig::builder()
        .ciphersuite(SUITE)
        .wire_format_policy(PURE_CIPHERTEXT_WIRE_FORMAT_POLICY)
        .max_past_epochs(RETAINED_EPOCHS as usize)
        .number_of_resumption_psks(0)
        .use_ratchet_tree_extension(true)
        .sender_ratchet_configuration(ratchet_window())
        .capabilities(capabilities())
        .lifetime(lifetime)
        .with_group_context_extensions(group_context(dictionary)?)
        .build())
}

fn ratchet_window() -> SenderRatchetConfiguration {
    SenderRatchetConfiguration::new(OUT_OF_ORDER_GENERATIONS, SKIPPED_GENERATIONS)
}

fn group_context(dictionary: AppDataDictionary) -> Result<Extensions<GroupContext>, MlsError> {
    let required = RequiredCapabilitiesExtension::new(
        &[ExtensionType::AppDataDictionary],
        &[ProposalType::AppDataUpdate],
        &[CredentialType::Basic],
    );
    Extensions::from_vec(vec![
        Extension::RequiredCapabilities(required),
        Extension::AppDataDictionary(AppDataDictionaryExtension::new(dictionary)),
    ])
    .map_err(MlsError::library)
}

/// What every leaf of this client says it can do.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities::new(
        Some(&[ProtocolVersion::Mls10]),
        Some(&[SUITE]),
        Some(&[
            ExtensionType::AppDataDictionary,
            ExtensionType::LastResort,
            ExtensionType::Unknown(WRAPPER_EXTENSION),
            ExtensionType::Unknown(POINTEE_EXTENSION),
        ]),
        Some(&[ProposalType::AppDataUpdate]),
        Some(&[CredentialType::Basic]),
    )
}

pub(crate) fn credential(inbox: InboxId, installation: InstallationKey) -> CredentialWithKey {
    let identity = MlsCredential { inbox_id: inbox.to_string() }.encode_to_vec();
    CredentialWithKey {
        credential: BasicCredential::new(identity).into(),
        signature_key: installation.as_bytes().as_slice().into(),
    }
}

/// The installation that a leaf is: whose inbox its credential names, and its signature key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// The inbox.
    pub inbox: InboxId,
    /// The installation of it.
    pub installation: InstallationKey,
}

impl Member {
    /// `None` if the credential isn't one of this profile.
    pub(crate) fn read(credential: &Credential, signature_key: &[u8]) -> Option<Self> {
        let basic = BasicCredential::try_from(credential.clone()).ok()?;
        let identity = MlsCredential::decode(basic.identity()).ok()?;
        Some(Self {
            inbox: identity.inbox_id.parse().ok()?,
            installation: InstallationKey::try_from(signature_key).ok()?,
        })
    }
}

/// Whether this client satisfies the floor of a group.
pub(crate) fn satisfies(floor: Option<&str>) -> bool {
    let Some(floor) = floor else { return true };
    match (semver::Version::parse(floor), semver::Version::parse(CLIENT_VERSION)) {
        (Ok(floor), Ok(client)) => client >= floor,
        _ => false,
    }
}
