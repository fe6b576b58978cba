//! Welcome pointers: one shared body for many recipients, and a small sealed pointer for each.

use chacha20poly1305::aead::Aead as _;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit as _, Nonce};
use highwater_wire::SequenceId;
use highwater_wire::proto::backend::{WelcomeMessage, welcome_message};
use highwater_wire::proto::contents::{
    WelcomeMetadata, WelcomePointeeEncryptionAeadType, WelcomePointer, WelcomePointerWrapperAlgorithm,
    WelcomeWrapperAlgorithm, welcome_pointer,
};
use openmls_traits::random::OpenMlsRand as _;
use prost::Message as _;
use zeroize::Zeroizing;

use crate::key_package::KeyPackageId;
use crate::provider::SystemRandom;
use crate::welcome::{anchor, envelope, seal, seal_welcome};
use crate::{MlsError, OpenedWelcome, Recipient, WelcomeFailure};

/// From how many recipients on that can follow a pointer they share one body.
const SHARED_FROM: usize = 3;

/// Seals an MLS Welcome for all recipients of a commit, as the exact `ClientEnvelope` bytes to publish, in this order:
/// a body precedes the pointers to it. `anchor` is the sequence id of the commit that added them.
///
/// Recipients that can follow pointers share one body when there are more than two of them.
pub fn seal_welcomes(
    welcome: &[u8],
    anchor: SequenceId,
    recipients: &[Recipient],
) -> Result<Vec<Vec<u8>>, MlsError> {
    let (followers, others): (Vec<&Recipient>, Vec<&Recipient>) =
        recipients.iter().partition(|recipient| recipient.pointers);
    if followers.len() < SHARED_FROM {
        return recipients.iter().map(|to| seal_welcome(welcome, anchor, to)).collect();
    }
    let body = Body::random()?;
    let mut envelopes = vec![body.envelope(welcome, anchor)?];
    for follower in followers {
        envelopes.push(body.pointer(follower)?);
    }
    for other in others {
        envelopes.push(seal_welcome(welcome, anchor, other)?);
    }
    Ok(envelopes)
}

/// Where a shared body lies, and what encrypts it.
struct Body {
    destination: [u8; 32],
    key: Zeroizing<[u8; 32]>,
    data_nonce: [u8; 12],
    metadata_nonce: [u8; 12],
}

impl Body {
    fn random() -> Result<Self, MlsError> {
        let data_nonce: [u8; 12] = SystemRandom.random_array().map_err(MlsError::library)?;
        // One key encrypts two texts, so the nonces must differ; a flipped bit makes sure of it.
        let mut metadata_nonce = data_nonce;
        metadata_nonce[0] ^= 1;
        Ok(Self {
            destination: SystemRandom.random_array().map_err(MlsError::library)?,
            key: Zeroizing::new(SystemRandom.random_array().map_err(MlsError::library)?),
            data_nonce,
            metadata_nonce,
        })
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(Key::from_slice(self.key.as_slice()))
    }

    fn envelope(&self, welcome: &[u8], anchor: SequenceId) -> Result<Vec<u8>, MlsError> {
        let encrypt = |nonce: &[u8; 12], text: &[u8]| {
            let sealed = self.cipher().encrypt(Nonce::from_slice(nonce), text);
            sealed.map_err(MlsError::library)
        };
        let metadata = WelcomeMetadata { message_cursor: anchor.get() }.encode_to_vec();
        Ok(envelope(welcome_message::Version::V1(welcome_message::V1 {
            installation_key: self.destination.to_vec(),
            data: encrypt(&self.data_nonce, welcome)?,
            hpke_public_key: Vec::new(),
            wrapper_algorithm: WelcomeWrapperAlgorithm::SymmetricKey as i32,
            welcome_metadata: encrypt(&self.metadata_nonce, &metadata)?,
        })))
    }

    fn pointer(&self, recipient: &Recipient) -> Result<Vec<u8>, MlsError> {
        let v1 = welcome_pointer::WelcomeV1Pointer {
            destination: self.destination.to_vec(),
            aead_type: WelcomePointeeEncryptionAeadType::Chacha20Poly1305 as i32,
            encryption_key: self.key.to_vec(),
            data_nonce: self.data_nonce.to_vec(),
            welcome_metadata_nonce: self.metadata_nonce.to_vec(),
        };
        let version = Some(welcome_pointer::Version::WelcomeV1Pointer(v1));
        let plaintext = Zeroizing::new(WelcomePointer { version }.encode_to_vec());
        let public = &recipient.wrapper.public;
        let pointer = welcome_message::WelcomePointer {
            installation_key: recipient.installation.as_bytes().to_vec(),
            welcome_pointer: seal(public, &plaintext)?,
            hpke_public_key: public.to_vec(),
            wrapper_algorithm: WelcomePointerWrapperAlgorithm::Curve25519 as i32,
        };
        Ok(envelope(welcome_message::Version::WelcomePointer(pointer)))
    }

    fn read(plaintext: &[u8]) -> Result<Self, WelcomeFailure> {
        let malformed = || WelcomeFailure::Malformed("pointer");
        let pointer = WelcomePointer::decode(plaintext).map_err(|_| malformed())?;
        let Some(welcome_pointer::Version::WelcomeV1Pointer(v1)) = pointer.version else {
            return Err(malformed());
        };
        if v1.aead_type != WelcomePointeeEncryptionAeadType::Chacha20Poly1305 as i32 {
            return Err(WelcomeFailure::Downgrade);
        }
        let body = Self {
            destination: v1.destination.try_into().map_err(|_| malformed())?,
            key: Zeroizing::new(v1.encryption_key.try_into().map_err(|_| malformed())?),
            data_nonce: v1.data_nonce.try_into().map_err(|_| malformed())?,
            metadata_nonce: v1.welcome_metadata_nonce.try_into().map_err(|_| malformed())?,
        };
        if body.data_nonce == body.metadata_nonce { Err(malformed()) } else { Ok(body) }
    }
}

/// A pointer that came for this installation, opened.
pub struct Pointer {
    body: Body,
    package: KeyPackageId,
}

impl std::fmt::Debug for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pointer").field("package", &self.package).finish_non_exhaustive()
    }
}

impl Pointer {
    pub(crate) fn read(plaintext: &[u8], package: KeyPackageId) -> Result<Self, WelcomeFailure> {
        Ok(Self { body: Body::read(plaintext)?, package })
    }

    /// The identifier of the Welcome topic whose first envelope is the body.
    pub fn destination(&self) -> [u8; 32] {
        self.body.destination
    }

    /// Opens the first envelope of the destination topic.
    ///
    /// # Errors
    /// [`WelcomeFailure::BadPointee`] if it isn't a body, for instance another pointer: pointers don't chain.
    pub fn open(&self, pointee: &WelcomeMessage) -> Result<OpenedWelcome, WelcomeFailure> {
        let Some(welcome_message::Version::V1(v1)) = &pointee.version else {
            return Err(WelcomeFailure::BadPointee);
        };
        if v1.wrapper_algorithm != WelcomeWrapperAlgorithm::SymmetricKey as i32 {
            return Err(WelcomeFailure::BadPointee);
        }
        if v1.welcome_metadata.is_empty() {
            return Err(WelcomeFailure::MetadataMissing);
        }
        let decrypt = |nonce: &[u8; 12], sealed: &[u8]| {
            let text = self.body.cipher().decrypt(Nonce::from_slice(nonce), sealed);
            text.map_err(|_| WelcomeFailure::Unopenable)
        };
        Ok(OpenedWelcome {
            anchor: anchor(&decrypt(&self.body.metadata_nonce, &v1.welcome_metadata)?)?,
            welcome: decrypt(&self.body.data_nonce, &v1.data)?,
            package: self.package,
        })
    }
}
