//! Who can belong to an inbox.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

use highwater_wire::{
    InstallationKey,
    proto::associations::{self as proto, IdentifierKind, member_identifier},
};
use k256::elliptic_curve::sec1::ToEncodedPoint as _;
use serde::{Deserialize, Serialize};
use sha3::{Digest as _, Keccak256};

use crate::Invalid;

/// An Ethereum address. Its one text form is `0x` and 40 lowercase hex characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address([u8; 20]);

impl Address {
    /// Takes the bytes as they are.
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    pub(crate) fn of(key: &k256::ecdsa::VerifyingKey) -> Self {
        // Keccak-256 of the point without its SEC1 tag; the address is the tail.
        let hash = Keccak256::digest(&key.as_affine().to_encoded_point(false).as_bytes()[1..]);
        let mut bytes = [0; 20];
        bytes.copy_from_slice(&hash[12..]);
        Self(bytes)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address(0x{}…)", hex::encode(&self.0[..4]))
    }
}

impl FromStr for Address {
    type Err = Invalid;

    /// # Errors
    /// [`Invalid::AddressForm`] for any other spelling, a checksummed one included: the text is
    /// signed and hashed, so one address must have one text.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = text.strip_prefix("0x").ok_or(Invalid::AddressForm)?;
        lowercase_hex(digits).and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(Invalid::AddressForm)
    }
}

/// A passkey's public key: a SEC1 point of P-256, 33 bytes compressed or 65 uncompressed.
///
/// Two spellings of one point are equal, so that no key can be a member twice; the spelling is kept
/// because signed texts name the key by it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct PasskeyKey(Vec<u8>);

impl PasskeyKey {
    /// Reads a SEC1 point.
    ///
    /// # Errors
    /// [`Invalid::PasskeyForm`] if it isn't one of P-256, compressed or uncompressed.
    pub fn from_sec1(bytes: &[u8]) -> Result<Self, Invalid> {
        let tagged = match bytes.first() {
            Some(2 | 3) => bytes.len() == 33,
            Some(4) => bytes.len() == 65,
            _ => false,
        };
        if !tagged || p256::ecdsa::VerifyingKey::from_sec1_bytes(bytes).is_err() {
            return Err(Invalid::PasskeyForm);
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The key as it was spelled.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn verifying_key(&self) -> p256::ecdsa::VerifyingKey {
        p256::ecdsa::VerifyingKey::from_sec1_bytes(&self.0).expect("only from_sec1 constructs")
    }

    /// Whether y is odd, and x: the same for both spellings.
    fn point(&self) -> (bool, &[u8]) {
        let odd = match self.0[0] {
            4 => self.0[64] & 1 == 1,
            tag => tag == 3,
        };
        (odd, &self.0[1..33])
    }
}

impl AsRef<[u8]> for PasskeyKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for PasskeyKey {
    type Error = Invalid;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Invalid> {
        Self::from_sec1(&bytes)
    }
}

impl From<PasskeyKey> for Vec<u8> {
    fn from(key: PasskeyKey) -> Self {
        key.0
    }
}

impl fmt::Debug for PasskeyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasskeyKey({}…)", hex::encode(&self.0[..4]))
    }
}

impl PartialEq for PasskeyKey {
    fn eq(&self, other: &Self) -> bool {
        self.point() == other.point()
    }
}

impl Eq for PasskeyKey {}

impl PartialOrd for PasskeyKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PasskeyKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.point().cmp(&other.point())
    }
}

impl Hash for PasskeyKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.point().hash(state);
    }
}

/// Someone or something that can belong to an inbox and sign for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberIdentifier {
    /// A wallet, of a key or of a contract.
    Ethereum(Address),
    /// One installation of an app.
    Installation(InstallationKey),
    /// A passkey.
    Passkey {
        /// Its public key.
        key: PasskeyKey,
    },
}

impl MemberIdentifier {
    /// Reads an identifier from text: what CreateInbox and ChangeRecoveryAddress carry, and what
    /// inboxes are looked up by. [`IdentifierKind::Unspecified`] is read as Ethereum.
    ///
    /// # Errors
    /// [`Invalid::AddressForm`] or [`Invalid::PasskeyForm`].
    pub fn parse(kind: IdentifierKind, text: &str) -> Result<Self, Invalid> {
        match kind {
            IdentifierKind::Unspecified | IdentifierKind::Ethereum => text.parse().map(Self::Ethereum),
            IdentifierKind::Passkey => {
                let bytes = lowercase_hex(text).ok_or(Invalid::PasskeyForm)?;
                PasskeyKey::from_sec1(&bytes).map(|key| Self::Passkey { key })
            }
        }
    }

    /// The whole identifier as signed texts and inbox ids spell it. Not for logs (STR-064).
    pub fn text(&self) -> String {
        match self {
            Self::Ethereum(address) => address.to_string(),
            Self::Installation(key) => key.to_hex(),
            Self::Passkey { key } => hex::encode(key),
        }
    }

    /// The wire form, without a relying party.
    pub fn to_proto(&self) -> proto::MemberIdentifier {
        let kind = match self {
            Self::Ethereum(address) => member_identifier::Kind::EthereumAddress(address.to_string()),
            Self::Installation(key) => {
                member_identifier::Kind::InstallationPublicKey(key.as_bytes().to_vec())
            }
            Self::Passkey { key } => member_identifier::Kind::Passkey(proto::Passkey {
                key: key.as_bytes().to_vec(),
                relying_party: None,
            }),
        };
        proto::MemberIdentifier { kind: Some(kind) }
    }
}

impl From<Address> for MemberIdentifier {
    fn from(address: Address) -> Self {
        Self::Ethereum(address)
    }
}

impl From<InstallationKey> for MemberIdentifier {
    fn from(key: InstallationKey) -> Self {
        Self::Installation(key)
    }
}

impl TryFrom<&proto::MemberIdentifier> for MemberIdentifier {
    type Error = Invalid;

    fn try_from(identifier: &proto::MemberIdentifier) -> Result<Self, Invalid> {
        match identifier.kind.as_ref().ok_or(Invalid::Missing("member identifier"))? {
            member_identifier::Kind::EthereumAddress(text) => text.parse().map(Self::Ethereum),
            member_identifier::Kind::InstallationPublicKey(bytes) => {
                InstallationKey::try_from(bytes.as_slice())
                    .map(Self::Installation)
                    .map_err(|_| Invalid::InstallationKeyForm { found: bytes.len() })
            }
            member_identifier::Kind::Passkey(passkey) => {
                PasskeyKey::from_sec1(&passkey.key).map(|key| Self::Passkey { key })
            }
        }
    }
}

fn lowercase_hex(text: &str) -> Option<Vec<u8>> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    hex::decode(text).ok()
}
