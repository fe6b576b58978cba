//! Signatures that only a chain can judge.

use highwater_identity::{
    Address, AssociationState, Invalid, LogEntry, MemberIdentifier, Scheme, Verdicts, VerificationRequest,
    fold, inbox_id, required_verifications,
    sign::{LocalWallet, registration},
};
use highwater_wire::{
    SequenceId,
    proto::associations::{IdentityUpdate, Signature, SmartContractWalletSignature, signature},
};
use sha3::Digest as _;

use crate::actors::{Act, Inbox, installation, wallet};

const BLOCK: u64 = 21_000_000;

fn contract() -> Address {
    Address::from_bytes([0xc0; 20])
}

fn signed_by(account_id: &str, block_number: u64, bytes: &[u8]) -> Signature {
    Signature {
        signature: Some(signature::Signature::Erc6492(SmartContractWalletSignature {
            account_id: account_id.into(),
            block_number,
            signature: bytes.into(),
        })),
    }
}

/// A contract wallet opens an inbox, and its signature under some account id.
fn opening(account_id: &str, bytes: &[u8]) -> (IdentityUpdate, String) {
    let phone = installation(1);
    let MemberIdentifier::Installation(key) = phone.id() else { unreachable!() };
    let registration = registration(contract(), 0, key, 1_000_000_000);
    let text = registration.text().to_owned();
    (registration.finish(signed_by(account_id, BLOCK, bytes), phone.sign(&text)), text)
}

fn apply(update: &IdentityUpdate, verdicts: &Verdicts) -> Result<AssociationState, Invalid> {
    let inbox = inbox_id(&contract().to_string(), 0);
    AssociationState::apply(None, inbox, update, verdicts)
}

#[test]
fn a_verdict_is_asked_for_once_and_decides() {
    let account = format!("eip155:1:{}", contract());
    let (update, text) = opening(&account, b"opaque");
    let required = required_verifications(std::slice::from_ref(&update)).unwrap();
    let mut message = sha3::Keccak256::new();
    message.update(format!("\x19Ethereum Signed Message:\n{}{text}", text.len()));
    let request = VerificationRequest {
        account_id: account,
        block_number: BLOCK,
        hash: message.finalize().into(),
        signature: b"opaque".to_vec(),
    };
    assert_eq!(required, std::slice::from_ref(&request));

    let unknown = apply(&update, &Verdicts::default()).unwrap_err();
    assert_eq!(unknown, Invalid::Unverified(request.clone()));
    assert!(unknown.is_retryable() && !unknown.is_signature());

    let refuted = apply(&update, &Verdicts::from_iter([(request.clone(), false)])).unwrap_err();
    assert_eq!(refuted, Invalid::SignatureInvalid(Scheme::Erc6492));
    assert!(!refuted.is_retryable());

    let state = apply(&update, &Verdicts::from_iter([(request, true)])).unwrap();
    assert_eq!(*state.recovery(), MemberIdentifier::Ethereum(contract()));
    assert_eq!(state.installations().len(), 1);
}

#[test]
fn a_verdict_on_another_question_is_none() {
    let account = format!("eip155:1:{}", contract());
    let (update, _) = opening(&account, b"opaque");
    let asked = required_verifications(std::slice::from_ref(&update)).unwrap().remove(0);
    for other in [
        VerificationRequest { block_number: BLOCK + 1, ..asked.clone() },
        VerificationRequest { hash: [0; 32], ..asked.clone() },
        VerificationRequest { signature: b"other".to_vec(), ..asked.clone() },
        VerificationRequest { account_id: format!("eip155:8453:{}", contract()), ..asked.clone() },
    ] {
        let answer = apply(&update, &Verdicts::from_iter([(other, true)]));
        assert_eq!(answer, Err(Invalid::Unverified(asked.clone())));
    }
}

#[test]
fn an_account_must_be_an_eip155_one_with_a_lowercase_address() {
    let address = contract().to_string();
    for (account, reason) in [
        (address.clone(), Invalid::AccountForm),
        (format!("eip155:{address}"), Invalid::AccountForm),
        (format!("eip155::{address}"), Invalid::AccountForm),
        (format!("eip155:0x1:{address}"), Invalid::AccountForm),
        (format!("cosmos:1:{address}"), Invalid::AccountForm),
        (format!("eip155:1:{}", address.to_uppercase()), Invalid::AddressForm),
        (format!("eip155:1:{address}:2"), Invalid::AddressForm),
    ] {
        let (update, _) = opening(&account, b"opaque");
        assert_eq!(required_verifications(std::slice::from_ref(&update)), Err(reason.clone()));
        assert_eq!(apply(&update, &Verdicts::default()), Err(reason));
    }
}

#[test]
fn a_contract_wallet_speaks_for_its_own_address_only() {
    let other = Address::from_bytes([0xc1; 20]);
    let (update, _) = opening(&format!("eip155:1:{other}"), b"opaque");
    let required = required_verifications(std::slice::from_ref(&update)).unwrap();
    let verdicts = required.into_iter().map(|request| (request, true)).collect();
    assert_eq!(apply(&update, &verdicts).unwrap_err().code(), "wrong_signer");
}

#[test]
fn a_contract_signature_is_spent_at_whatever_block() {
    let account = format!("eip155:1:{}", contract());
    let (update, _) = opening(&account, b"opaque");
    let yes = |updates: &[IdentityUpdate]| -> Verdicts {
        required_verifications(updates).unwrap().into_iter().map(|it| (it, true)).collect()
    };
    let state = apply(&update, &yes(std::slice::from_ref(&update))).unwrap();

    // The same bytes for another action, as a wallet that takes anything would allow.
    let inbox = state.inbox_id();
    let revocation = highwater_identity::sign::revoke(inbox, &[contract().into()], 0).unwrap();
    let replay = revocation.finish(signed_by(&account, BLOCK + 7, b"opaque"));
    assert_eq!(
        AssociationState::apply(Some(&state), inbox, &replay, &yes(std::slice::from_ref(&replay))),
        Err(Invalid::SignatureReplayed)
    );
}

#[test]
fn a_plain_signature_inside_a_contract_signature_is_canonical_too() {
    let account = format!("eip155:1:{}", contract());
    let key = LocalWallet::from_bytes(&[9; 32]).unwrap();
    let (_, text) = opening(&account, b"");
    let Some(signature::Signature::Erc191(inner)) = key.sign_erc191(&text).signature else { unreachable!() };
    let (update, _) = opening(&account, &inner.bytes);
    let mut other_v = inner.bytes.clone();
    other_v[64] -= 27;
    let (respelt, _) = opening(&account, &other_v);
    let verdicts: Verdicts = required_verifications(&[update.clone(), respelt.clone()])
        .unwrap()
        .into_iter()
        .map(|request| (request, true))
        .collect();
    let (one, two) = (apply(&update, &verdicts).unwrap(), apply(&respelt, &verdicts).unwrap());
    assert_eq!(one, two);
}

#[test]
fn only_contract_signatures_need_verification() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let update = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    assert_eq!(required_verifications(&[update]), Ok(vec![]));
}

#[test]
fn a_log_that_awaits_a_verdict_is_retryable_and_says_where() {
    let (update, _) = opening(&format!("eip155:1:{}", contract()), b"opaque");
    let at = SequenceId::try_from(5u64).unwrap();
    let inbox = inbox_id(&contract().to_string(), 0);
    let log = [LogEntry { sequence_id: at, update }];
    let error = fold(inbox, &log, &Verdicts::default()).unwrap_err();
    assert_eq!(error.at, at);
    assert!(error.is_retryable());
}
