//! Signers of every kind, and updates that they sign.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use highwater_identity::{
    AssociationState, Invalid, MemberIdentifier, PasskeyKey, Verdicts, inbox_id,
    sign::{LocalWallet, installation_signature},
    signature_text,
};
use highwater_wire::{
    InboxId, InstallationKey,
    proto::associations::{
        AddAssociation, ChangeRecoveryAddress, CreateInbox, IdentifierKind, IdentityAction, IdentityUpdate,
        RecoverablePasskeySignature, RevokeAssociation, Signature, identity_action::Kind, signature,
    },
};
use p256::ecdsa::signature::Signer as _;
use sha2::{Digest as _, Sha256};

#[derive(Clone)]
pub(crate) enum Actor {
    Wallet(LocalWallet),
    Installation(ed25519_dalek::SigningKey),
    Passkey(p256::ecdsa::SigningKey),
}

pub(crate) fn wallet(seed: u8) -> Actor {
    Actor::Wallet(LocalWallet::from_bytes(&[seed; 32]).unwrap())
}

pub(crate) fn installation(seed: u8) -> Actor {
    Actor::Installation(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]))
}

pub(crate) fn passkey(seed: u8) -> Actor {
    Actor::Passkey(p256::ecdsa::SigningKey::from_slice(&[seed; 32]).unwrap())
}

impl Actor {
    pub(crate) fn id(&self) -> MemberIdentifier {
        match self {
            Self::Wallet(wallet) => wallet.address().into(),
            Self::Installation(key) => InstallationKey::from_bytes(key.verifying_key().to_bytes()).into(),
            Self::Passkey(key) => {
                MemberIdentifier::Passkey { key: PasskeyKey::from_sec1(&passkey_bytes(key)).unwrap() }
            }
        }
    }

    pub(crate) fn sign(&self, text: &str) -> Signature {
        match self {
            Self::Wallet(wallet) => wallet.sign_erc191(text),
            Self::Installation(key) => installation_signature(key, text),
            Self::Passkey(key) => {
                Signature { signature: Some(signature::Signature::Passkey(assertion(key, text))) }
            }
        }
    }

    fn kind(&self) -> IdentifierKind {
        match self {
            Self::Wallet(_) => IdentifierKind::Ethereum,
            Self::Passkey(_) => IdentifierKind::Passkey,
            Self::Installation(_) => panic!("an installation is no root identifier"),
        }
    }
}

pub(crate) fn passkey_bytes(key: &p256::ecdsa::SigningKey) -> Vec<u8> {
    key.verifying_key().to_encoded_point(false).as_bytes().to_vec()
}

/// What an authenticator and a browser make of a challenge.
pub(crate) fn assertion(key: &p256::ecdsa::SigningKey, text: &str) -> RecoverablePasskeySignature {
    let challenge = URL_SAFE_NO_PAD.encode(text);
    let client_data_json = format!(
        r#"{{"type":"webauthn.get","challenge":"{challenge}","origin":"https://app.example","crossOrigin":false}}"#
    )
    .into_bytes();
    let mut authenticator_data = Sha256::digest(b"app.example").to_vec();
    authenticator_data.extend([0x05, 0, 0, 0, 1]);
    let mut signed = authenticator_data.clone();
    signed.extend(Sha256::digest(&client_data_json));
    let made: p256::ecdsa::Signature = key.sign(&signed);
    RecoverablePasskeySignature {
        public_key: passkey_bytes(key),
        signature: made.to_der().as_bytes().to_vec(),
        authenticator_data,
        client_data_json,
    }
}

pub(crate) enum Act<'a> {
    Create { by: &'a Actor, nonce: u64 },
    Add { by: &'a Actor, new: &'a Actor },
    Revoke { by: &'a Actor, whom: &'a Actor },
    Recover { by: &'a Actor, to: &'a Actor },
}

impl Act<'_> {
    fn unsigned(&self) -> Kind {
        match self {
            Act::Create { by, nonce } => Kind::CreateInbox(CreateInbox {
                initial_identifier: by.id().text(),
                nonce: *nonce,
                initial_identifier_signature: None,
                initial_identifier_kind: by.kind().into(),
                relying_party: None,
            }),
            Act::Add { new, .. } => Kind::Add(AddAssociation {
                new_member_identifier: Some(new.id().to_proto()),
                ..Default::default()
            }),
            Act::Revoke { whom, .. } => Kind::Revoke(RevokeAssociation {
                member_to_revoke: Some(whom.id().to_proto()),
                recovery_identifier_signature: None,
            }),
            Act::Recover { to, .. } => Kind::ChangeRecoveryAddress(ChangeRecoveryAddress {
                new_recovery_identifier: to.id().text(),
                existing_recovery_identifier_signature: None,
                new_recovery_identifier_kind: to.kind().into(),
                relying_party: None,
            }),
        }
    }

    fn sign(&self, kind: &mut Kind, text: &str) {
        match (self, kind) {
            (Act::Create { by, .. }, Kind::CreateInbox(create)) => {
                create.initial_identifier_signature = Some(by.sign(text));
            }
            (Act::Add { by, new }, Kind::Add(add)) => {
                add.existing_member_signature = Some(by.sign(text));
                add.new_member_signature = Some(new.sign(text));
            }
            (Act::Revoke { by, .. }, Kind::Revoke(revoke)) => {
                revoke.recovery_identifier_signature = Some(by.sign(text));
            }
            (Act::Recover { by, .. }, Kind::ChangeRecoveryAddress(change)) => {
                change.existing_recovery_identifier_signature = Some(by.sign(text));
            }
            _ => unreachable!("the kind is the act's own"),
        }
    }
}

/// The update of these acts, `second` seconds after the epoch, signed by whoever each act says.
pub(crate) fn update(inbox: InboxId, second: u64, acts: &[Act<'_>]) -> IdentityUpdate {
    let mut update = IdentityUpdate {
        actions: acts.iter().map(|act| IdentityAction { kind: Some(act.unsigned()) }).collect(),
        client_timestamp_ns: second * 1_000_000_000,
        inbox_id: inbox.to_hex(),
    };
    let text = signature_text(&update).unwrap();
    for (act, action) in acts.iter().zip(&mut update.actions) {
        act.sign(action.kind.as_mut().unwrap(), &text);
    }
    update
}

pub(crate) fn inbox_of(creator: &Actor) -> InboxId {
    inbox_id(&creator.id().text(), 0)
}

/// An inbox under way: every step must apply, or is asked to fail.
pub(crate) struct Inbox {
    pub(crate) id: InboxId,
    pub(crate) state: AssociationState,
    clock: u64,
}

impl Inbox {
    pub(crate) fn opened_by(creator: &Actor) -> Self {
        let id = inbox_of(creator);
        let first = update(id, 1, &[Act::Create { by: creator, nonce: 0 }]);
        let state = AssociationState::apply(None, id, &first, &Verdicts::default()).unwrap();
        Self { id, state, clock: 1 }
    }

    /// The update of these acts at the next second.
    pub(crate) fn next(&mut self, acts: &[Act<'_>]) -> IdentityUpdate {
        self.clock += 1;
        update(self.id, self.clock, acts)
    }

    pub(crate) fn submit(&mut self, update: &IdentityUpdate) -> Result<(), Invalid> {
        let before = self.state.clone();
        let verdicts = Verdicts::default();
        match AssociationState::apply(Some(&self.state), self.id, update, &verdicts) {
            Ok(next) => {
                assert_eq!(next.entries(), before.entries() + 1);
                self.state = next;
                Ok(())
            }
            Err(reason) => {
                assert_eq!(self.state, before);
                Err(reason)
            }
        }
    }

    pub(crate) fn act(&mut self, acts: &[Act<'_>]) -> Result<(), Invalid> {
        let update = self.next(acts);
        self.submit(&update)
    }

    pub(crate) fn has(&self, actor: &Actor) -> bool {
        self.state.is_member(&actor.id())
    }
}

/// The one signature of an update that changes the recovery identifier.
pub(crate) fn recovery_signature(update: &mut IdentityUpdate) -> &mut Signature {
    match update.actions[0].kind.as_mut() {
        Some(Kind::ChangeRecoveryAddress(change)) => {
            change.existing_recovery_identifier_signature.as_mut().unwrap()
        }
        _ => panic!("not a change of the recovery identifier"),
    }
}
