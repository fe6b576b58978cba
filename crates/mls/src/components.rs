//! The state of a group as its members agree on it: the components of the MLS app data dictionary.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::proto::contents::{GroupMembershipEntry, group_membership_entry};
use highwater_wire::{InboxId, InstallationKey};
use openmls::extensions::AppDataDictionary;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::codec::{Collection, Key, Malformed, Mutation, inbox_key, key_inbox};

/// Longest name of a group, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 100;
/// Longest description of a group, in bytes of UTF-8.
pub const MAX_DESCRIPTION_BYTES: usize = 1000;

/// Component ids.
pub(crate) mod id {
    pub(crate) const SUPER_ADMINS: u16 = 0x8001;
    pub(crate) const ADMINS: u16 = 0x8002;
    pub(crate) const MEMBERSHIP: u16 = 0x8003;
    pub(crate) const NAME: u16 = 0x8004;
    pub(crate) const DESCRIPTION: u16 = 0x8005;
    pub(crate) const DISAPPEAR_FROM: u16 = 0x8007;
    pub(crate) const DISAPPEAR_IN: u16 = 0x8008;
    pub(crate) const MINIMUM_VERSION: u16 = 0x800a;
    pub(crate) const CONVERSATION: u16 = 0xbfff;
    pub(crate) const CREATOR: u16 = 0xbffe;
    pub(crate) const DM_PAIR: u16 = 0xbffd;
}

/// How a component is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The payload of an update is the whole new value.
    Scalar,
    /// The payload of an update is a list of mutations.
    Collection(Collection),
    /// It never changes.
    WriteOnce,
}

pub(crate) fn shape(component: u16) -> Option<Shape> {
    Some(match component {
        id::SUPER_ADMINS | id::ADMINS => Shape::Collection(Collection::Set),
        id::MEMBERSHIP => Shape::Collection(Collection::Map),
        id::NAME | id::DESCRIPTION | id::DISAPPEAR_FROM | id::DISAPPEAR_IN | id::MINIMUM_VERSION => {
            Shape::Scalar
        }
        id::CONVERSATION | id::CREATOR | id::DM_PAIR => Shape::WriteOnce,
        _ => return None,
    })
}

/// What a conversation is. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConversationType {
    /// Any number of inboxes, with admins.
    Group,
    /// Exactly two inboxes, for good.
    Dm,
}

/// What a group says about one member inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipEntry {
    /// The identity update whose state decides which installations belong to the inbox. 0 only for the creator, until
    /// the first commit.
    pub sequence_id: u64,
    /// Installations of that state that could not be added.
    pub failed: BTreeSet<InstallationKey>,
}

/// The components of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components {
    /// May change the admin sets and the minimum version, and all that admins may.
    pub super_admins: BTreeSet<InboxId>,
    /// May remove members.
    pub admins: BTreeSet<InboxId>,
    /// The member inboxes.
    pub membership: BTreeMap<InboxId, MembershipEntry>,
    /// The name, empty for none; at most [`MAX_NAME_BYTES`].
    pub name: String,
    /// The description, empty for none; at most [`MAX_DESCRIPTION_BYTES`].
    pub description: String,
    /// Messages sent at or after this time disappear, in ns since the epoch.
    pub disappear_from: Option<i64>,
    /// How long after sending they disappear, in ns.
    pub disappear_in: Option<i64>,
    /// The oldest version of a client that may take part, as semantic version.
    pub minimum_version: Option<String>,
    /// Group or DM.
    pub conversation: ConversationType,
    /// Who created the conversation.
    pub creator: InboxId,
    /// The two inboxes of a DM.
    pub dm_pair: Option<BTreeSet<InboxId>>,
}

impl Components {
    /// A group without members, admins, name or settings.
    pub fn empty(creator: InboxId) -> Self {
        Self {
            super_admins: BTreeSet::new(),
            admins: BTreeSet::new(),
            membership: BTreeMap::new(),
            name: String::new(),
            description: String::new(),
            disappear_from: None,
            disappear_in: None,
            minimum_version: None,
            conversation: ConversationType::Group,
            creator,
            dm_pair: None,
        }
    }

    /// When a message sent at `sent_ns` disappears under the settings as they are, in ns since the epoch.
    pub fn expiry(&self, sent_ns: i64) -> Option<i64> {
        let (from, within) = (self.disappear_from?, self.disappear_in?);
        (within > 0 && sent_ns >= from).then(|| sent_ns.saturating_add(within))
    }

    /// Reads a dictionary. `Err` holds the component that is missing or isn't what its table demands.
    pub(crate) fn decode(dictionary: &AppDataDictionary) -> Result<Self, u16> {
        let text = |component| {
            let bytes = dictionary.get(&component).unwrap_or_default();
            String::from_utf8(bytes.to_vec()).map_err(|_| component)
        };
        let time = |component| {
            let bytes = dictionary.get(&component);
            bytes.map(|bytes| bytes.try_into().map(i64::from_be_bytes).map_err(|_| component)).transpose()
        };
        let inboxes = |component| {
            let bytes = dictionary.get(&component);
            bytes.map(|bytes| inbox_set(bytes).map_err(|Malformed| component)).transpose()
        };
        let conversation = match dictionary.get(&id::CONVERSATION) {
            Some([0, 0, 0, 1]) => ConversationType::Group,
            Some([0, 0, 0, 2]) => ConversationType::Dm,
            _ => return Err(id::CONVERSATION),
        };
        let creator: &Key =
            dictionary.get(&id::CREATOR).and_then(|bytes| bytes.try_into().ok()).ok_or(id::CREATOR)?;
        let dm_pair = inboxes(id::DM_PAIR)?;
        let pair_size = dm_pair.as_ref().map(BTreeSet::len);
        if pair_size != (conversation == ConversationType::Dm).then_some(2) {
            return Err(id::DM_PAIR);
        }
        let membership = dictionary
            .get(&id::MEMBERSHIP)
            .map(|bytes| membership(bytes).map_err(|Malformed| id::MEMBERSHIP))
            .transpose()?;
        let components = Self {
            super_admins: inboxes(id::SUPER_ADMINS)?.unwrap_or_default(),
            admins: inboxes(id::ADMINS)?.unwrap_or_default(),
            membership: membership.unwrap_or_default(),
            name: text(id::NAME)?,
            description: text(id::DESCRIPTION)?,
            disappear_from: time(id::DISAPPEAR_FROM)?,
            disappear_in: time(id::DISAPPEAR_IN)?,
            minimum_version: match dictionary.get(&id::MINIMUM_VERSION) {
                Some([]) | None => None,
                Some(_) => Some(text(id::MINIMUM_VERSION)?),
            },
            conversation,
            creator: key_inbox(creator).map_err(|Malformed| id::CREATOR)?,
            dm_pair,
        };
        components.bounds()?;
        Ok(components)
    }

    /// What no byte form can express. `Err` holds the component at fault.
    pub(crate) fn bounds(&self) -> Result<(), u16> {
        if self.name.len() > MAX_NAME_BYTES {
            return Err(id::NAME);
        }
        if self.description.len() > MAX_DESCRIPTION_BYTES {
            return Err(id::DESCRIPTION);
        }
        match &self.minimum_version {
            Some(version) if semver::Version::parse(version).is_err() => Err(id::MINIMUM_VERSION),
            _ => Ok(()),
        }
    }

    /// The dictionary of a group in its first epoch.
    pub(crate) fn encode(&self) -> AppDataDictionary {
        let mut dictionary = AppDataDictionary::new();
        let mut put = |component, value| drop(dictionary.insert(component, value));
        for (component, collection, items) in self.collections() {
            put(component, collection.write(&items));
        }
        for (component, value) in self.scalars() {
            if let Some(value) = value {
                put(component, value);
            }
        }
        put(id::CREATOR, inbox_key(self.creator).to_vec());
        let conversation: u32 = match self.conversation {
            ConversationType::Group => 1,
            ConversationType::Dm => 2,
        };
        put(id::CONVERSATION, conversation.to_be_bytes().to_vec());
        if let Some(pair) = &self.dm_pair {
            put(id::DM_PAIR, Collection::Set.write(&keys(pair)));
        }
        dictionary
    }

    /// The payloads of the updates that lead from here to `after`; `None` removes the component. Write-once
    /// components are no part of it.
    pub(crate) fn updates(&self, after: &Self) -> Vec<(u16, Option<Vec<u8>>)> {
        let mut updates = Vec::new();
        for ((component, collection, old), (_, _, new)) in
            self.collections().into_iter().zip(after.collections())
        {
            let mutations = mutations(&old, &new);
            if !mutations.is_empty() {
                updates.push((component, Some(collection.write_mutations(&mutations))));
            }
        }
        for ((component, old), (_, new)) in self.scalars().into_iter().zip(after.scalars()) {
            if old != new {
                updates.push((component, new));
            }
        }
        updates
    }

    fn collections(&self) -> [(u16, Collection, BTreeMap<Key, Vec<u8>>); 3] {
        let entries = self.membership.iter();
        let membership = entries.map(|(inbox, entry)| (inbox_key(*inbox), encode_entry(entry)));
        [
            (id::SUPER_ADMINS, Collection::Set, keys(&self.super_admins)),
            (id::ADMINS, Collection::Set, keys(&self.admins)),
            (id::MEMBERSHIP, Collection::Map, membership.collect()),
        ]
    }

    fn scalars(&self) -> [(u16, Option<Vec<u8>>); 5] {
        let text = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
        let time = |time: Option<i64>| time.map(|time| time.to_be_bytes().to_vec());
        [
            (id::NAME, text(&self.name)),
            (id::DESCRIPTION, text(&self.description)),
            (id::DISAPPEAR_FROM, time(self.disappear_from)),
            (id::DISAPPEAR_IN, time(self.disappear_in)),
            (id::MINIMUM_VERSION, self.minimum_version.as_deref().and_then(text)),
        ]
    }
}

fn keys(inboxes: &BTreeSet<InboxId>) -> BTreeMap<Key, Vec<u8>> {
    inboxes.iter().map(|inbox| (inbox_key(*inbox), Vec::new())).collect()
}

fn mutations(old: &BTreeMap<Key, Vec<u8>>, new: &BTreeMap<Key, Vec<u8>>) -> Vec<Mutation> {
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| Mutation::Delete(*key));
    let set = new.iter().filter_map(|(key, value)| match old.get(key) {
        None => Some(Mutation::Insert(*key, value.clone())),
        Some(before) if before != value => Some(Mutation::Update(*key, value.clone())),
        Some(_) => None,
    });
    gone.chain(set).collect()
}

fn inbox_set(bytes: &[u8]) -> Result<BTreeSet<InboxId>, Malformed> {
    Collection::Set.read(bytes)?.iter().map(|(key, _)| key_inbox(key)).collect()
}

fn membership(bytes: &[u8]) -> Result<BTreeMap<InboxId, MembershipEntry>, Malformed> {
    let items = Collection::Map.read(bytes)?;
    items.iter().map(|(key, value)| Ok((key_inbox(key)?, decode_entry(value)?))).collect()
}

fn encode_entry(entry: &MembershipEntry) -> Vec<u8> {
    let failed_installations = entry.failed.iter().map(|key| key.as_bytes().to_vec()).collect();
    let v1 = group_membership_entry::V1 { sequence_id: entry.sequence_id, failed_installations };
    GroupMembershipEntry { version: Some(group_membership_entry::Version::V1(v1)) }.encode_to_vec()
}

fn decode_entry(bytes: &[u8]) -> Result<MembershipEntry, Malformed> {
    let entry = GroupMembershipEntry::decode(bytes).map_err(|_| Malformed)?;
    let Some(group_membership_entry::Version::V1(v1)) = entry.version else {
        return Err(Malformed);
    };
    let failed = v1.failed_installations.iter();
    let failed = failed.map(|key| InstallationKey::try_from(key.as_slice()).map_err(|_| Malformed));
    Ok(MembershipEntry { sequence_id: v1.sequence_id, failed: failed.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests;
