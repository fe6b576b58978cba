//! Passkey signatures: accepted, tampered with, replayed.

use highwater_identity::{Invalid, Scheme, signature_text};
use highwater_wire::proto::associations::{RecoverablePasskeySignature, signature};
use p256::ecdsa::signature::Signer as _;
use sha2::{Digest as _, Sha256};

use crate::actors::{Act, Actor, Inbox, assertion, passkey, recovery_signature};

fn passkey_case(
    change: impl FnOnce(&p256::ecdsa::SigningKey, &str, &mut RecoverablePasskeySignature),
) -> Result<(), Invalid> {
    let key = passkey(1);
    let Actor::Passkey(signing) = &key else { unreachable!() };
    let mut inbox = Inbox::opened_by(&key);
    let mut update = inbox.next(&[Act::Recover { by: &key, to: &key }]);
    let text = signature_text(&update).unwrap();
    let mut made = assertion(signing, &text);
    change(signing, &text, &mut made);
    recovery_signature(&mut update).signature = Some(signature::Signature::Passkey(made));
    inbox.submit(&update)
}

fn sign_again(key: &p256::ecdsa::SigningKey, made: &mut RecoverablePasskeySignature) {
    let signed = [&made.authenticator_data[..], &Sha256::digest(&made.client_data_json)[..]].concat();
    let signature: p256::ecdsa::Signature = key.sign(&signed);
    made.signature = signature.to_der().as_bytes().to_vec();
}

#[test]
fn a_passkey_signs_authenticator_data_and_client_data() {
    passkey_case(|_, _, _| {}).unwrap();
    let refused = Err(Invalid::SignatureInvalid(Scheme::Passkey));
    assert_eq!(passkey_case(|_, _, made| made.authenticator_data[32] ^= 1), refused);
    assert_eq!(
        passkey_case(|_, _, made| made.client_data_json.push(b' ')),
        refused,
        "whitespace keeps the JSON's meaning but not its hash"
    );
    assert_eq!(passkey_case(|_, _, made| made.signature.truncate(40)).unwrap_err().code(), "signature_form");
    assert_eq!(passkey_case(|_, _, made| made.public_key[0] = 5), Err(Invalid::PasskeyForm));
    let other = passkey(2);
    let Actor::Passkey(stranger) = &other else { unreachable!() };
    assert_eq!(
        passkey_case(|_, text, made| *made = assertion(stranger, text)),
        Err(Invalid::NotRecovery(other.id()))
    );
}

#[test]
fn a_passkeys_challenge_must_be_the_text() {
    assert_eq!(
        passkey_case(|key, _, made| *made = assertion(key, "another text")),
        Err(Invalid::PasskeyChallenge)
    );
    for json in [r#"{"type":"webauthn.get"}"#, "", "[]", r#"{"challenge":7}"#] {
        assert_eq!(
            passkey_case(|key, _, made| {
                made.client_data_json = json.into();
                sign_again(key, made);
            }),
            Err(Invalid::SignatureForm(Scheme::Passkey))
        );
    }
}

#[test]
fn both_forms_of_a_passkey_signature_count_as_one() {
    let key = passkey(1);
    let mut inbox = Inbox::opened_by(&key);
    let mut update = inbox.next(&[Act::Recover { by: &key, to: &key }]);
    inbox.submit(&update).unwrap();
    let Some(signature::Signature::Passkey(made)) = &mut recovery_signature(&mut update).signature else {
        unreachable!()
    };
    let parsed = p256::ecdsa::Signature::from_der(&made.signature).unwrap();
    let (r, s) = parsed.split_scalars();
    let turned = p256::ecdsa::Signature::from_scalars(r, -s).unwrap();
    made.signature = turned.to_der().as_bytes().to_vec();
    assert_eq!(inbox.submit(&update), Err(Invalid::SignatureReplayed));
}
