//! Each kind of signature: accepted, tampered with, replayed.

use highwater_identity::{
    Invalid, Scheme, inbox_id,
    sign::{LocalWallet, sign_as_installation},
    signature_text,
};
use highwater_wire::proto::associations::{
    LegacyDelegatedSignature, RecoverableEcdsaSignature, Signature, identity_action::Kind, signature,
};
use sha2::Digest as _;

use crate::actors::{Act, Actor, Inbox, installation, recovery_signature, wallet};

/// secp256k1's order.
const ORDER: &str = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";

fn erc_191(bytes: Vec<u8>) -> Signature {
    Signature { signature: Some(signature::Signature::Erc191(RecoverableEcdsaSignature { bytes })) }
}

fn erc_191_bytes(signature: &Signature) -> Vec<u8> {
    match &signature.signature {
        Some(signature::Signature::Erc191(signature)) => signature.bytes.clone(),
        _ => panic!("not erc_191"),
    }
}

/// The same signature with s negated and the parity turned.
fn high_s(bytes: &[u8]) -> Vec<u8> {
    let order = hex::decode(ORDER).unwrap();
    let mut turned = bytes.to_vec();
    let mut borrow = 0i16;
    for i in (0..32).rev() {
        let difference = i16::from(order[i]) - i16::from(bytes[32 + i]) - borrow;
        borrow = i16::from(difference < 0);
        turned[32 + i] = (difference & 0xff) as u8;
    }
    turned[64] = match bytes[64] {
        27 => 28,
        28 => 27,
        other => 1 - other,
    };
    turned
}

#[test]
fn a_wallet_signs_as_ethereum_wallets_do() {
    // The worked example of web3's documentation of `accounts.sign`.
    let key = hex::decode("4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318");
    let wallet = LocalWallet::from_bytes(&key.unwrap().try_into().unwrap()).unwrap();
    assert_eq!(wallet.address().to_string(), "0x2c7536e3605d9c16a7a3d7b1898e529396a65c23");
    assert_eq!(
        hex::encode(erc_191_bytes(&wallet.sign_erc191("Some data"))),
        "b91467e570a6466aa9e9876cbcd013baba02900b8979d43fe208a4a4f339f5fd\
         6007e74cd82e037b800186422fc2da167c747ef045e5d18a5f5d4300f8e1a0291c"
    );
}

#[test]
fn every_form_of_a_wallet_signature_counts_and_all_count_as_one() {
    let (owner, next) = (wallet(1), wallet(2));
    let mut base = Inbox::opened_by(&owner);
    // The recovery identifier stays the same, so that the update would apply twice but for replay.
    let mut update = base.next(&[Act::Recover { by: &owner, to: &owner }]);
    let bytes = erc_191_bytes(recovery_signature(&mut update));
    let mut plain_v = bytes.clone();
    plain_v[64] -= 27;
    let forms = [bytes.clone(), plain_v.clone(), high_s(&bytes), high_s(&plain_v)];
    for accepted in &forms {
        let mut inbox = Inbox::opened_by(&owner);
        *recovery_signature(&mut update) = erc_191(accepted.clone());
        inbox.submit(&update).unwrap();
        for replayed in &forms {
            *recovery_signature(&mut update) = erc_191(replayed.clone());
            assert_eq!(inbox.submit(&update), Err(Invalid::SignatureReplayed));
        }
        // Signed anew it applies.
        inbox.act(&[Act::Recover { by: &owner, to: &next }]).unwrap();
    }
}

#[test]
fn a_malformed_wallet_signature_is_refused() {
    let owner = wallet(1);
    let mut inbox = Inbox::opened_by(&owner);
    let mut update = inbox.next(&[Act::Recover { by: &owner, to: &owner }]);
    let good = erc_191_bytes(recovery_signature(&mut update));
    let with_v = |v: u8| [&good[..64], &[v]].concat();
    let zero_s = [&good[..32], &[0; 32], &good[64..]].concat();
    let order_r = [&hex::decode(ORDER).unwrap(), &good[32..]].concat();
    for bytes in [
        Vec::new(),
        good[..64].to_vec(),
        [&good[..], &[0]].concat(),
        with_v(2),
        with_v(26),
        with_v(29),
        with_v(37),
        zero_s,
        order_r,
    ] {
        *recovery_signature(&mut update) = erc_191(bytes);
        let reason = inbox.submit(&update).unwrap_err();
        assert_eq!(reason, Invalid::SignatureForm(Scheme::Erc191));
        assert!(reason.is_signature());
    }
}

#[test]
fn a_changed_update_is_not_what_the_wallet_signed() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let signed = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    let mut later = signed.clone();
    later.client_timestamp_ns += 1_000_000_000;
    // Another text recovers another address: a stranger's.
    assert_eq!(inbox.submit(&later).unwrap_err().code(), "not_a_member");
    // Less than a second doesn't show in the text.
    let mut same_second = signed.clone();
    same_second.client_timestamp_ns += 999_999_999;
    inbox.submit(&same_second).unwrap();
    // So the update that was meant is the same one again.
    assert_eq!(inbox.submit(&signed), Err(Invalid::SignatureReplayed));
}

#[test]
fn an_installation_signature_is_bound_to_text_key_and_context() {
    let (owner, phone, other) = (wallet(1), installation(1), installation(2));
    let Actor::Installation(key) = &phone else { unreachable!() };
    let mut inbox = Inbox::opened_by(&owner);
    let good = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    let text = signature_text(&good).unwrap();
    let raw = |signature: Signature| match signature.signature {
        Some(signature::Signature::InstallationKey(signature)) => signature,
        _ => unreachable!(),
    };
    let mut with = |signature| {
        let mut update = good.clone();
        let Some(Kind::Add(add)) = &mut update.actions[0].kind else { unreachable!() };
        add.new_member_signature =
            Some(Signature { signature: Some(signature::Signature::InstallationKey(signature)) });
        inbox.submit(&update)
    };
    let refused = Err(Invalid::SignatureInvalid(Scheme::InstallationKey));

    assert_eq!(with(raw(phone.sign("another text"))), refused);
    let mut someone_elses = raw(other.sign(&text));
    someone_elses.public_key = raw(phone.sign(&text)).public_key;
    assert_eq!(with(someone_elses), refused);

    let prehash = || sha2::Sha512::new().chain_update(&text);
    for context in [None, Some(&b"IDENTITY UPDATE SIGNATURE "[..]), Some(b"")] {
        let mut signature = raw(phone.sign(&text));
        signature.bytes = key.sign_prehashed(prehash(), context).unwrap().to_bytes().to_vec();
        assert_eq!(with(signature), refused);
    }
    // Plain Ed25519 is another scheme.
    let mut plain = raw(phone.sign(&text));
    plain.bytes = ed25519_dalek::Signer::sign(key, text.as_bytes()).to_bytes().to_vec();
    assert_eq!(with(plain), refused);

    let mut short = raw(phone.sign(&text));
    short.bytes.pop();
    assert_eq!(with(short), Err(Invalid::SignatureForm(Scheme::InstallationKey)));
    let mut keyless = raw(phone.sign(&text));
    keyless.public_key.pop();
    assert_eq!(with(keyless), Err(Invalid::InstallationKeyForm { found: 31 }));
    // The neutral element as a key takes a signature of zero for any text, unless it is refused.
    let mut weak = raw(phone.sign(&text));
    weak.public_key = [&[1][..], &[0; 31]].concat();
    weak.bytes = [&[1][..], &[0; 63]].concat();
    assert_eq!(with(weak), refused);

    assert_eq!(sign_as_installation(&key.to_bytes(), &text), phone.sign(&text));
    with(raw(sign_as_installation(&key.to_bytes(), &text))).unwrap();
}

#[test]
fn an_installation_signature_is_spent_by_its_update() {
    let (owner, second, third) = (wallet(1), wallet(2), wallet(3));
    let phone = installation(1);
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    let addition = inbox.next(&[Act::Add { by: &phone, new: &second }]);
    inbox.submit(&addition).unwrap();
    inbox.act(&[Act::Revoke { by: &owner, whom: &second }]).unwrap();
    // Without replay protection this would bring the revoked wallet back.
    assert_eq!(inbox.submit(&addition), Err(Invalid::SignatureReplayed));
    inbox.act(&[Act::Add { by: &phone, new: &third }]).unwrap();
}

#[test]
fn one_signature_serves_all_actions_of_its_update() {
    let (owner, second, third) = (wallet(1), wallet(2), wallet(3));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &second }, Act::Add { by: &owner, new: &third }]).unwrap();
    inbox
        .act(&[Act::Revoke { by: &owner, whom: &second }, Act::Revoke { by: &owner, whom: &third }])
        .unwrap();
    assert_eq!(inbox.state.members().len(), 1);
}

#[test]
fn delegated_and_absent_signatures_are_never_accepted() {
    let owner = wallet(1);
    let mut inbox = Inbox::opened_by(&owner);
    let mut update = inbox.next(&[Act::Recover { by: &owner, to: &owner }]);
    recovery_signature(&mut update).signature =
        Some(signature::Signature::DelegatedErc191(LegacyDelegatedSignature {}));
    assert_eq!(inbox.submit(&update), Err(Invalid::DelegatedSignature));
    recovery_signature(&mut update).signature = None;
    assert_eq!(inbox.submit(&update), Err(Invalid::Missing("signature")));
}

#[test]
fn a_signature_of_one_inbox_is_no_signature_of_another() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let mut update = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    let second = inbox_id(&owner.id().text(), 1);
    update.inbox_id = second.to_hex();
    let opened = crate::actors::update(second, 1, &[Act::Create { by: &owner, nonce: 1 }]);
    let verdicts = highwater_identity::Verdicts::default();
    let state = highwater_identity::AssociationState::apply(None, second, &opened, &verdicts).unwrap();
    let moved = highwater_identity::AssociationState::apply(Some(&state), second, &update, &verdicts);
    assert_eq!(moved.unwrap_err().code(), "not_a_member");
}
