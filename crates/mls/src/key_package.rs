//! Our own key packages: one at a time, last-resort, replaced long before they end.

use bytes::Bytes;
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::backend::{ClientEnvelope, KeyPackage as KeyPackageEnvelope, client_envelope};
use highwater_wire::proto::contents::{
    WelcomePointeeEncryptionAeadTypesExtension, WelcomeWrapperAlgorithm, WelcomeWrapperEncryption,
};
use openmls::extensions::{Extension, Extensions, UnknownExtension};
use openmls::key_packages::{KeyPackage, KeyPackageBundle};
use openmls::prelude::Lifetime;
use openmls_traits::crypto::OpenMlsCrypto as _;
use openmls_traits::random::OpenMlsRand as _;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use tls_codec::Serialize as _;
use zeroize::Zeroizing;

use crate::overlay::{Label, Overlay};
use crate::profile::{POINTEE_EXTENSION, SUITE, WRAPPER_EXTENSION, capabilities, credential};
use crate::provider::{InstallationSigner, Provider, SystemRandom, crypto};
use crate::recipient::CHACHA20_POLY1305;
use crate::{MlsError, installation, rows};

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 24 * 3600 * SECOND_NS;
/// How long a key package may be used to add us.
const LIFETIME_NS: i64 = 12 * 7 * DAY_NS;
/// Clocks differ: a package is valid from this much before it was made.
const CLOCK_SKEW_NS: i64 = 3600 * SECOND_NS;
/// A package is replaced at half its lifetime. Whoever processes the commit that adds us must do so before the package
/// ends, as OpenMLS compares it with the clock; so what remains is the time others may be offline.
const ROTATION_NS: i64 = LIFETIME_NS / 2;
/// A superseded package's keys outlive the confirmation of its replacement by this much, for Welcomes on their way.
const RETIREMENT_NS: i64 = DAY_NS;

/// A key package, by its hash reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyPackageId([u8; 32]);

impl KeyPackageId {
    pub(crate) fn of(package: &KeyPackage) -> Result<Self, MlsError> {
        let reference = package.hash_ref(crypto()).map_err(MlsError::library)?;
        Self::from_slice(reference.as_slice())
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Result<Self, MlsError> {
        bytes.try_into().map(Self).map_err(|_| MlsError::Damaged("key package id"))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for KeyPackageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "KeyPackageId({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// A key package to publish.
#[derive(Clone, Debug)]
pub struct PreparedKeyPackage {
    /// Pass it to [`key_package_published`].
    pub id: KeyPackageId,
    /// The exact `ClientEnvelope` bytes.
    pub envelope: Bytes,
}

/// Whether a key package is to be published: none was, or the last was used by a join, or less than half its lifetime
/// is left.
pub async fn key_package_owed(tx: &mut impl Reads) -> Result<bool, MlsError> {
    let rotate_before = tx.now_ns().saturating_add(ROTATION_NS);
    let row = sqlx::query(
        "SELECT EXISTS (SELECT 1 FROM mls_key_packages WHERE published_ns IS NOT NULL AND superseded_ns IS NULL \
         AND used_ns IS NULL AND not_after_ns > ?)",
    )
    .bind(rotate_before)
    .fetch_one(tx.conn())
    .await?;
    Ok(!row.get::<bool, _>(0))
}

/// A key package to publish: the outstanding one, byte for byte, until its publish is confirmed; else a new one.
///
/// # Errors
/// [`MlsError::NoInstallation`] or [`MlsError::NoInbox`] before there is an installation with an inbox.
pub async fn prepare_key_package(tx: &mut WriteTx) -> Result<PreparedKeyPackage, MlsError> {
    let rotate_before = tx.now_ns().saturating_add(ROTATION_NS);
    let outstanding = sqlx::query(
        "SELECT id, envelope FROM mls_key_packages WHERE published_ns IS NULL AND used_ns IS NULL AND not_after_ns > ? \
         ORDER BY number DESC LIMIT 1",
    )
    .bind(rotate_before)
    .fetch_optional(tx.conn())
    .await?;
    if let Some(row) = outstanding {
        return Ok(PreparedKeyPackage {
            id: KeyPackageId::from_slice(row.get(0))?,
            envelope: Bytes::from(row.get::<Vec<u8>, _>(1)),
        });
    }
    let owner = installation(tx).await?.ok_or(MlsError::NoInstallation)?;
    let made = make(&owner, tx.now_ns())?;
    rows::store(tx, [&made.keys]).await?;
    sqlx::query(
        "INSERT INTO mls_key_packages (id, wrapper_public, wrapper_private, not_after_ns, envelope) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(made.id.as_bytes().as_slice())
    .bind(made.wrapper_public.as_slice())
    .bind(made.wrapper_private.as_slice())
    .bind(made.not_after_ns)
    .bind(made.envelope.as_ref())
    .execute(tx.conn())
    .await?;
    Ok(PreparedKeyPackage { id: made.id, envelope: made.envelope })
}

struct Made {
    id: KeyPackageId,
    wrapper_public: Vec<u8>,
    wrapper_private: Zeroizing<Vec<u8>>,
    not_after_ns: i64,
    envelope: Bytes,
    keys: Overlay,
}

fn make(owner: &crate::Installation, now_ns: i64) -> Result<Made, MlsError> {
    let inbox = owner.inbox.ok_or(MlsError::NoInbox)?;
    let seed: Zeroizing<[u8; 32]> = Zeroizing::new(SystemRandom.random_array().map_err(MlsError::library)?);
    let wrapper =
        crypto().derive_hpke_keypair(SUITE.hpke_config(), seed.as_slice()).map_err(MlsError::library)?;
    let provider = Provider::new(Overlay::new(None, []));
    let not_after_ns = now_ns.saturating_add(LIFETIME_NS);
    let bundle = KeyPackage::builder()
        .key_package_lifetime(lifetime(now_ns, not_after_ns))
        .leaf_node_capabilities(capabilities())
        .key_package_extensions(extensions(&wrapper.public)?)
        .mark_as_last_resort()
        .build(SUITE, &provider, &InstallationSigner(owner.signing()), credential(inbox, owner.key))
        .map_err(MlsError::library)?;
    let package = bundle.key_package();
    let key_package_tls_serialized = package.tls_serialize_detached().map_err(MlsError::library)?;
    let payload = client_envelope::Payload::KeyPackage(KeyPackageEnvelope { key_package_tls_serialized });
    let envelope = ClientEnvelope { payload: Some(payload) }.encode_to_vec();
    Ok(Made {
        id: KeyPackageId::of(package)?,
        wrapper_public: wrapper.public,
        wrapper_private: Zeroizing::new(wrapper.private.to_vec()),
        not_after_ns,
        envelope: Bytes::from(envelope),
        keys: provider.overlay,
    })
}

pub(crate) fn leaf_lifetime(now_ns: i64) -> Lifetime {
    lifetime(now_ns, now_ns.saturating_add(LIFETIME_NS))
}

fn lifetime(now_ns: i64, not_after_ns: i64) -> Lifetime {
    let seconds = |ns: i64| u64::try_from(ns / SECOND_NS).unwrap_or(0);
    Lifetime::init(seconds(now_ns.saturating_sub(CLOCK_SKEW_NS)), seconds(not_after_ns))
}

fn extensions(wrapper_public: &[u8]) -> Result<Extensions<KeyPackage>, MlsError> {
    let wrapper = WelcomeWrapperEncryption {
        pub_key: wrapper_public.to_vec(),
        algorithm: WelcomeWrapperAlgorithm::Curve25519 as i32,
    };
    let pointee =
        WelcomePointeeEncryptionAeadTypesExtension { supported_aead_types: vec![CHACHA20_POLY1305] };
    Extensions::from_vec(vec![
        Extension::Unknown(WRAPPER_EXTENSION, UnknownExtension(wrapper.encode_to_vec())),
        Extension::Unknown(POINTEE_EXTENSION, UnknownExtension(pointee.encode_to_vec())),
    ])
    .map_err(MlsError::library)
}

/// Records that the backend has a key package. It supersedes all earlier ones.
pub async fn key_package_published(tx: &mut WriteTx, id: KeyPackageId) -> Result<(), MlsError> {
    let now = tx.now_ns();
    let confirmed =
        sqlx::query("UPDATE mls_key_packages SET published_ns = ? WHERE id = ? AND published_ns IS NULL")
            .bind(now)
            .bind(id.as_bytes().as_slice())
            .execute(tx.conn())
            .await?;
    if confirmed.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query(
        "UPDATE mls_key_packages SET superseded_ns = ? WHERE superseded_ns IS NULL \
         AND number < (SELECT number FROM mls_key_packages WHERE id = ?)",
    )
    .bind(now)
    .bind(id.as_bytes().as_slice())
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Destroys the keys of packages that were superseded a day ago or longer, and returns how many. Nothing while a
/// received Welcome is unresolved: it may need any of them.
pub async fn retire_key_packages(tx: &mut WriteTx, welcomes_unresolved: bool) -> Result<u64, MlsError> {
    if welcomes_unresolved {
        return Ok(0);
    }
    let before = tx.now_ns().saturating_sub(RETIREMENT_NS);
    let retired = sqlx::query("DELETE FROM mls_key_packages WHERE superseded_ns <= ? RETURNING id")
        .bind(before)
        .fetch_all(tx.conn())
        .await?;
    for row in &retired {
        let id = KeyPackageId::from_slice(row.get(0))?;
        rows::delete_groupless(tx, Label::KeyPackage, &stored_key(id)?).await?;
    }
    Ok(retired.len() as u64)
}

/// The key under which OpenMLS stores a key package.
pub(crate) fn stored_key(id: KeyPackageId) -> Result<Vec<u8>, MlsError> {
    postcard::to_stdvec(&id.0.as_slice()).map_err(MlsError::library)
}

/// The key package with its private keys, and nothing else of no group but the installation key.
pub(crate) async fn load_only(tx: &mut impl Reads, id: KeyPackageId) -> Result<Overlay, MlsError> {
    let key = stored_key(id)?;
    let package = rows::get_groupless(tx, Label::KeyPackage, &key).await?;
    let package = package.ok_or(MlsError::Damaged("a key package without its keys"))?;
    let signing = rows::get_groupless(tx, Label::InstallationKey, &[]).await?;
    let signing = signing.ok_or(MlsError::NoInstallation)?;
    Ok(Overlay::new(None, [(Label::KeyPackage, key, package), (Label::InstallationKey, Vec::new(), signing)]))
}

/// The private wrapper key that belongs to an advertised one.
pub(crate) async fn wrapper_private(
    tx: &mut impl Reads,
    wrapper_public: &[u8],
) -> Result<Option<(KeyPackageId, Zeroizing<Vec<u8>>)>, MlsError> {
    let row = sqlx::query("SELECT id, wrapper_private FROM mls_key_packages WHERE wrapper_public = ?")
        .bind(wrapper_public)
        .fetch_optional(tx.conn())
        .await?;
    row.map(|row| Ok((KeyPackageId::from_slice(row.get(0))?, Zeroizing::new(row.get(1))))).transpose()
}

/// Records that a join used the package, so that it is replaced.
pub(crate) async fn mark_used(tx: &mut WriteTx, id: KeyPackageId) -> Result<(), MlsError> {
    let now = tx.now_ns();
    sqlx::query("UPDATE mls_key_packages SET used_ns = ? WHERE id = ? AND used_ns IS NULL")
        .bind(now)
        .bind(id.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// A stored key package, decoded.
pub(crate) fn stored_bundle(overlay: &Overlay, id: KeyPackageId) -> Result<KeyPackageBundle, MlsError> {
    overlay
        .read(Label::KeyPackage, stored_key(id)?)
        .map_err(MlsError::library)?
        .ok_or(MlsError::Damaged("a key package without its keys"))
}
