//! Other installations' key packages, and what a Welcome to each is sealed with.

use highwater_wire::proto::contents::{
    WelcomePointeeEncryptionAeadType, WelcomePointeeEncryptionAeadTypesExtension, WelcomeWrapperAlgorithm,
    WelcomeWrapperEncryption,
};
use highwater_wire::{InboxId, InstallationKey};
use openmls::extensions::ExtensionType;
use openmls::key_packages::{KeyPackage, KeyPackageIn};
use openmls::prelude::{ProposalType, ProtocolVersion};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tls_codec::Deserialize as _;

use crate::MlsError;
use crate::profile::{Member, POINTEE_EXTENSION, SUITE, WRAPPER_EXTENSION};
use crate::provider::crypto;

/// The AEAD that pointees are encrypted with, by its number in a pointer.
pub(crate) const CHACHA20_POLY1305: i32 = WelcomePointeeEncryptionAeadType::Chacha20Poly1305 as i32;

/// The key that Welcomes to an installation are sealed to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapperKey {
    /// An X25519 public key: the algorithm is always `CURVE25519`, others are not usable for this version.
    pub(crate) public: [u8; 32],
}

impl std::fmt::Debug for WrapperKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrapperKey").finish_non_exhaustive()
    }
}

/// An installation that a commit adds, and how its Welcome is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// The installation.
    pub installation: InstallationKey,
    /// Its inbox.
    pub inbox: InboxId,
    /// The key to seal to.
    pub wrapper: WrapperKey,
    /// Whether it can follow a pointer to a Welcome that several installations share.
    pub pointers: bool,
}

/// Checks that a key package can add `installation` of `inbox` to a group, and reads how its Welcome is to be sealed.
///
/// # Errors
/// [`MlsError::KeyPackage`] says what is wrong with it. An expired one is wrong, too: others would refuse the commit.
pub fn read_key_package(
    bytes: &[u8],
    installation: InstallationKey,
    inbox: InboxId,
) -> Result<Recipient, MlsError> {
    let package = validated(bytes)?;
    let recipient = recipient(&package)?;
    if recipient.installation != installation || recipient.inbox != inbox {
        return Err(MlsError::KeyPackage("it is another installation's"));
    }
    Ok(recipient)
}

pub(crate) fn validated(bytes: &[u8]) -> Result<KeyPackage, MlsError> {
    let package = KeyPackageIn::tls_deserialize_exact(bytes)
        .map_err(|_| MlsError::KeyPackage("it doesn't decode"))?
        .validate(crypto(), ProtocolVersion::Mls10)
        .map_err(|_| MlsError::KeyPackage("it is invalid or expired"))?;
    let capabilities = package.leaf_node().capabilities();
    let capable = package.ciphersuite() == SUITE
        && capabilities.extensions().contains(&ExtensionType::AppDataDictionary)
        && capabilities.proposals().contains(&ProposalType::AppDataUpdate);
    if capable { Ok(package) } else { Err(MlsError::KeyPackage("it lacks a required capability")) }
}

pub(crate) fn recipient(package: &KeyPackage) -> Result<Recipient, MlsError> {
    let leaf = package.leaf_node();
    let member = Member::read(leaf.credential(), leaf.signature_key().as_slice())
        .ok_or(MlsError::KeyPackage("its credential names no inbox"))?;
    Ok(Recipient {
        installation: member.installation,
        inbox: member.inbox,
        wrapper: wrapper(package)?,
        pointers: accepts_pointers(package),
    })
}

/// The advertised wrapper key, or the init key when none is advertised. A wrapper of another algorithm is no reason to
/// fall back to the init key: that would be a downgrade.
fn wrapper(package: &KeyPackage) -> Result<WrapperKey, MlsError> {
    let public = match package.extensions().unknown(WRAPPER_EXTENSION) {
        None => package.hpke_init_key().as_slice().to_vec(),
        Some(extension) => {
            let advertised = WelcomeWrapperEncryption::decode(extension.0.as_slice())
                .map_err(|_| MlsError::KeyPackage("its wrapper key doesn't decode"))?;
            if advertised.algorithm != WelcomeWrapperAlgorithm::Curve25519 as i32 {
                return Err(MlsError::KeyPackage("its wrapper algorithm is not supported"));
            }
            advertised.pub_key
        }
    };
    let public = public.try_into().map_err(|_| MlsError::KeyPackage("its wrapper key is malformed"))?;
    Ok(WrapperKey { public })
}

fn accepts_pointers(package: &KeyPackage) -> bool {
    let extension = package.extensions().unknown(POINTEE_EXTENSION);
    let aeads = extension.and_then(|extension| {
        WelcomePointeeEncryptionAeadTypesExtension::decode(extension.0.as_slice()).ok()
    });
    aeads.is_some_and(|aeads| aeads.supported_aead_types.contains(&CHACHA20_POLY1305))
}
