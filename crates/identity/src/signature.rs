//! Who signed: from a signature and a text to the identifier that made it.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::Sha512;
use highwater_wire::{
    InstallationKey,
    proto::associations::{
        RecoverableEcdsaSignature, RecoverableEd25519Signature, RecoverablePasskeySignature, Signature,
        SmartContractWalletSignature, signature,
    },
};
use k256::ecdsa::{RecoveryId, VerifyingKey};
use p256::ecdsa::signature::Verifier as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use sha3::Keccak256;

use crate::{
    Address, Invalid, MemberIdentifier, PasskeyKey, Scheme, Verdicts, VerificationRequest,
    sign::installation_signature_context,
};

/// SHA-256 of a signature's canonical form: what a log remembers of it.
pub(crate) type Spent = [u8; 32];

/// A signature that verifies.
pub(crate) struct Checked {
    pub(crate) signer: MemberIdentifier,
    pub(crate) spent: Spent,
}

/// The text of one update, with the hash that Ethereum wallets sign.
pub(crate) struct SignedText {
    text: String,
    hash: [u8; 32],
}

impl SignedText {
    pub(crate) fn new(text: String) -> Self {
        let hash = eip191_hash(&text);
        Self { text, hash }
    }

    pub(crate) fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// Whose signature over this text it is.
    pub(crate) fn check(&self, signature: &Signature, verdicts: &Verdicts) -> Result<Checked, Invalid> {
        use signature::Signature as Kind;
        match signature.signature.as_ref().ok_or(Invalid::Missing("signature"))? {
            Kind::Erc191(signature) => self.erc_191(signature),
            Kind::Erc6492(signature) => self.erc_6492(signature, verdicts),
            Kind::InstallationKey(signature) => self.installation_key(signature),
            Kind::Passkey(signature) => self.passkey(signature),
            Kind::DelegatedErc191(_) => Err(Invalid::DelegatedSignature),
        }
    }

    fn erc_191(&self, signature: &RecoverableEcdsaSignature) -> Result<Checked, Invalid> {
        let canonical =
            RecoverableEcdsa::read(&signature.bytes).ok_or(Invalid::SignatureForm(Scheme::Erc191))?;
        let signer = canonical.signer(&self.hash).ok_or(Invalid::SignatureInvalid(Scheme::Erc191))?;
        Ok(Checked { signer: signer.into(), spent: spent(&canonical.to_bytes()) })
    }

    fn erc_6492(
        &self,
        signature: &SmartContractWalletSignature,
        verdicts: &Verdicts,
    ) -> Result<Checked, Invalid> {
        let request = VerificationRequest::of(self, signature);
        let signer = request.wallet()?;
        match verdicts.get(&request) {
            None => return Err(Invalid::Unverified(request)),
            Some(false) => return Err(Invalid::SignatureInvalid(Scheme::Erc6492)),
            Some(true) => {}
        }
        // Opaque, unless it has the shape of a plain wallet's: then a wallet contract may take both
        // forms of it, and they must count as one.
        let spent = match RecoverableEcdsa::read(&signature.signature) {
            Some(canonical) => spent(&canonical.to_bytes()),
            None => spent(&signature.signature),
        };
        Ok(Checked { signer, spent })
    }

    fn installation_key(&self, signature: &RecoverableEd25519Signature) -> Result<Checked, Invalid> {
        const SCHEME: Scheme = Scheme::InstallationKey;
        let installation = InstallationKey::try_from(signature.public_key.as_slice())
            .map_err(|_| Invalid::InstallationKeyForm { found: signature.public_key.len() })?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(installation.as_bytes())
            .map_err(|_| Invalid::SignatureInvalid(SCHEME))?;
        let parsed = ed25519_dalek::Signature::from_slice(&signature.bytes)
            .map_err(|_| Invalid::SignatureForm(SCHEME))?;
        // Strict: a key of small order would accept many signatures of one text, each unspent.
        key.verify_prehashed_strict(
            Sha512::new().chain_update(&self.text),
            Some(installation_signature_context()),
            &parsed,
        )
        .map_err(|_| Invalid::SignatureInvalid(SCHEME))?;
        Ok(Checked { signer: MemberIdentifier::Installation(installation), spent: spent(&signature.bytes) })
    }

    fn passkey(&self, signature: &RecoverablePasskeySignature) -> Result<Checked, Invalid> {
        const SCHEME: Scheme = Scheme::Passkey;
        let key = PasskeyKey::from_sec1(&signature.public_key)?;
        let parsed = p256::ecdsa::Signature::from_der(&signature.signature)
            .map_err(|_| Invalid::SignatureForm(SCHEME))?;
        let client_data: ClientData = serde_json::from_slice(&signature.client_data_json)
            .map_err(|_| Invalid::SignatureForm(SCHEME))?;
        if client_data.challenge != URL_SAFE_NO_PAD.encode(&self.text) {
            return Err(Invalid::PasskeyChallenge);
        }
        let mut signed = signature.authenticator_data.clone();
        signed.extend_from_slice(&Sha256::digest(&signature.client_data_json));
        key.verifying_key().verify(&signed, &parsed).map_err(|_| Invalid::SignatureInvalid(SCHEME))?;
        Ok(Checked {
            signer: MemberIdentifier::Passkey { key },
            spent: spent(&parsed.normalize_s().unwrap_or(parsed).to_bytes()),
        })
    }
}

/// The part of WebAuthn's client data that the rules read.
#[derive(Deserialize)]
struct ClientData {
    challenge: String,
}

/// A recoverable signature in its one canonical form: low s, v 0 or 1.
struct RecoverableEcdsa {
    signature: k256::ecdsa::Signature,
    parity: RecoveryId,
}

impl RecoverableEcdsa {
    /// Reads r, s and v in any form that wallets make, or `None` where it is none.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (v, scalars) = bytes.split_last()?;
        let odd = match v {
            0 | 27 => false,
            1 | 28 => true,
            _ => return None,
        };
        let signature = k256::ecdsa::Signature::from_slice(scalars).ok()?;
        // Negating s mirrors the point, so the parity turns with it.
        Some(match signature.normalize_s() {
            Some(low) => Self { signature: low, parity: RecoveryId::new(!odd, false) },
            None => Self { signature, parity: RecoveryId::new(odd, false) },
        })
    }

    fn signer(&self, hash: &[u8; 32]) -> Option<Address> {
        let key = VerifyingKey::recover_from_prehash(hash, &self.signature, self.parity).ok()?;
        Some(Address::of(&key))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.signature.to_vec();
        bytes.push(self.parity.to_byte());
        bytes
    }
}

impl Address {
    /// Whose key signed a hash, or `None` if the bytes are no signature: r, s and v in any form that
    /// `erc_191` may have.
    pub fn recover(hash: &[u8; 32], signature: &[u8]) -> Option<Self> {
        RecoverableEcdsa::read(signature)?.signer(hash)
    }
}

fn spent(canonical: &[u8]) -> Spent {
    Sha256::digest(canonical).into()
}

/// The hash of an Ethereum personal message.
pub(crate) fn eip191_hash(text: &str) -> [u8; 32] {
    let mut hash = Keccak256::new();
    hash.update(b"\x19Ethereum Signed Message:\n");
    hash.update(text.len().to_string().as_bytes());
    hash.update(text.as_bytes());
    hash.finalize().into()
}
