//! The byte forms are agreed with every other client, so they are pinned here as bytes.

use tls_codec::Serialize as _;

use super::*;

fn inbox(byte: u8) -> InboxId {
    InboxId::from_bytes([byte; 32])
}

fn entry(sequence_id: u64, failed: &[u8]) -> MembershipEntry {
    let failed = failed.iter().map(|byte| InstallationKey::from_bytes([*byte; 32]));
    MembershipEntry { sequence_id, failed: failed.collect() }
}

fn full() -> Components {
    Components {
        super_admins: BTreeSet::from([inbox(0x11)]),
        admins: BTreeSet::from([inbox(0x11), inbox(0x22)]),
        membership: BTreeMap::from([
            (inbox(0x11), entry(0, &[])),
            (inbox(0x22), entry(5, &[])),
            (inbox(0x33), entry(300, &[0x44])),
        ]),
        name: "name".into(),
        description: "text".into(),
        disappear_from: Some(1),
        disappear_in: Some(-2),
        minimum_version: Some("1.2.3".into()),
        conversation: ConversationType::Group,
        creator: inbox(0x11),
        dm_pair: None,
    }
}

fn id_hex(byte: &str) -> String {
    format!("00{}", byte.repeat(32))
}

#[test]
fn every_component_has_its_pinned_bytes() {
    let dictionary = full().encode();
    let bytes = |component| hex::encode(dictionary.get(&component).unwrap());
    let (a, b, c) = (id_hex("11"), id_hex("22"), id_hex("33"));
    assert_eq!(bytes(id::SUPER_ADMINS), format!("21{a}"));
    // 66 bytes need a two-byte length.
    assert_eq!(bytes(id::ADMINS), format!("4042{a}{b}"));
    let failed = "44".repeat(32);
    let membership = format!("4093{a}020a00{b}040a020805{c}270a2508ac021220{failed}");
    assert_eq!(bytes(id::MEMBERSHIP), membership);
    assert_eq!(bytes(id::NAME), hex::encode("name"));
    assert_eq!(bytes(id::DESCRIPTION), hex::encode("text"));
    assert_eq!(bytes(id::DISAPPEAR_FROM), "0000000000000001");
    assert_eq!(bytes(id::DISAPPEAR_IN), "fffffffffffffffe");
    assert_eq!(bytes(id::MINIMUM_VERSION), hex::encode("1.2.3"));
    assert_eq!(bytes(id::CONVERSATION), "00000001");
    assert_eq!(bytes(id::CREATOR), a);
    assert!(dictionary.get(&id::DM_PAIR).is_none());
}

#[test]
fn a_dm_names_its_pair() {
    let dm = Components {
        conversation: ConversationType::Dm,
        dm_pair: Some(BTreeSet::from([inbox(0x22), inbox(0x11)])),
        ..Components::empty(inbox(0x11))
    };
    let dictionary = dm.encode();
    assert_eq!(hex::encode(dictionary.get(&id::CONVERSATION).unwrap()), "00000002");
    let pair = format!("4042{}{}", id_hex("11"), id_hex("22"));
    assert_eq!(hex::encode(dictionary.get(&id::DM_PAIR).unwrap()), pair);
    assert_eq!(Components::decode(&dictionary), Ok(dm));
}

#[test]
fn the_whole_dictionary_has_its_pinned_bytes() {
    let dictionary = Components::empty(inbox(0x11)).encode();
    let bytes = hex::encode(dictionary.tls_serialize_detached().unwrap());
    let creator = id_hex("11");
    assert_eq!(bytes, format!("37800101008002010080030100bffe21{creator}bfff0400000001"));
}

#[test]
fn what_was_encoded_decodes() {
    assert_eq!(Components::decode(&full().encode()), Ok(full()));
    let empty = Components::empty(inbox(1));
    assert_eq!(Components::decode(&empty.encode()), Ok(empty));
}

#[test]
fn updates_have_their_pinned_bytes() {
    let before = full();
    let mut after = before.clone();
    after.super_admins = BTreeSet::from([inbox(0x22)]);
    after.membership.remove(&inbox(0x33));
    after.membership.insert(inbox(0x22), entry(6, &[]));
    after.membership.insert(inbox(0x55), entry(7, &[]));
    after.name = "other".into();
    after.disappear_in = None;
    let updates: BTreeMap<_, _> = before
        .updates(&after)
        .into_iter()
        .map(|(component, payload)| (component, payload.map(hex::encode)))
        .collect();
    let (a, b, c, e) = (id_hex("11"), id_hex("22"), id_hex("33"), id_hex("55"));
    let expected = BTreeMap::from([
        (id::SUPER_ADMINS, Some(format!("404401{a}00{b}"))),
        (id::MEMBERSHIP, Some(format!("407002{c}01{b}040a02080600{e}040a020807"))),
        (id::NAME, Some(hex::encode("other"))),
        (id::DISAPPEAR_IN, None),
    ]);
    assert_eq!(updates, expected);
}

#[test]
fn what_its_table_does_not_permit_is_named() {
    let broken = |component: u16, value: Option<Vec<u8>>| {
        let mut dictionary = full().encode();
        match value {
            Some(value) => drop(dictionary.insert(component, value)),
            None => drop(dictionary.remove(&component)),
        }
        Components::decode(&dictionary)
    };
    assert_eq!(broken(id::CONVERSATION, None), Err(id::CONVERSATION));
    assert_eq!(broken(id::CONVERSATION, Some(vec![0, 0, 0, 3])), Err(id::CONVERSATION));
    assert_eq!(broken(id::CREATOR, None), Err(id::CREATOR));
    assert_eq!(broken(id::CREATOR, Some(vec![1; 33])), Err(id::CREATOR));
    // A group has no pair.
    let pair = Collection::Set.write(&keys(&BTreeSet::from([inbox(1), inbox(2)])));
    assert_eq!(broken(id::DM_PAIR, Some(pair)), Err(id::DM_PAIR));
    assert_eq!(broken(id::MEMBERSHIP, Some(vec![5])), Err(id::MEMBERSHIP));
    assert_eq!(broken(id::ADMINS, Some(vec![0, 0])), Err(id::ADMINS));
    assert_eq!(broken(id::NAME, Some(vec![0xff])), Err(id::NAME));
    assert_eq!(broken(id::DISAPPEAR_FROM, Some(vec![1])), Err(id::DISAPPEAR_FROM));
    assert_eq!(broken(id::MINIMUM_VERSION, Some(b"x".to_vec())), Err(id::MINIMUM_VERSION));
    // Unknown components belong to later versions and are kept out of the way.
    assert_eq!(broken(0x8fff, Some(vec![1])), Ok(full()));
}

#[test]
fn messages_disappear_only_with_both_settings_and_from_their_time_on() {
    let mut components = Components::empty(inbox(1));
    assert_eq!(components.expiry(10), None);
    components.disappear_from = Some(10);
    assert_eq!(components.expiry(10), None);
    components.disappear_in = Some(0);
    assert_eq!(components.expiry(10), None);
    components.disappear_in = Some(5);
    assert_eq!(components.expiry(9), None);
    assert_eq!(components.expiry(10), Some(15));
    assert_eq!(components.expiry(i64::MAX), Some(i64::MAX));
}
