//! What may be stored: the checks on one envelope, without I/O.
//!
//! [`parse`] is what every envelope must pass, duplicates included, since topic and hash follow from
//! it. [`Candidate::check`] is what only new envelopes must pass.

use bytes::Bytes;
use highwater_wire::{
    GroupId, InboxId, InstallationKey, MessageHash, Topic,
    proto::{
        associations::IdentityUpdate,
        backend::{
            ClientEnvelope, CommitLogEntry, GroupMessage, KeyPackage, WelcomeMessage,
            client_envelope::Payload, publish_error::Reason, welcome_message::Version,
        },
        contents::MlsCredential,
    },
};
use openmls::prelude::{
    BasicCredential, ContentType, DeserializeBytes as _, ExtensionType, KeyPackageIn, MlsMessageIn,
    ProtocolVersion, tls_codec::Deserialize as _,
};
use openmls_rust_crypto::RustCrypto;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::refusal::Refusal;

/// An envelope that parses: its topic, its canonical bytes and their hash are known.
pub(crate) struct Candidate {
    pub(crate) topic: Topic,
    pub(crate) hash: MessageHash,
    pub(crate) payload: Bytes,
    pub(crate) is_commit_or_proposal: bool,
    pub(crate) content: Content,
}

/// What the remaining checks need of the payload.
pub(crate) enum Content {
    /// Parsing was the whole check.
    Checked,
    KeyPackage(Box<KeyPackageIn>),
    Identity {
        inbox: InboxId,
        update: IdentityUpdate,
    },
}

struct Parsed {
    topic: Topic,
    is_commit_or_proposal: bool,
    content: Content,
}

impl Parsed {
    fn plain(topic: Topic) -> Self {
        Self { topic, is_commit_or_proposal: false, content: Content::Checked }
    }
}

/// Finds topic and hash. The hash is over the server's own encoding, so two inputs that decode alike
/// hash alike.
pub(crate) fn parse(envelope: &ClientEnvelope) -> Result<Candidate, Refusal> {
    let Parsed { topic, is_commit_or_proposal, content } = match &envelope.payload {
        None => Err(Refusal::malformed("the envelope has no payload this server knows")),
        Some(Payload::GroupMessage(message)) => group_message(message),
        Some(Payload::WelcomeMessage(message)) => welcome(message),
        Some(Payload::KeyPackage(package)) => key_package(package),
        Some(Payload::IdentityUpdate(update)) => identity_update(update),
        Some(Payload::CommitLogEntry(entry)) => commit_log_entry(entry),
    }?;
    let payload = envelope.encode_to_vec();
    let hash = MessageHash::from_bytes(Sha256::digest(&payload).into());
    Ok(Candidate { topic, hash, payload: payload.into(), is_commit_or_proposal, content })
}

fn group_message(message: &GroupMessage) -> Result<Parsed, Refusal> {
    // Bytes after the MLSMessage are allowed.
    let (parsed, _trailing) = MlsMessageIn::tls_deserialize_bytes(&message.data)
        .map_err(|error| Refusal::malformed(format!("data is no MLSMessage: {error}")))?;
    let protocol = parsed
        .try_into_protocol_message()
        .map_err(|_| Refusal::malformed("the MLSMessage is neither a PublicMessage nor a PrivateMessage"))?;
    let group = GroupId::try_from(protocol.group_id().as_slice())
        .map_err(|error| Refusal::malformed(error.to_string()))?;
    Ok(Parsed {
        topic: Topic::group(group),
        is_commit_or_proposal: match protocol.content_type() {
            ContentType::Application => false,
            ContentType::Proposal | ContentType::Commit => true,
        },
        content: Content::Checked,
    })
}

fn welcome(message: &WelcomeMessage) -> Result<Parsed, Refusal> {
    let installation = match &message.version {
        None => {
            return Err(Refusal::malformed("the Welcome has no version this server knows"));
        }
        Some(Version::V1(welcome)) => &welcome.installation_key,
        Some(Version::WelcomePointer(pointer)) => &pointer.installation_key,
    };
    let installation = InstallationKey::try_from(installation.as_slice())
        .map_err(|error| Refusal::malformed(error.to_string()))?;
    Ok(Parsed::plain(Topic::welcome(installation)))
}

fn key_package(package: &KeyPackage) -> Result<Parsed, Refusal> {
    let package = KeyPackageIn::tls_deserialize_exact(&package.key_package_tls_serialized)
        .map_err(|error| Refusal::malformed(format!("this is no KeyPackage: {error}")))?;
    let leaf = package.unverified_credential();
    let installation = InstallationKey::try_from(leaf.signature_key.as_slice())
        .map_err(|error| Refusal::malformed(error.to_string()))?;
    Ok(Parsed {
        topic: Topic::key_package(installation),
        is_commit_or_proposal: false,
        content: Content::KeyPackage(Box::new(package)),
    })
}

fn identity_update(update: &IdentityUpdate) -> Result<Parsed, Refusal> {
    let inbox: InboxId = update.inbox_id.parse().map_err(|error| Refusal::malformed(format!("{error}")))?;
    Ok(Parsed {
        topic: Topic::identity(inbox),
        is_commit_or_proposal: false,
        content: Content::Identity { inbox, update: update.clone() },
    })
}

/// The one field that routes a commit log entry; the rest is the clients' business.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CommitLogRoute {
    #[prost(bytes = "vec", tag = "1")]
    group_id: Vec<u8>,
}

fn commit_log_entry(entry: &CommitLogEntry) -> Result<Parsed, Refusal> {
    let route = CommitLogRoute::decode(entry.serialized_commit_log_entry.as_slice())
        .map_err(|error| Refusal::malformed(format!("this is no commit log entry: {error}")))?;
    let group = GroupId::try_from(route.group_id.as_slice())
        .map_err(|error| Refusal::malformed(error.to_string()))?;
    Ok(Parsed::plain(Topic::commit_log(group)))
}

impl Candidate {
    /// Whether parsing and size already decided that it may be stored, so that neither the store's
    /// content nor any further check bears on it.
    pub(crate) fn is_settled(&self, max_envelope_bytes: usize) -> bool {
        matches!(self.content, Content::Checked) && self.payload.len() <= max_envelope_bytes
    }

    /// The checks that need nothing but the envelope. An identity update needs its history as well.
    pub(crate) fn check(&self, max_envelope_bytes: usize) -> Result<(), Refusal> {
        if self.payload.len() > max_envelope_bytes {
            return Err(Refusal::too_large(format!(
                "{} bytes encoded, the limit is {max_envelope_bytes}",
                self.payload.len()
            )));
        }
        match &self.content {
            Content::Checked | Content::Identity { .. } => Ok(()),
            Content::KeyPackage(package) => check_key_package(package),
        }
    }
}

/// RFC 9420 §10.1, with §7.2 and §7.3 for the leaf as far as they apply outside of a group.
fn check_key_package(package: &KeyPackageIn) -> Result<(), Refusal> {
    let invalid = |message: String| Refusal::new(Reason::InvalidKeyPackage, message);
    // Signatures of leaf and package, leaf source, version, distinct keys, extensions of the package,
    // and the lifetime as of now.
    let package = package
        .clone()
        .validate(&RustCrypto::default(), ProtocolVersion::Mls10)
        .map_err(|error| invalid(error.to_string()))?;
    if !package.life_time().has_acceptable_range() {
        return Err(invalid("the lifetime is longer than 12 weeks".to_owned()));
    }
    let leaf = package.leaf_node();
    let capabilities = leaf.capabilities();
    if let Some(missing) = leaf
        .extensions()
        .iter()
        .map(|extension| extension.extension_type())
        .find(|kind| !is_always_supported(*kind) && !capabilities.extensions().contains(kind))
    {
        return Err(invalid(format!("the leaf uses {missing:?} without listing it")));
    }
    if !capabilities.credentials().contains(&leaf.credential().credential_type()) {
        return Err(invalid("the leaf doesn't list its own credential type".to_owned()));
    }
    let credential = BasicCredential::try_from(leaf.credential().clone())
        .map_err(|_| invalid("the credential is not basic".to_owned()))?;
    let credential = MlsCredential::decode(credential.identity())
        .map_err(|error| invalid(format!("the credential doesn't decode: {error}")))?;
    credential.inbox_id.parse::<InboxId>().map_err(|error| invalid(format!("the credential's {error}")))?;
    Ok(())
}

/// The extensions of RFC 9420 itself, which capabilities must not list (§7.2).
fn is_always_supported(kind: ExtensionType) -> bool {
    matches!(
        kind,
        ExtensionType::ApplicationId
            | ExtensionType::RatchetTree
            | ExtensionType::RequiredCapabilities
            | ExtensionType::ExternalPub
            | ExtensionType::ExternalSenders
    )
}
