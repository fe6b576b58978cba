//! The stored form of a state.

use highwater_identity::AssociationState;

use crate::actors::{Act, Actor, Inbox, installation, passkey, wallet};

/// A state with a member of every kind, from fixed keys and deterministic signatures.
fn state() -> AssociationState {
    let (owner, phone, key) = (wallet(1), installation(1), passkey(1));
    let mut inbox = Inbox::opened_by(&owner);
    inbox.act(&[Act::Add { by: &owner, new: &phone }]).unwrap();
    inbox.act(&[Act::Add { by: &phone, new: &key }]).unwrap();
    inbox.act(&[Act::Recover { by: &owner, to: &key }]).unwrap();
    inbox.state
}

#[test]
fn the_encoding_of_a_state_is_pinned() {
    let bytes = postcard::to_stdvec(&state()).unwrap();
    let lines: Vec<String> = bytes.chunks(32).map(hex::encode).collect();
    insta::assert_snapshot!("state", lines.join("\n"));
}

#[test]
fn a_state_survives_its_encoding() {
    let state = state();
    let bytes = postcard::to_stdvec(&state).unwrap();
    assert_eq!(postcard::from_bytes::<AssociationState>(&bytes).unwrap(), state);
}

#[test]
fn a_damaged_passkey_is_refused_when_read() {
    let mut bytes = postcard::to_stdvec(&state()).unwrap();
    let Actor::Passkey(key) = passkey(1) else { unreachable!() };
    let spelt = crate::actors::passkey_bytes(&key);
    let at = bytes.windows(spelt.len()).position(|window| window == spelt).unwrap();
    bytes[at] = 7;
    assert!(postcard::from_bytes::<AssociationState>(&bytes).is_err());
}
