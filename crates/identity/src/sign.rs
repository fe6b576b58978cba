//! Making identity updates: what to sign, and putting the signatures in.
//!
//! Each builder fixes the update first, shows its text, and takes the
//! signatures over exactly that text. Nothing here checks them: [`AssociationState::apply`] does,
//! for own updates as for anyone's.
//!
//! [`AssociationState::apply`]: crate::AssociationState::apply

use std::fmt;

use ed25519_dalek::Sha512;
use highwater_wire::{
    InboxId, InstallationKey,
    proto::associations::{
        AddAssociation, ChangeRecoveryAddress, CreateInbox, IdentifierKind, IdentityAction, IdentityUpdate,
        RecoverableEcdsaSignature, RecoverableEd25519Signature, RevokeAssociation, Signature,
        identity_action::Kind, signature,
    },
};
use k256::ecdsa::SigningKey;
use sha2::Digest as _;

use crate::{Address, Invalid, MemberIdentifier, inbox_id, signature::eip191_hash, signature_text};

/// The Ed25519ph context of an installation's signatures of identity updates.
pub const fn installation_signature_context() -> &'static [u8] {
    b"IDENTITY UPDATE SIGNATURE"
}

/// A wallet whose key this process holds.
#[derive(Clone)]
pub struct LocalWallet(SigningKey);

impl LocalWallet {
    /// A new random wallet.
    pub fn generate() -> Self {
        loop {
            // Of 2^256 values fewer than 2^129 are no key, so this ends at once.
            if let Some(wallet) = Self::from_bytes(&rand::random()) {
                return wallet;
            }
        }
    }

    /// The wallet of a private key, or `None` if the number is no key of secp256k1.
    pub fn from_bytes(key: &[u8; 32]) -> Option<Self> {
        SigningKey::from_bytes(key.into()).ok().map(Self)
    }

    /// The private key.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes().into()
    }

    /// The wallet's address.
    pub fn address(&self) -> Address {
        Address::of(self.0.verifying_key())
    }

    /// Signs a text as an Ethereum personal message (`erc_191`).
    pub fn sign_erc191(&self, text: &str) -> Signature {
        let (scalars, parity) =
            self.0.sign_prehash_recoverable(&eip191_hash(text)).expect("a 32-byte hash can be signed");
        let mut bytes = scalars.to_vec();
        bytes.push(27 + parity.to_byte());
        Signature { signature: Some(signature::Signature::Erc191(RecoverableEcdsaSignature { bytes })) }
    }
}

impl fmt::Debug for LocalWallet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalWallet").field(&self.address()).finish()
    }
}

/// Signs a text with an installation's key (`installation_key`).
pub fn installation_signature(key: &ed25519_dalek::SigningKey, text: &str) -> Signature {
    let signature = key
        .sign_prehashed(Sha512::new().chain_update(text), Some(installation_signature_context()))
        .expect("the context is shorter than 256 bytes");
    finished_installation_signature(
        InstallationKey::from_bytes(key.verifying_key().to_bytes()),
        signature.to_bytes(),
    )
}

/// Signs a text with the installation key that `seed` is the private half of.
pub fn sign_as_installation(seed: &[u8; 32], text: &str) -> Signature {
    installation_signature(&ed25519_dalek::SigningKey::from_bytes(seed), text)
}

/// Wraps an Ed25519ph signature that was made elsewhere, over SHA-512 of the text and with
/// [`installation_signature_context`].
pub fn finished_installation_signature(key: InstallationKey, bytes: [u8; 64]) -> Signature {
    Signature {
        signature: Some(signature::Signature::InstallationKey(RecoverableEd25519Signature {
            bytes: bytes.to_vec(),
            public_key: key.as_bytes().to_vec(),
        })),
    }
}

/// An update that is complete but for its signatures.
#[derive(Debug, Clone)]
struct Unsigned {
    inbox_id: InboxId,
    update: IdentityUpdate,
    text: String,
}

impl Unsigned {
    /// `timestamp_ns`: the local clock, nanoseconds since the Unix epoch.
    fn new(inbox_id: InboxId, timestamp_ns: i64, actions: Vec<Kind>) -> Result<Self, Invalid> {
        let update = IdentityUpdate {
            actions: actions.into_iter().map(|kind| IdentityAction { kind: Some(kind) }).collect(),
            client_timestamp_ns: timestamp_ns.cast_unsigned(),
            inbox_id: inbox_id.to_hex(),
        };
        let text = signature_text(&update)?;
        Ok(Self { inbox_id, update, text })
    }

    /// For one action or more: their identifiers have the right form by their types.
    fn of(inbox_id: InboxId, timestamp_ns: i64, actions: Vec<Kind>) -> Self {
        Self::new(inbox_id, timestamp_ns, actions).expect("typed identifiers give a readable update")
    }

    fn sign(mut self, place: impl Fn(&mut Kind)) -> IdentityUpdate {
        self.update.actions.iter_mut().filter_map(|action| action.kind.as_mut()).for_each(place);
        self.update
    }
}

/// A new inbox with its first installation, one update. See [`registration`].
#[derive(Debug, Clone)]
pub struct UnsignedRegistration(Unsigned);

/// Opens an inbox for a wallet and adds its first installation.
pub fn registration(
    wallet: Address,
    nonce: u64,
    installation: InstallationKey,
    timestamp_ns: i64,
) -> UnsignedRegistration {
    let identifier = wallet.to_string();
    let inbox = inbox_id(&identifier, nonce);
    let create = CreateInbox {
        initial_identifier: identifier,
        nonce,
        initial_identifier_signature: None,
        initial_identifier_kind: IdentifierKind::Ethereum.into(),
        relying_party: None,
    };
    let actions = vec![Kind::CreateInbox(create), unsigned_add(&installation.into())];
    UnsignedRegistration(Unsigned::of(inbox, timestamp_ns, actions))
}

impl UnsignedRegistration {
    /// The new inbox.
    pub fn inbox_id(&self) -> InboxId {
        self.0.inbox_id
    }

    /// What the wallet and the installation sign.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The signed update. The wallet's one signature creates the inbox and adds the installation.
    pub fn finish(self, wallet: Signature, installation: Signature) -> IdentityUpdate {
        self.0.sign(|action| match action {
            Kind::CreateInbox(create) => {
                create.initial_identifier_signature = Some(wallet.clone());
            }
            Kind::Add(add) => {
                add.existing_member_signature = Some(wallet.clone());
                add.new_member_signature = Some(installation.clone());
            }
            Kind::Revoke(_) | Kind::ChangeRecoveryAddress(_) => {}
        })
    }
}

/// A new member. See [`add_member`].
#[derive(Debug, Clone)]
pub struct UnsignedAddition(Unsigned);

/// Adds a wallet, a passkey or an installation to an inbox.
pub fn add_member(inbox: InboxId, member: &MemberIdentifier, timestamp_ns: i64) -> UnsignedAddition {
    UnsignedAddition(Unsigned::of(inbox, timestamp_ns, vec![unsigned_add(member)]))
}

/// Adds an installation to an inbox.
pub fn add_installation(
    inbox: InboxId,
    installation: InstallationKey,
    timestamp_ns: i64,
) -> UnsignedAddition {
    add_member(inbox, &installation.into(), timestamp_ns)
}

fn unsigned_add(member: &MemberIdentifier) -> Kind {
    Kind::Add(AddAssociation {
        new_member_identifier: Some(member.to_proto()),
        existing_member_signature: None,
        new_member_signature: None,
        relying_party: None,
    })
}

impl UnsignedAddition {
    /// What the existing and the new member sign.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The signed update.
    pub fn finish(self, existing: Signature, new: Signature) -> IdentityUpdate {
        self.0.sign(|action| {
            if let Kind::Add(add) = action {
                add.existing_member_signature = Some(existing.clone());
                add.new_member_signature = Some(new.clone());
            }
        })
    }
}

/// Members to take away. See [`revoke`].
#[derive(Debug, Clone)]
pub struct UnsignedRevocation(Unsigned);

/// Takes members away in one update, and with each the installations that it added.
///
/// # Errors
/// [`Invalid::NoActions`] if `members` is empty.
pub fn revoke(
    inbox: InboxId,
    members: &[MemberIdentifier],
    timestamp_ns: i64,
) -> Result<UnsignedRevocation, Invalid> {
    let actions = members.iter().map(unsigned_revoke).collect();
    Unsigned::new(inbox, timestamp_ns, actions).map(UnsignedRevocation)
}

/// Takes one installation away.
pub fn revoke_installation(
    inbox: InboxId,
    installation: InstallationKey,
    timestamp_ns: i64,
) -> UnsignedRevocation {
    let action = unsigned_revoke(&installation.into());
    UnsignedRevocation(Unsigned::of(inbox, timestamp_ns, vec![action]))
}

fn unsigned_revoke(member: &MemberIdentifier) -> Kind {
    Kind::Revoke(RevokeAssociation {
        member_to_revoke: Some(member.to_proto()),
        recovery_identifier_signature: None,
    })
}

impl UnsignedRevocation {
    /// What the recovery identifier signs.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The signed update.
    pub fn finish(self, recovery: Signature) -> IdentityUpdate {
        self.0.sign(|action| {
            if let Kind::Revoke(revoke) = action {
                revoke.recovery_identifier_signature = Some(recovery.clone());
            }
        })
    }
}

/// Another recovery identifier. See [`change_recovery`].
#[derive(Debug, Clone)]
pub struct UnsignedRecoveryChange(Unsigned);

/// Names a wallet as the inbox's recovery identifier. It doesn't become a member by that.
pub fn change_recovery(inbox: InboxId, wallet: Address, timestamp_ns: i64) -> UnsignedRecoveryChange {
    let change = ChangeRecoveryAddress {
        new_recovery_identifier: wallet.to_string(),
        existing_recovery_identifier_signature: None,
        new_recovery_identifier_kind: IdentifierKind::Ethereum.into(),
        relying_party: None,
    };
    let action = Kind::ChangeRecoveryAddress(change);
    UnsignedRecoveryChange(Unsigned::of(inbox, timestamp_ns, vec![action]))
}

impl UnsignedRecoveryChange {
    /// What the present recovery identifier signs.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The signed update.
    pub fn finish(self, recovery: Signature) -> IdentityUpdate {
        self.0.sign(|action| {
            if let Kind::ChangeRecoveryAddress(change) = action {
                change.existing_recovery_identifier_signature = Some(recovery.clone());
            }
        })
    }
}
