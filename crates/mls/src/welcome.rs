//! Welcomes on the wire: sealing them for those a commit added, opening those that came for us.
//!
//! Body and metadata are each sealed by HPKE to the key that the recipient advertised, with empty info and aad.

use highwater_store::Reads;
use highwater_wire::SequenceId;
use highwater_wire::proto::backend::{ClientEnvelope, WelcomeMessage, client_envelope, welcome_message};
use highwater_wire::proto::contents::{WelcomeMetadata, WelcomeWrapperAlgorithm};
use openmls_traits::crypto::OpenMlsCrypto as _;
use openmls_traits::types::HpkeCiphertext;
use prost::Message as _;
use tls_codec::{Deserialize as _, Serialize as _};

use crate::key_package::{KeyPackageId, wrapper_private};
use crate::pointer::Pointer;
use crate::profile::SUITE;
use crate::provider::crypto;
use crate::{MlsError, Recipient};

/// A Welcome that was sealed for this installation, opened.
pub struct OpenedWelcome {
    /// The MLS Welcome, unvalidated.
    pub welcome: Vec<u8>,
    /// The commit that added this installation, as the sealed metadata says.
    pub anchor: SequenceId,
    /// The key package it was sealed to.
    pub package: KeyPackageId,
}

impl std::fmt::Debug for OpenedWelcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedWelcome")
            .field("anchor", &self.anchor)
            .field("package", &self.package)
            .finish_non_exhaustive()
    }
}

/// What unwrapping a Welcome message gave.
#[derive(Debug)]
pub enum Unwrapped {
    /// The Welcome itself.
    Welcome(OpenedWelcome),
    /// Where it lies, shared with others.
    Pointer(Pointer),
}

/// What becomes of a Welcome that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WelcomeDisposition {
    /// It can never be used.
    Reject,
    /// It is kept until something local or at the backend changes.
    Hold,
    /// It is kept for a while, for a version of this client that understands it.
    Unsupported,
}

/// Why a Welcome could not be used. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WelcomeFailure {
    /// Some part of it doesn't decode.
    #[error("the Welcome is malformed: {0}")]
    Malformed(&'static str),
    /// Sealed in a way that no known version uses.
    #[error("the wrapper algorithm {0} is not known")]
    UnknownAlgorithm(i32),
    /// An MLS version this client doesn't speak.
    #[error("the MLS version is not supported")]
    UnsupportedVersion,
    /// Sealed under another algorithm than the key package advertised.
    #[error("the Welcome is sealed under an algorithm that was not advertised")]
    Downgrade,
    /// Sealed to no key that this installation has.
    #[error("the Welcome is sealed to an unknown key package")]
    UnknownPackage,
    /// It doesn't open with the key it names: it was tampered with.
    #[error("the Welcome does not open")]
    Unopenable,
    /// It has no metadata, so no anchor.
    #[error("the Welcome has no metadata")]
    MetadataMissing,
    /// Its anchor is no sequence id.
    #[error("the anchor is not a sequence id")]
    AnchorOutOfRange,
    /// Its anchor isn't before the Welcome itself.
    #[error("the anchor is not before the Welcome")]
    AnchorNotBefore,
    /// It isn't an MLS Welcome.
    #[error("not a Welcome")]
    NotAWelcome,
    /// It names a pre-shared key.
    #[error("the Welcome contains a pre-shared key")]
    PreSharedKey,
    /// It leads to another pointer, or to nothing that a pointer may lead to.
    #[error("the pointer does not lead to a Welcome")]
    BadPointee,
    /// MLS doesn't accept it.
    #[error("the Welcome is invalid: {0}")]
    Invalid(String),
    /// The group's state isn't one of this protocol.
    #[error("component {component:#06x} is malformed")]
    MalformedComponent {
        /// Which component.
        component: u16,
    },
    /// A leaf's credential isn't one of this protocol.
    #[error("a leaf's credential names no inbox")]
    MalformedCredential,
    /// A leaf's inbox has no membership entry.
    #[error("a leaf has no membership entry")]
    LeafWithoutEntry,
    /// A membership entry names no identity update.
    #[error("a membership entry is zero")]
    EntryZero,
    /// A membership entry names an identity update at or after the Welcome itself.
    #[error("a membership entry is not before the Welcome")]
    EntryNotBefore,
    /// A leaf isn't an installation of its inbox at the state its entry names.
    #[error("a leaf does not belong to its inbox")]
    ForeignLeaf,
    /// An installation is neither a leaf nor marked as failed.
    #[error("an installation is neither a leaf nor marked as failed")]
    InstallationMissing,
    /// This installation isn't in the group.
    #[error("the own leaf is missing")]
    OwnLeafAbsent,
    /// A DM that isn't its two inboxes.
    #[error("the DM is not of exactly its two inboxes")]
    DmInboxes,
    /// The group requires a newer version of this client.
    #[error("the group requires version {0}")]
    GroupVersion(String),
    /// An identity state that [`StagedJoin::required_identity`](crate::StagedJoin::required_identity) lists wasn't given.
    #[error("an identity state is missing")]
    MissingSnapshot,
    /// This client failed, not the Welcome.
    #[error(transparent)]
    Local(#[from] MlsError),
}

impl WelcomeFailure {
    /// What becomes of the Welcome.
    pub fn disposition(&self) -> WelcomeDisposition {
        match self {
            Self::UnknownAlgorithm(_) | Self::UnsupportedVersion => WelcomeDisposition::Unsupported,
            Self::GroupVersion(_) | Self::MissingSnapshot | Self::Local(_) => WelcomeDisposition::Hold,
            _ => WelcomeDisposition::Reject,
        }
    }

    /// A stable code for records.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::UnknownAlgorithm(_) => "unknown_algorithm",
            Self::UnsupportedVersion => "unsupported_version",
            Self::Downgrade => "downgrade",
            Self::UnknownPackage => "unknown_package",
            Self::Unopenable => "unopenable",
            Self::MetadataMissing => "metadata_missing",
            Self::AnchorOutOfRange => "anchor_out_of_range",
            Self::AnchorNotBefore => "anchor_not_before",
            Self::NotAWelcome => "not_a_welcome",
            Self::PreSharedKey => "pre_shared_key",
            Self::BadPointee => "bad_pointee",
            Self::Invalid(_) => "invalid",
            Self::MalformedComponent { .. } => "malformed_component",
            Self::MalformedCredential => "malformed_credential",
            Self::LeafWithoutEntry => "leaf_without_entry",
            Self::EntryZero => "entry_zero",
            Self::EntryNotBefore => "entry_not_before",
            Self::ForeignLeaf => "foreign_leaf",
            Self::InstallationMissing => "installation_missing",
            Self::OwnLeafAbsent => "own_leaf_absent",
            Self::DmInboxes => "dm_inboxes",
            Self::GroupVersion(_) => "group_version",
            Self::MissingSnapshot => "missing_snapshot",
            Self::Local(_) => "local",
        }
    }
}

impl From<sqlx::Error> for WelcomeFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Local(error.into())
    }
}

/// Seals an MLS Welcome for one recipient, as the exact `ClientEnvelope` bytes to publish. `anchor` is the sequence id
/// of the commit that added it.
pub fn seal_welcome(welcome: &[u8], anchor: SequenceId, recipient: &Recipient) -> Result<Vec<u8>, MlsError> {
    let public = &recipient.wrapper.public;
    let metadata = WelcomeMetadata { message_cursor: anchor.get() }.encode_to_vec();
    Ok(envelope(welcome_message::Version::V1(welcome_message::V1 {
        installation_key: recipient.installation.as_bytes().to_vec(),
        data: seal(public, welcome)?,
        hpke_public_key: public.to_vec(),
        wrapper_algorithm: WelcomeWrapperAlgorithm::Curve25519 as i32,
        welcome_metadata: seal(public, &metadata)?,
    })))
}

pub(crate) fn envelope(version: welcome_message::Version) -> Vec<u8> {
    let payload = client_envelope::Payload::WelcomeMessage(WelcomeMessage { version: Some(version) });
    ClientEnvelope { payload: Some(payload) }.encode_to_vec()
}

pub(crate) fn seal(public: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, MlsError> {
    crypto()
        .hpke_seal(SUITE.hpke_config(), public, &[], &[], plaintext)
        .map_err(MlsError::library)?
        .tls_serialize_detached()
        .map_err(MlsError::library)
}

pub(crate) fn open(private: &[u8], sealed: &[u8]) -> Result<Vec<u8>, WelcomeFailure> {
    let ciphertext =
        HpkeCiphertext::tls_deserialize_exact(sealed).map_err(|_| WelcomeFailure::Malformed("ciphertext"))?;
    crypto()
        .hpke_open(SUITE.hpke_config(), &ciphertext, private, &[], &[])
        .map_err(|_| WelcomeFailure::Unopenable)
}

/// Opens a Welcome message with the key package it was sealed to. Uses up nothing.
pub async fn open_welcome(
    tx: &mut impl Reads,
    message: &WelcomeMessage,
) -> Result<Unwrapped, WelcomeFailure> {
    match &message.version {
        None => Err(WelcomeFailure::Malformed("version")),
        Some(welcome_message::Version::V1(v1)) => {
            let (package, private) = advertised(tx, v1.wrapper_algorithm, &v1.hpke_public_key).await?;
            if v1.welcome_metadata.is_empty() {
                return Err(WelcomeFailure::MetadataMissing);
            }
            let anchor = anchor(&open(&private, &v1.welcome_metadata)?)?;
            let welcome = open(&private, &v1.data)?;
            Ok(Unwrapped::Welcome(OpenedWelcome { welcome, anchor, package }))
        }
        Some(welcome_message::Version::WelcomePointer(sealed)) => {
            let (package, private) =
                advertised(tx, sealed.wrapper_algorithm, &sealed.hpke_public_key).await?;
            let plaintext = open(&private, &sealed.welcome_pointer)?;
            Ok(Unwrapped::Pointer(Pointer::read(&plaintext, package)?))
        }
    }
}

/// The package whose advertised key this is, under the algorithm it advertised and no other. Pointers number the
/// algorithms they share with Welcomes alike.
async fn advertised(
    tx: &mut impl Reads,
    algorithm: i32,
    public: &[u8],
) -> Result<(KeyPackageId, zeroize::Zeroizing<Vec<u8>>), WelcomeFailure> {
    let known = WelcomeWrapperAlgorithm::try_from(algorithm)
        .map_err(|_| WelcomeFailure::UnknownAlgorithm(algorithm))?;
    let found = wrapper_private(tx, public).await?.ok_or(WelcomeFailure::UnknownPackage)?;
    if known == WelcomeWrapperAlgorithm::Curve25519 { Ok(found) } else { Err(WelcomeFailure::Downgrade) }
}

pub(crate) fn anchor(metadata: &[u8]) -> Result<SequenceId, WelcomeFailure> {
    let metadata = WelcomeMetadata::decode(metadata).map_err(|_| WelcomeFailure::Malformed("metadata"))?;
    // Zero would be an initial state, and no Welcome leads into one (STR-083).
    SequenceId::try_from(metadata.message_cursor).map_err(|_| WelcomeFailure::AnchorOutOfRange)
}
