//! The byte forms of components: MLS variable-length prefixes, sorted sets and maps, ordered lists of mutations.
//!
//! Strict both ways. A second spelling of one value would be two group states, so a length that isn't minimal, a key
//! out of order or a trailing byte is an error.

use highwater_wire::InboxId;

/// A component's bytes don't have the form its table demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Length of an encoded inbox id: the version byte and the id.
const INBOX_BYTES: usize = 1 + InboxId::LEN;
const INBOX_VERSION: u8 = 0;

/// An encoded inbox id, as it stands in a set or as the key of a map.
pub(crate) type Key = [u8; INBOX_BYTES];

pub(crate) fn inbox_key(inbox: InboxId) -> Key {
    let mut key = [INBOX_VERSION; INBOX_BYTES];
    key[1..].copy_from_slice(inbox.as_bytes());
    key
}

pub(crate) fn key_inbox(key: &Key) -> Result<InboxId, Malformed> {
    match key.split_first() {
        Some((&INBOX_VERSION, id)) => InboxId::try_from(id).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn key(&mut self) -> Result<Key, Malformed> {
        self.take(INBOX_BYTES)?.try_into().map_err(|_| Malformed)
    }

    /// A length: two bits for the width (1, 2 or 4 bytes), then the value, in the least width that holds it.
    fn length(&mut self) -> Result<usize, Malformed> {
        let first = self.byte()?;
        let low = usize::from(first & 0x3f);
        let (value, least) = match first >> 6 {
            0 => return Ok(low),
            1 => (low << 8 | usize::from(self.byte()?), 1 << 6),
            2 => {
                let rest = self.take(3)?;
                (rest.iter().fold(low, |value, byte| value << 8 | usize::from(*byte)), 1 << 14)
            }
            _ => return Err(Malformed),
        };
        if value < least { Err(Malformed) } else { Ok(value) }
    }

    pub(crate) fn opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

pub(crate) fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..0x40 => out.push(length as u8),
        length @ 0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        length => {
            let length = u32::try_from(length).ok().filter(|length| *length < 0x4000_0000);
            let length = length.expect("a component is far shorter than 2^30 bytes");
            out.extend_from_slice(&(length | 0x8000_0000).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// Reads the items of a sorted collection; `item` returns each one's key.
pub(crate) fn sorted<T>(
    bytes: &[u8],
    mut item: impl FnMut(&mut Reader<'_>) -> Result<(Key, T), Malformed>,
) -> Result<Vec<(Key, T)>, Malformed> {
    let mut whole = Reader::new(bytes);
    let mut items = Reader::new(whole.opaque()?);
    whole.finish()?;
    let mut found: Vec<(Key, T)> = Vec::new();
    while !items.is_empty() {
        let next = item(&mut items)?;
        if found.last().is_some_and(|(last, _)| *last >= next.0) {
            return Err(Malformed);
        }
        found.push(next);
    }
    Ok(found)
}

/// One step of a collection's update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    Insert(Key, Vec<u8>),
    Update(Key, Vec<u8>),
    Delete(Key),
}

/// Whether the keys of a collection have values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    Set,
    Map,
}

impl Collection {
    pub(crate) fn read_mutations(self, payload: &[u8]) -> Result<Vec<Mutation>, Malformed> {
        let mut whole = Reader::new(payload);
        let mut list = Reader::new(whole.opaque()?);
        whole.finish()?;
        let mut mutations = Vec::new();
        while !list.is_empty() {
            mutations.push(match (self, list.byte()?) {
                (Self::Set, 0) => Mutation::Insert(list.key()?, Vec::new()),
                (Self::Set, 1) | (Self::Map, 2) => Mutation::Delete(list.key()?),
                (Self::Map, 0) => Mutation::Insert(list.key()?, list.opaque()?.to_vec()),
                (Self::Map, 1) => Mutation::Update(list.key()?, list.opaque()?.to_vec()),
                _ => return Err(Malformed),
            });
        }
        Ok(mutations)
    }

    pub(crate) fn write_mutations(self, mutations: &[Mutation]) -> Vec<u8> {
        let mut list = Vec::new();
        for mutation in mutations {
            let (code, key, value) = match (self, mutation) {
                (_, Mutation::Insert(key, value)) => (0, key, Some(value)),
                (_, Mutation::Update(key, value)) => (1, key, Some(value)),
                (Self::Set, Mutation::Delete(key)) => (1, key, None),
                (Self::Map, Mutation::Delete(key)) => (2, key, None),
            };
            list.push(code);
            list.extend_from_slice(key);
            if let (Self::Map, Some(value)) = (self, value) {
                put_opaque(&mut list, value);
            }
        }
        let mut payload = Vec::new();
        put_opaque(&mut payload, &list);
        payload
    }

    pub(crate) fn read(self, bytes: &[u8]) -> Result<Vec<(Key, Vec<u8>)>, Malformed> {
        sorted(bytes, |item| {
            let key = item.key()?;
            Ok((key, if self == Self::Map { item.opaque()?.to_vec() } else { Vec::new() }))
        })
    }

    pub(crate) fn write<'a>(self, items: impl IntoIterator<Item = (&'a Key, &'a Vec<u8>)>) -> Vec<u8> {
        let mut content = Vec::new();
        for (key, value) in items {
            content.extend_from_slice(key);
            if self == Self::Map {
                put_opaque(&mut content, value);
            }
        }
        let mut bytes = Vec::new();
        put_opaque(&mut bytes, &content);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_spelling() {
        for length in [0, 1, 0x3f, 0x40, 0x3fff, 0x4000, 70_000] {
            let mut out = Vec::new();
            put_opaque(&mut out, &vec![7; length]);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.opaque().unwrap().len(), length);
            reader.finish().unwrap();
        }
        let long_zero = [0x40, 0x00];
        assert_eq!(Reader::new(&long_zero).opaque(), Err(Malformed));
        let eight_bytes = [0xc0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Reader::new(&eight_bytes).opaque(), Err(Malformed));
    }

    #[test]
    fn a_collection_out_of_order_or_with_a_duplicate_is_refused() {
        let a = inbox_key(InboxId::from_bytes([1; 32]));
        let b = inbox_key(InboxId::from_bytes([2; 32]));
        let none = Vec::new();
        let good = Collection::Set.write([(&a, &none), (&b, &none)]);
        assert_eq!(Collection::Set.read(&good).unwrap().len(), 2);
        for bad in [[(&b, &none), (&a, &none)], [(&a, &none), (&a, &none)]] {
            assert_eq!(Collection::Set.read(&Collection::Set.write(bad)), Err(Malformed));
        }
        let mut trailing = good;
        trailing.push(0);
        assert_eq!(Collection::Set.read(&trailing), Err(Malformed));
    }

    #[test]
    fn an_inbox_of_another_version_is_refused() {
        let mut key = inbox_key(InboxId::from_bytes([1; 32]));
        assert_eq!(key_inbox(&key), Ok(InboxId::from_bytes([1; 32])));
        key[0] = 1;
        assert_eq!(key_inbox(&key), Err(Malformed));
    }

    #[test]
    fn mutations_survive_a_round_trip() {
        let key = inbox_key(InboxId::from_bytes([3; 32]));
        let map = vec![Mutation::Insert(key, vec![1]), Mutation::Update(key, vec![]), Mutation::Delete(key)];
        let bytes = Collection::Map.write_mutations(&map);
        assert_eq!(Collection::Map.read_mutations(&bytes).unwrap(), map);
        let set = vec![Mutation::Insert(key, vec![]), Mutation::Delete(key)];
        let bytes = Collection::Set.write_mutations(&set);
        assert_eq!(Collection::Set.read_mutations(&bytes).unwrap(), set);
    }
}
