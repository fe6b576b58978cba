//! Verdicts that were found, so that a log isn't judged anew by each publish that extends it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::Question;

/// About 2 MiB.
const MAX_VERDICTS: usize = 16 * 1024;

type Key = [u8; 32];

/// Verdicts at a fixed block, the oldest forgotten first. A reorganisation could change one, but no
/// more than it could have before the update was stored, and a stored update is never judged again.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    verdicts: HashMap<Key, bool>,
    order: VecDeque<Key>,
}

impl Cache {
    pub(super) fn get(&self, key: &Key) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).verdicts.get(key).copied()
    }

    pub(super) fn put(&self, key: Key, valid: bool) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.verdicts.insert(key, valid).is_none() {
            found.order.push_back(key);
        }
        while found.order.len() > MAX_VERDICTS {
            if let Some(oldest) = found.order.pop_front() {
                found.verdicts.remove(&oldest);
            }
        }
    }
}

/// All that a verdict depends on, or `None` if the block isn't fixed. Every field but the last has a
/// fixed length, so no two questions share a key; the chain's spelling doesn't matter.
pub(super) fn key(question: &Question<'_>) -> Option<Key> {
    let mut hash = Sha256::new();
    hash.update(question.account.chain_id?.to_be_bytes());
    hash.update(question.account.address.as_bytes());
    hash.update(question.block?.to_be_bytes());
    hash.update(question.hash);
    hash.update(question.signature);
    Some(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_verdicts_make_room() {
        let cache = Cache::default();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        for number in 0..=MAX_VERDICTS {
            cache.put(key(number), number % 2 == 0);
            cache.put(key(number), number % 2 == 0);
        }
        assert_eq!(cache.get(&key(0)), None);
        assert_eq!(cache.get(&key(1)), Some(false));
        assert_eq!(cache.get(&key(MAX_VERDICTS)), Some(true));
    }
}
