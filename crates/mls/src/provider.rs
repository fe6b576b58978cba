//! What OpenMLS runs on: RustCrypto, the operating system's randomness, and an overlay.

use std::sync::LazyLock;

use ed25519_dalek::{Signer as _, SigningKey};
use openmls_rust_crypto::RustCrypto;
use openmls_traits::OpenMlsProvider;
use openmls_traits::random::OpenMlsRand;
use openmls_traits::signatures::{Signer, SignerError};
use openmls_traits::types::SignatureScheme;
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};

use crate::overlay::Overlay;

/// Holds no state but a generator of its own, so one serves the whole process.
static CRYPTO: LazyLock<RustCrypto> = LazyLock::new(RustCrypto::default);

pub(crate) fn crypto() -> &'static RustCrypto {
    &CRYPTO
}

pub(crate) struct SystemRandom;

impl OpenMlsRand for SystemRandom {
    type Error = SysError;

    fn random_array<const N: usize>(&self) -> Result<[u8; N], SysError> {
        let mut bytes = [0; N];
        SysRng.try_fill_bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn random_vec(&self, len: usize) -> Result<Vec<u8>, SysError> {
        let mut bytes = vec![0; len];
        SysRng.try_fill_bytes(&mut bytes)?;
        Ok(bytes)
    }
}

pub(crate) struct Provider {
    pub(crate) overlay: Overlay,
}

impl Provider {
    pub(crate) fn new(overlay: Overlay) -> Self {
        Self { overlay }
    }
}

impl OpenMlsProvider for Provider {
    type CryptoProvider = RustCrypto;
    type RandProvider = SystemRandom;
    type StorageProvider = Overlay;

    fn storage(&self) -> &Overlay {
        &self.overlay
    }

    fn crypto(&self) -> &RustCrypto {
        crypto()
    }

    fn rand(&self) -> &SystemRandom {
        &SystemRandom
    }
}

/// The installation's key as MLS signs with it.
pub(crate) struct InstallationSigner<'a>(pub(crate) &'a SigningKey);

impl Signer for InstallationSigner<'_> {
    fn sign(&self, payload: &[u8]) -> Result<Vec<u8>, SignerError> {
        Ok(self.0.sign(payload).to_bytes().to_vec())
    }

    fn signature_scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}
