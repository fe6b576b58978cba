//! Opening an inbox.

use highwater_identity::{AssociationState, Invalid, Verdicts, inbox_id};
use highwater_wire::proto::associations::{IdentityUpdate, identity_action::Kind};

use crate::actors::{Act, Actor, Inbox, inbox_of, installation, passkey, update, wallet};

fn first(creator: &Actor, update: &IdentityUpdate) -> Result<AssociationState, Invalid> {
    AssociationState::apply(None, inbox_of(creator), update, &Verdicts::default())
}

#[test]
fn an_inbox_id_is_the_hash_of_identifier_and_decimal_nonce() {
    // sha256("0x0000000000000000000000000000000000000001" "12")
    assert_eq!(
        inbox_id("0x0000000000000000000000000000000000000001", 12).to_hex(),
        hex::encode(<sha2::Sha256 as sha2::Digest>::digest(b"0x000000000000000000000000000000000000000112"))
    );
    assert_ne!(inbox_id("a", 1), inbox_id("a", 2));
}

#[test]
fn the_creator_is_the_only_member_and_the_recovery_identifier() {
    for creator in [wallet(1), passkey(1)] {
        let inbox = Inbox::opened_by(&creator);
        assert_eq!(inbox.state.inbox_id(), inbox.id);
        assert_eq!(*inbox.state.recovery(), creator.id());
        assert_eq!(inbox.state.members().keys().collect::<Vec<_>>(), [&creator.id()]);
        assert_eq!(inbox.state.members()[&creator.id()].added_by, None);
        assert_eq!(inbox.state.entries(), 1);
        assert!(inbox.state.installations().is_empty());
    }
}

#[test]
fn the_first_action_must_create_the_inbox() {
    let (owner, phone) = (wallet(1), installation(1));
    let id = inbox_of(&owner);
    for acts in [
        vec![Act::Add { by: &owner, new: &phone }],
        vec![Act::Add { by: &owner, new: &phone }, Act::Create { by: &owner, nonce: 0 }],
        vec![Act::Revoke { by: &owner, whom: &phone }],
        vec![Act::Recover { by: &owner, to: &owner }],
    ] {
        assert_eq!(first(&owner, &update(id, 1, &acts)), Err(Invalid::NotCreated));
    }
}

#[test]
fn an_inbox_is_created_once() {
    let owner = wallet(1);
    let twice = [Act::Create { by: &owner, nonce: 0 }, Act::Create { by: &owner, nonce: 0 }];
    assert_eq!(first(&owner, &update(inbox_of(&owner), 1, &twice)), Err(Invalid::AlreadyCreated));
    let mut inbox = Inbox::opened_by(&owner);
    assert_eq!(inbox.act(&[Act::Create { by: &owner, nonce: 0 }]), Err(Invalid::AlreadyCreated));
}

#[test]
fn the_inbox_id_must_follow_from_identifier_and_nonce() {
    let owner = wallet(1);
    let other_nonce = update(inbox_of(&owner), 1, &[Act::Create { by: &owner, nonce: 7 }]);
    assert_eq!(first(&owner, &other_nonce), Err(Invalid::InboxIdNotDerived));
    let stranger = wallet(2);
    let other_owner = update(inbox_of(&owner), 1, &[Act::Create { by: &stranger, nonce: 0 }]);
    assert_eq!(first(&owner, &other_owner), Err(Invalid::InboxIdNotDerived));
}

#[test]
fn the_initial_identifier_itself_must_sign() {
    let (owner, stranger) = (wallet(1), wallet(2));
    let mut forged = update(inbox_of(&owner), 1, &[Act::Create { by: &owner, nonce: 0 }]);
    let text = highwater_identity::signature_text(&forged).unwrap();
    let Some(Kind::CreateInbox(create)) = &mut forged.actions[0].kind else { unreachable!() };
    create.initial_identifier_signature = Some(stranger.sign(&text));
    assert_eq!(
        first(&owner, &forged),
        Err(Invalid::WrongSigner { expected: owner.id(), found: stranger.id() })
    );
}
