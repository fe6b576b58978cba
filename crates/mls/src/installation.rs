//! This installation: its key, the inbox it speaks for, and the registration it owes the backend.

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use highwater_identity::sign::installation_signature;
use highwater_store::{Reads, WriteTx};
use highwater_wire::proto::associations::Signature;
use highwater_wire::{InboxId, InstallationKey};
use openmls_traits::random::OpenMlsRand as _;
use sqlx::Row as _;
use zeroize::Zeroizing;

use crate::overlay::{Label, Overlay, decode, encode};
use crate::provider::SystemRandom;
use crate::{MlsError, rows};

/// This database's installation. Its private key never leaves this crate.
pub struct Installation {
    /// The public key, by which the world knows it.
    pub key: InstallationKey,
    /// The inbox it belongs to, once [`set_registration`] was called.
    pub inbox: Option<InboxId>,
    /// The exact `ClientEnvelope` bytes of the identity update that registers it.
    pub registration: Option<Bytes>,
    /// Whether the backend confirmed the registration.
    pub registered: bool,
    signing: SigningKey,
}

impl Installation {
    /// Signs the text of an identity update.
    pub fn sign(&self, text: &str) -> Signature {
        installation_signature(&self.signing, text)
    }

    pub(crate) fn signing(&self) -> &SigningKey {
        &self.signing
    }
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installation")
            .field("key", &self.key)
            .field("inbox", &self.inbox)
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

/// Makes the installation key, or returns the one there is: a database has one for good.
pub async fn create_installation(tx: &mut WriteTx) -> Result<Installation, MlsError> {
    if let Some(existing) = installation(tx).await? {
        return Ok(existing);
    }
    let secret: Zeroizing<[u8; 32]> = Zeroizing::new(SystemRandom.random_array().map_err(MlsError::library)?);
    let signing = SigningKey::from_bytes(&secret);
    let key = InstallationKey::from_bytes(signing.verifying_key().to_bytes());
    let value = encode(Label::InstallationKey, secret.as_slice()).map_err(MlsError::library)?;
    rows::put_groupless(tx, Label::InstallationKey, &[], &value).await?;
    sqlx::query("INSERT INTO mls_installation (only, public_key) VALUES (1, ?)")
        .bind(key.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    Ok(Installation { key, inbox: None, registration: None, registered: false, signing })
}

/// This database's installation, if it has one yet.
pub async fn installation(tx: &mut impl Reads) -> Result<Option<Installation>, MlsError> {
    let Some(row) = sqlx::query(
        "SELECT public_key, inbox_id, registration, registered FROM mls_installation WHERE only = 1",
    )
    .fetch_optional(tx.conn())
    .await?
    else {
        return Ok(None);
    };
    let secret = rows::get_groupless(tx, Label::InstallationKey, &[]).await?;
    let signing = signing_key(secret.as_deref())?;
    let key = InstallationKey::from_bytes(signing.verifying_key().to_bytes());
    if row.get::<&[u8], _>(0) != key.as_bytes() {
        return Err(MlsError::Damaged("installation key"));
    }
    let inbox = row
        .get::<Option<&[u8]>, _>(1)
        .map(|inbox| InboxId::try_from(inbox).map_err(|_| MlsError::Damaged("inbox id")))
        .transpose()?;
    let registration = row.get::<Option<Vec<u8>>, _>(2).map(Bytes::from);
    Ok(Some(Installation { key, inbox, registration, registered: row.get(3), signing }))
}

fn signing_key(value: Option<&[u8]>) -> Result<SigningKey, MlsError> {
    let damaged = || MlsError::Damaged("installation key");
    let secret: Zeroizing<Vec<u8>> =
        Zeroizing::new(decode(Label::InstallationKey, value.ok_or_else(damaged)?).map_err(|_| damaged())?);
    let secret: &[u8; 32] = secret.as_slice().try_into().map_err(|_| damaged())?;
    Ok(SigningKey::from_bytes(secret))
}

/// The key out of rows that are loaded anyway.
pub(crate) fn loaded_signing_key(overlay: &Overlay) -> Result<SigningKey, MlsError> {
    let secret: Option<Vec<u8>> = overlay
        .read(Label::InstallationKey, Vec::new())
        .map_err(|_| MlsError::Damaged("installation key"))?;
    let secret = Zeroizing::new(secret.ok_or(MlsError::NoInstallation)?);
    let secret: &[u8; 32] =
        secret.as_slice().try_into().map_err(|_| MlsError::Damaged("installation key"))?;
    Ok(SigningKey::from_bytes(secret))
}

/// Stores the inbox of this installation with the exact envelope that registers it, before it is published.
///
/// # Errors
/// [`MlsError::NoInstallation`] before [`create_installation`]; [`MlsError::InvalidChange`] for another inbox than
/// the one a registration names already.
pub async fn set_registration(tx: &mut WriteTx, inbox: InboxId, envelope: Bytes) -> Result<(), MlsError> {
    let existing = installation(tx).await?.ok_or(MlsError::NoInstallation)?;
    if existing.inbox.is_some_and(|other| other != inbox) {
        return Err(MlsError::InvalidChange("this installation has an inbox already".into()));
    }
    sqlx::query("UPDATE mls_installation SET inbox_id = ?, registration = ?, registered = 0 WHERE only = 1")
        .bind(inbox.as_bytes().as_slice())
        .bind(envelope.as_ref())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Records that the backend has the registration.
///
/// # Errors
/// [`MlsError::NoInbox`] before [`set_registration`].
pub async fn registered(tx: &mut WriteTx) -> Result<(), MlsError> {
    let done =
        sqlx::query("UPDATE mls_installation SET registered = 1 WHERE only = 1 AND registration IS NOT NULL")
            .execute(tx.conn())
            .await?;
    if done.rows_affected() == 0 { Err(MlsError::NoInbox) } else { Ok(()) }
}
