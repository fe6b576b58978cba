//! Turns of this instance's publishes: one at a time for each topic, and one with identity updates.
//!
//! The database lets no more than that go on anyway. Waiting here, a publish holds no connection, so however
//! many wait for one topic, those of other topics find one.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use highwater_wire::{Topic, TopicKind};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// What is waited for, in the order in which everybody takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wanted {
    Identity,
    Topic(Topic),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<Wanted, Arc<Turn<()>>>>>);

/// A publish's turns; others get them when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    turns: Turns,
    held: Vec<(Wanted, OwnedMutexGuard<()>)>,
}

impl Turns {
    /// Waits for the turns of these topics. A call that is dropped gives back what it has.
    pub(super) async fn take(&self, topics: impl Iterator<Item = Topic>) -> Taken {
        let mut wanted: BTreeSet<Wanted> = BTreeSet::new();
        for topic in topics {
            if topic.kind() == TopicKind::IdentityUpdate {
                wanted.insert(Wanted::Identity);
            }
            wanted.insert(Wanted::Topic(topic));
        }
        let mut taken = Taken { turns: self.clone(), held: Vec::with_capacity(wanted.len()) };
        for wanted in wanted {
            let turn = Arc::clone(self.lock().entry(wanted).or_default());
            taken.held.push((wanted, turn.lock_owned().await));
        }
        taken
    }

    /// No code panics while it holds this lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<Wanted, Arc<Turn<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        for (wanted, guard) in self.held.drain(..) {
            drop(guard);
            // Nobody else waits for it or has it: whoever asks next makes it anew.
            if turns.get(&wanted).is_some_and(|turn| Arc::strong_count(turn) == 1) {
                turns.remove(&wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{GroupId, InboxId};

    use super::*;

    fn group(number: u8) -> Topic {
        Topic::group(GroupId::from_bytes([number; 16]))
    }

    #[tokio::test]
    async fn a_topic_is_waited_for_and_others_are_not() {
        let turns = Turns::default();
        let first = turns.take([group(2), group(1), group(2)].into_iter()).await;
        let mut second = Box::pin(turns.take([group(2), group(3)].into_iter()));
        assert!(futures::poll!(&mut second).is_pending());
        // The second waits for 2 and has nothing yet that others want.
        drop(turns.take([group(3)].into_iter()).await);
        drop(first);
        drop(second.await);
        assert!(turns.lock().is_empty(), "nothing is kept of turns that are over");
    }

    #[tokio::test]
    async fn identity_updates_wait_for_each_other_and_a_dropped_wait_leaves_nothing() {
        let turns = Turns::default();
        let identity = |number| Topic::identity(InboxId::from_bytes([number; 32]));
        let first = turns.take([identity(1)].into_iter()).await;
        let mut second = Box::pin(turns.take([identity(2)].into_iter()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(second);
        drop(first);
        drop(turns.take([identity(2)].into_iter()).await);
        assert!(turns.lock().is_empty());
    }
}
