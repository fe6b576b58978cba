//! Wallets: they own inboxes, and sign the text that lets an installation speak for one.

use std::future::Future;

use highwater_identity::sign;
use highwater_wire::proto::associations::signature::Signature;

/// A signer's own failure, in its own words.
pub type SignerError = Box<dyn std::error::Error + Send + Sync>;

/// Signs for an inbox. Asked once per database, when its installation is registered.
pub trait Signer: Send + Sync {
    /// The account's address: `0x` and 40 hex digits, in any case.
    fn address(&self) -> impl Future<Output = Result<String, SignerError>> + Send;

    /// Signs a text as an EIP-191 personal message: r, s and v, 65 bytes.
    fn sign(&self, text: &str) -> impl Future<Output = Result<[u8; 65], SignerError>> + Send;
}

/// A wallet whose private key is in memory.
pub struct LocalWallet(sign::LocalWallet);

impl LocalWallet {
    /// Makes a new private key.
    pub fn generate() -> Self {
        Self(sign::LocalWallet::generate())
    }

    /// Takes a private key. `None` if it isn't one: zero, or not below the curve's order.
    pub fn from_bytes(key: &[u8; 32]) -> Option<Self> {
        sign::LocalWallet::from_bytes(key).map(Self)
    }

    /// The private key. Keep it as such.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }
}

impl std::fmt::Debug for LocalWallet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalWallet").finish_non_exhaustive()
    }
}

impl Signer for LocalWallet {
    async fn address(&self) -> Result<String, SignerError> {
        Ok(self.0.address().to_string())
    }

    async fn sign(&self, text: &str) -> Result<[u8; 65], SignerError> {
        match self.0.sign_erc191(text).signature {
            Some(Signature::Erc191(signed)) => Ok(signed.bytes.as_slice().try_into()?),
            _ => Err("the wallet made no recoverable signature".into()),
        }
    }
}
