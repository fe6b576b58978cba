//! The byte forms of the group's components, written down once more by somebody who doesn't know the client's.

use std::collections::BTreeMap;

use highwater_wire::InboxId;
use highwater_wire::proto::contents::{GroupMembershipEntry, group_membership_entry};
use prost::Message as _;

use crate::{Foreign, RawUpdate};

/// The component of the membership: a map from inbox to entry.
pub const MEMBERSHIP: u16 = 0x8003;
/// The component of the super admins: a set of inboxes.
pub const SUPER_ADMINS: u16 = 0x8001;

type Key = [u8; 33];

fn key(inbox: InboxId) -> Key {
    let mut key = [0; 33];
    key[1..].copy_from_slice(inbox.as_bytes());
    key
}

/// Bytes behind their length, of one or two bytes.
pub fn opaque(bytes: &[u8]) -> Vec<u8> {
    let length = match u16::try_from(bytes.len()).expect("short") {
        short @ 0..0x40 => vec![short as u8],
        long => (long | 0x4000).to_be_bytes().to_vec(),
    };
    [length, bytes.to_vec()].concat()
}

/// Takes bytes behind a length off the front.
fn take<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let (length, width) = match bytes[0] >> 6 {
        0 => (usize::from(bytes[0]), 1),
        _ => (usize::from(u16::from_be_bytes([bytes[0] & 0x3f, bytes[1]])), 2),
    };
    let taken = &bytes[width..width + length];
    *bytes = &bytes[width + length..];
    taken
}

/// A sorted set of inboxes.
pub fn set_of(mut inboxes: Vec<InboxId>) -> Vec<u8> {
    inboxes.sort();
    opaque(&inboxes.into_iter().flat_map(key).collect::<Vec<_>>())
}

fn entry(sequence_id: u64) -> Vec<u8> {
    let v1 = group_membership_entry::V1 { sequence_id, failed_installations: Vec::new() };
    GroupMembershipEntry { version: Some(group_membership_entry::Version::V1(v1)) }.encode_to_vec()
}

/// The update that sets entries to these identity updates, or takes them away.
pub fn membership(member: &mut Foreign, changes: &[(InboxId, Option<u64>)]) -> RawUpdate {
    let dictionary = member.group().extensions().app_data_dictionary().expect("a dictionary").dictionary();
    let mut stored = dictionary.get(&MEMBERSHIP).expect("a membership");
    let mut items = take(&mut stored);
    let mut entries: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    while !items.is_empty() {
        let found: Key = items[..33].try_into().expect("33 bytes");
        items = &items[33..];
        entries.insert(found, take(&mut items).to_vec());
    }
    let mut mutations = Vec::new();
    for (inbox, sequence_id) in changes {
        let key = key(*inbox);
        let (code, value) = match sequence_id {
            Some(id) if entries.contains_key(&key) => (1, Some(entry(*id))),
            Some(id) => (0, Some(entry(*id))),
            None => (2, None),
        };
        mutations.push(code);
        mutations.extend(key);
        mutations.extend(value.iter().flat_map(|value| opaque(value)));
        match value {
            Some(value) => entries.insert(key, value),
            None => entries.remove(&key),
        };
    }
    let items: Vec<u8> =
        entries.into_iter().flat_map(|(key, value)| [key.to_vec(), opaque(&value)].concat()).collect();
    (MEMBERSHIP, Some(opaque(&mutations)), Some(opaque(&items)))
}
