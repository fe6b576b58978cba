//! Updates made by the `sign` module.

use highwater_identity::{
    AssociationState, Invalid, MemberIdentifier, Verdicts, inbox_id,
    sign::{
        LocalWallet, add_installation, add_member, change_recovery, finished_installation_signature,
        installation_signature_context, registration, revoke, revoke_installation,
    },
    signature_text,
};
use highwater_wire::InstallationKey;
use sha2::Digest as _;

use crate::actors::{Actor, installation};

fn installation_key(actor: &Actor) -> InstallationKey {
    match actor.id() {
        MemberIdentifier::Installation(key) => key,
        _ => panic!("not an installation"),
    }
}

#[test]
fn every_builder_makes_updates_that_apply() {
    let (owner, rescue) = (LocalWallet::generate(), LocalWallet::generate());
    let (phone, laptop) = (installation(1), installation(2));
    let none = Verdicts::default();

    let unsigned = registration(owner.address(), 3, installation_key(&phone), 1_000_000_000);
    let inbox = unsigned.inbox_id();
    assert_eq!(inbox, inbox_id(&owner.address().to_string(), 3));
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(owner.sign_erc191(&text), phone.sign(&text));
    assert_eq!(signature_text(&update).unwrap(), text);
    assert_eq!(update.actions.len(), 2);
    let state = AssociationState::apply(None, inbox, &update, &none).unwrap();
    assert!(state.has_installation(installation_key(&phone)));

    let unsigned = add_installation(inbox, installation_key(&laptop), 2_000_000_000);
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(owner.sign_erc191(&text), laptop.sign(&text));
    let state = AssociationState::apply(Some(&state), inbox, &update, &none).unwrap();

    let unsigned = add_member(inbox, &rescue.address().into(), 3_000_000_000);
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(laptop.sign(&text), rescue.sign_erc191(&text));
    let state = AssociationState::apply(Some(&state), inbox, &update, &none).unwrap();
    assert_eq!(state.members().len(), 4);

    let unsigned = change_recovery(inbox, rescue.address(), 4_000_000_000);
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(owner.sign_erc191(&text));
    let state = AssociationState::apply(Some(&state), inbox, &update, &none).unwrap();

    let unsigned = revoke_installation(inbox, installation_key(&laptop), 5_000_000_000);
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(rescue.sign_erc191(&text));
    let state = AssociationState::apply(Some(&state), inbox, &update, &none).unwrap();
    assert_eq!(state.installations(), [installation_key(&phone)].into());

    let gone = [rescue.address().into(), owner.address().into()];
    let unsigned = revoke(inbox, &gone, 6_000_000_000).unwrap();
    let text = unsigned.text().to_owned();
    let update = unsigned.finish(rescue.sign_erc191(&text));
    let state = AssociationState::apply(Some(&state), inbox, &update, &none).unwrap();
    assert!(state.members().is_empty());
    assert_eq!(state.entries(), 6);
}

#[test]
fn nothing_to_revoke_is_nothing_to_sign() {
    let inbox = inbox_id("x", 0);
    assert_eq!(revoke(inbox, &[], 0).unwrap_err(), Invalid::NoActions);
}

#[test]
fn a_signature_made_elsewhere_can_be_put_in() {
    let owner = LocalWallet::generate();
    let phone = installation(1);
    let Actor::Installation(key) = &phone else { unreachable!() };
    let unsigned = registration(owner.address(), 0, installation_key(&phone), 0);
    let inbox = unsigned.inbox_id();
    let text = unsigned.text().to_owned();
    let made = key
        .sign_prehashed(sha2::Sha512::new().chain_update(&text), Some(installation_signature_context()))
        .unwrap();
    let signature = finished_installation_signature(installation_key(&phone), made.to_bytes());
    let update = unsigned.finish(owner.sign_erc191(&text), signature);
    AssociationState::apply(None, inbox, &update, &Verdicts::default()).unwrap();
}

#[test]
fn a_local_wallet_is_its_key_and_shows_only_its_address() {
    let wallet = LocalWallet::generate();
    let again = LocalWallet::from_bytes(&wallet.to_bytes()).unwrap();
    assert_eq!(wallet.address(), again.address());
    assert!(!format!("{wallet:?}").contains(&hex::encode(&wallet.to_bytes()[..4])));
    assert!(LocalWallet::from_bytes(&[0; 32]).is_none());
    assert!(LocalWallet::from_bytes(&[0xff; 32]).is_none());
}
