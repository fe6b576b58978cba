//! Welcome pointers: one shared body for many recipients, and a small sealed pointer for each.

use chacha20poly1305::aead::Aead as _;
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit as _, Nonce};
use highwater_wire::proto::backend::{WelcomeMessage, welcome_message};
use highwater_wire::proto::contents::{
    WelcomePointeeEncryptionAeadType, WelcomePointer, WelcomeWrapperAlgorithm, welcome_pointer,
};
use prost::Message as _;
use zeroize::Zeroizing;

use crate::key_package::KeyPackageId;
use crate::welcome::anchor;
use crate::{OpenedWelcome, WelcomeFailure};

/// Where a Welcome's body lies, and what opens it.
pub struct Pointer {
    destination: [u8; 32],
    key: Zeroizing<[u8; 32]>,
    data_nonce: [u8; 12],
    metadata_nonce: [u8; 12],
    package: KeyPackageId,
}

impl std::fmt::Debug for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pointer").field("package", &self.package).finish_non_exhaustive()
    }
}

pub(crate) fn read(plaintext: &[u8], package: KeyPackageId) -> Result<Pointer, WelcomeFailure> {
    let malformed = || WelcomeFailure::Malformed("pointer");
    let pointer = WelcomePointer::decode(plaintext).map_err(|_| malformed())?;
    let Some(welcome_pointer::Version::WelcomeV1Pointer(v1)) = pointer.version else {
        return Err(malformed());
    };
    if v1.aead_type != WelcomePointeeEncryptionAeadType::Chacha20Poly1305 as i32 {
        return Err(WelcomeFailure::Downgrade);
    }
    let pointer = Pointer {
        destination: v1.destination.try_into().map_err(|_| malformed())?,
        key: Zeroizing::new(v1.encryption_key.try_into().map_err(|_| malformed())?),
        data_nonce: v1.data_nonce.try_into().map_err(|_| malformed())?,
        metadata_nonce: v1.welcome_metadata_nonce.try_into().map_err(|_| malformed())?,
        package,
    };
    // One key encrypts two texts: the same nonce would give both away.
    if pointer.data_nonce == pointer.metadata_nonce { Err(malformed()) } else { Ok(pointer) }
}

impl Pointer {
    /// The identifier of the Welcome topic whose first envelope is the body.
    pub fn destination(&self) -> [u8; 32] {
        self.destination
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
        let cipher = ChaCha20Poly1305::new(Key::from_slice(self.key.as_slice()));
        let open = |nonce: &[u8; 12], sealed: &[u8]| {
            cipher.decrypt(Nonce::from_slice(nonce), sealed).map_err(|_| WelcomeFailure::Unopenable)
        };
        Ok(OpenedWelcome {
            anchor: anchor(&open(&self.metadata_nonce, &v1.welcome_metadata)?)?,
            welcome: open(&self.data_nonce, &v1.data)?,
            package: self.package,
        })
    }
}
