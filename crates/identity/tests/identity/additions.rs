//! Adding members.

use highwater_identity::{Invalid, MemberIdentifier};
use highwater_wire::proto::associations::identity_action::Kind;

use crate::actors::{Act, Actor, Inbox, installation, passkey, wallet};

#[test]
fn a_member_adds_members_of_every_kind_but_an_installation_adds_no_installation() {
    let (owner, phone, laptop) = (wallet(1), installation(1), installation(2));
    let (second, key) = (wallet(2), passkey(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    inbox.act(&[Act::Add { by: &phone, new: &second }]).unwrap();
    inbox.act(&[Act::Add { by: &second, new: &key }]).unwrap();
    assert_eq!(
        inbox.act(&[Act::Add { by: &phone, new: &laptop }]),
        Err(Invalid::InstallationAddsInstallation)
    );
    inbox.act(&[Act::Add { by: &key, new: &laptop }]).unwrap();
    assert_eq!(inbox.state.members().len(), 5);
    assert_eq!(inbox.state.members()[&laptop.id()].added_by, Some(key.id()));
    assert_eq!(inbox.state.installations().len(), 2);
    for actor in [&phone, &laptop] {
        let MemberIdentifier::Installation(installation) = actor.id() else { unreachable!() };
        assert!(inbox.state.has_installation(installation));
    }
}

#[test]
fn only_a_current_member_adds() {
    let (owner, stranger, phone) = (wallet(1), wallet(2), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    assert_eq!(
        inbox.act(&[Act::Add { by: &stranger, new: &phone }]),
        Err(Invalid::NotAMember(stranger.id()))
    );
    // Nor does the new member vouch for itself.
    assert_eq!(
        inbox.act(&[Act::Add { by: &stranger, new: &stranger }]),
        Err(Invalid::NotAMember(stranger.id()))
    );
    inbox.act(&[Act::Add { by: &owner, new: &stranger }]).unwrap();
    inbox.act(&[Act::Revoke { by: &owner, whom: &stranger }]).unwrap();
    assert_eq!(
        inbox.act(&[Act::Add { by: &stranger, new: &phone }]),
        Err(Invalid::NotAMember(stranger.id()))
    );
}

#[test]
fn the_new_member_must_sign_too() {
    let (owner, phone, other) = (wallet(1), installation(1), installation(2));
    let mut inbox = Inbox::opened_by(&owner);
    let mut update = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    let text = highwater_identity::signature_text(&update).unwrap();
    for (signature, reason) in [
        (None, Invalid::Missing("signature")),
        (Some(other.sign(&text)), Invalid::WrongSigner { expected: phone.id(), found: other.id() }),
        (Some(owner.sign(&text)), Invalid::WrongSigner { expected: phone.id(), found: owner.id() }),
    ] {
        let Some(Kind::Add(add)) = &mut update.actions[0].kind else { unreachable!() };
        add.new_member_signature = signature;
        assert_eq!(inbox.submit(&update), Err(reason));
    }
    let Some(Kind::Add(add)) = &mut update.actions[0].kind else { unreachable!() };
    add.new_member_signature = Some(phone.sign(&text));
    add.existing_member_signature = None;
    assert_eq!(inbox.submit(&update), Err(Invalid::Missing("signature")));
}

#[test]
fn no_current_member_is_added_again_but_a_former_one_may_be() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    assert_eq!(inbox.act(&[Act::Add { by: &owner, new: &owner }]), Err(Invalid::AlreadyMember(owner.id())));
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    assert_eq!(inbox.act(&[Act::Add { by: &owner, new: &phone }]), Err(Invalid::AlreadyMember(phone.id())));
    inbox.act(&[Act::Revoke { by: &owner, whom: &phone }]).unwrap();
    assert!(!inbox.has(&phone));
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    assert!(inbox.has(&phone));
}

#[test]
fn a_recovery_identifier_that_is_no_member_adds_no_one() {
    let (owner, rescue, phone) = (wallet(1), wallet(2), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Recover { by: &owner, to: &rescue }]).unwrap();
    assert_eq!(inbox.act(&[Act::Add { by: &rescue, new: &phone }]), Err(Invalid::NotAMember(rescue.id())));
}

#[test]
fn a_relying_party_is_kept_with_its_passkey() {
    let (owner, key) = (wallet(1), passkey(1));
    let mut inbox = Inbox::opened_by(&owner);
    let mut update = inbox.next(&[Act::Add { by: &owner, new: &key }]);
    let Some(Kind::Add(add)) = &mut update.actions[0].kind else { unreachable!() };
    // It isn't part of the signed text.
    add.relying_party = Some("app.example".into());
    inbox.submit(&update).unwrap();
    assert_eq!(inbox.state.members()[&key.id()].relying_party.as_deref(), Some("app.example"));
}

#[test]
fn one_passkey_in_two_spellings_is_one_member() {
    let (owner, key) = (wallet(1), passkey(1));
    let Actor::Passkey(signing) = &key else { unreachable!() };
    let compressed = signing.verifying_key().to_encoded_point(true).as_bytes().to_vec();
    let short = highwater_identity::PasskeyKey::from_sec1(&compressed).unwrap();
    assert_eq!(MemberIdentifier::Passkey { key: short.clone() }, key.id());
    assert_ne!(hex::encode(&short), key.id().text());

    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &key }]).unwrap();
    let addition = highwater_identity::sign::add_member(
        inbox.id,
        &MemberIdentifier::Passkey { key: short },
        99_000_000_000,
    );
    let again = {
        let text = addition.text().to_owned();
        addition.finish(owner.sign(&text), key.sign(&text))
    };
    assert_eq!(inbox.submit(&again), Err(Invalid::AlreadyMember(key.id())));
}
