//! Revoking members, and who may.

use highwater_identity::Invalid;

use crate::actors::{Act, Inbox, installation, passkey, wallet};

#[test]
fn only_the_recovery_identifier_revokes() {
    let (owner, second, phone) = (wallet(1), wallet(2), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &second }]).unwrap();
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    for by in [&second, &phone, &wallet(3)] {
        assert_eq!(inbox.act(&[Act::Revoke { by, whom: &phone }]), Err(Invalid::NotRecovery(by.id())));
    }
    inbox.act(&[Act::Revoke { by: &owner, whom: &phone }]).unwrap();
    assert!(!inbox.has(&phone) && inbox.has(&second));
}

#[test]
fn revoking_a_member_takes_the_installations_it_added_and_nothing_else() {
    let (owner, second, third) = (wallet(1), wallet(2), wallet(3));
    let (phone, laptop) = (installation(1), installation(2));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &second }]).unwrap();
    inbox.act(&[Act::Add { by: &second, new: &phone }]).unwrap();
    inbox.act(&[Act::Add { by: &second, new: &third }]).unwrap();
    inbox.act(&[Act::Add { by: &third, new: &laptop }]).unwrap();
    inbox.act(&[Act::Revoke { by: &owner, whom: &second }]).unwrap();
    assert!(!inbox.has(&second) && !inbox.has(&phone));
    assert!(inbox.has(&owner) && inbox.has(&third) && inbox.has(&laptop));
}

#[test]
fn revoking_someone_who_is_no_member_changes_no_member() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Revoke { by: &owner, whom: &phone }]).unwrap();
    assert_eq!(inbox.state.members().len(), 1);
}

#[test]
fn the_recovery_identifier_may_leave_the_inbox_and_still_recover_it() {
    let (owner, second) = (wallet(1), wallet(2));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &second }]).unwrap();
    inbox.act(&[Act::Revoke { by: &owner, whom: &owner }]).unwrap();
    assert!(!inbox.has(&owner));
    assert_eq!(*inbox.state.recovery(), owner.id());
    inbox.act(&[Act::Revoke { by: &owner, whom: &second }]).unwrap();
    assert!(inbox.state.members().is_empty());
}

#[test]
fn only_the_recovery_identifier_names_the_next_one() {
    let (owner, second, key) = (wallet(1), wallet(2), passkey(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &second }]).unwrap();
    assert_eq!(
        inbox.act(&[Act::Recover { by: &second, to: &second }]),
        Err(Invalid::NotRecovery(second.id()))
    );
    inbox.act(&[Act::Recover { by: &owner, to: &key }]).unwrap();
    assert_eq!(*inbox.state.recovery(), key.id());
    assert!(!inbox.has(&key));
    // The old one is an ordinary member now.
    assert_eq!(inbox.act(&[Act::Recover { by: &owner, to: &owner }]), Err(Invalid::NotRecovery(owner.id())));
    inbox.act(&[Act::Revoke { by: &key, whom: &owner }]).unwrap();
    inbox.act(&[Act::Recover { by: &key, to: &second }]).unwrap();
    assert_eq!(*inbox.state.recovery(), second.id());
}
