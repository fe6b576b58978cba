//! What holds for an update as a whole.

use highwater_identity::{AssociationState, Invalid, Verdicts};
use highwater_wire::proto::associations::IdentityAction;

use crate::actors::{Act, Inbox, inbox_of, installation, update, wallet};

#[test]
fn an_update_applies_to_the_inbox_that_it_names_only() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let elsewhere = update(inbox_of(&wallet(2)), 9, &[Act::Add { by: &owner, new: &phone }]);
    assert_eq!(inbox.submit(&elsewhere), Err(Invalid::WrongInbox));
    // A state of another inbox is no base either.
    let theirs = Inbox::opened_by(&wallet(2));
    let ours = inbox.next(&[Act::Add { by: &owner, new: &phone }]);
    assert_eq!(
        AssociationState::apply(Some(&theirs.state), inbox.id, &ours, &Verdicts::default()),
        Err(Invalid::WrongInbox)
    );
    for spelling in [inbox.id.to_hex().to_uppercase(), inbox.id.to_hex()[2..].into(), "".into()] {
        let mut misspelt = ours.clone();
        misspelt.inbox_id = spelling;
        assert_eq!(inbox.submit(&misspelt), Err(Invalid::InboxIdForm));
    }
    inbox.submit(&ours).unwrap();
}

#[test]
fn an_update_needs_an_action_and_each_action_a_kind() {
    let owner = wallet(1);
    let mut inbox = Inbox::opened_by(&owner);
    let mut empty = inbox.next(&[Act::Recover { by: &owner, to: &owner }]);
    empty.actions.push(IdentityAction { kind: None });
    assert_eq!(inbox.submit(&empty), Err(Invalid::Missing("action")));
    empty.actions.clear();
    assert_eq!(inbox.submit(&empty), Err(Invalid::NoActions));
}

#[test]
fn actions_apply_in_the_order_they_stand_in() {
    let (owner, second, phone) = (wallet(1), wallet(2), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    // A member of this very update adds the next one…
    let chain = [Act::Add { by: &owner, new: &second }, Act::Add { by: &second, new: &phone }];
    // …which the other way round it can't.
    let reversed = [Act::Add { by: &second, new: &phone }, Act::Add { by: &owner, new: &second }];
    assert_eq!(inbox.act(&reversed), Err(Invalid::NotAMember(second.id())));
    inbox.act(&chain).unwrap();
    let swap = [Act::Revoke { by: &owner, whom: &phone }, Act::Add { by: &owner, new: &phone }];
    inbox.act(&swap).unwrap();
    assert_eq!(inbox.state.members()[&phone.id()].added_by, Some(owner.id()));
    let handover = [Act::Recover { by: &owner, to: &second }, Act::Revoke { by: &owner, whom: &phone }];
    assert_eq!(inbox.act(&handover), Err(Invalid::NotRecovery(owner.id())));
}

#[test]
fn all_actions_apply_or_none_does() {
    let (owner, second, phone) = (wallet(1), wallet(2), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let acts = [
        Act::Add { by: &owner, new: &second },
        Act::Recover { by: &owner, to: &second },
        Act::Add { by: &phone, new: &phone },
    ];
    assert_eq!(inbox.act(&acts), Err(Invalid::NotAMember(phone.id())));
    assert!(!inbox.has(&second));
    assert_eq!(*inbox.state.recovery(), owner.id());
    // Without the action that fails, the others apply.
    inbox.act(&acts[..2]).unwrap();
    assert_eq!(*inbox.state.recovery(), second.id());
}

#[test]
fn reasons_have_stable_codes_and_none_of_these_is_retryable() {
    let (owner, phone) = (wallet(1), installation(1));
    let mut inbox = Inbox::opened_by(&owner);
    let reason = inbox.act(&[Act::Revoke { by: &phone, whom: &owner }]).unwrap_err();
    assert_eq!(reason.code(), "not_recovery");
    assert!(!reason.is_retryable() && !reason.is_signature());
    // At most four bytes of an identifier show in a message.
    assert!(!reason.to_string().contains(&phone.id().text()[..9]));
}
