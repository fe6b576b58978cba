//! Who is interested in which topics, and what a receiver must change to match.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_transport::TransportError;
use highwater_wire::{Cursor, GroupId, Topic};
use tokio::sync::watch;

use crate::Episode;

/// The conversations a stream or an operation selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every group, those discovered later included.
    AllGroups,
    /// These groups.
    Groups(BTreeSet<GroupId>),
}

/// Why nothing more comes for an interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterestEnd {
    /// Its recovery budget is spent (PROC-038). A new interest has a budget of its own.
    Exhausted,
    /// The deployment refuses this client ([`TransportError::Refused`]): no further attempt is made.
    Refused(TransportError),
}

/// Keeps a scope's topics registered while it lives (PROC-049).
#[derive(Debug)]
pub struct Interest {
    id: u64,
    interests: Arc<Interests>,
    end: watch::Receiver<Option<InterestEnd>>,
}

impl Interest {
    /// Resolves when nothing more comes for this interest. Cancel-safe; pending for ever otherwise.
    pub async fn ended(&mut self) -> InterestEnd {
        let end = self.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        match end {
            Some(end) => end,
            // The engine has ended, and with it everybody who waits here.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.interests.change(|entries| {
            entries.remove(&self.id);
        });
    }
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    episode: Episode,
    end: watch::Sender<Option<InterestEnd>>,
}

impl Entry {
    /// The first end is the end.
    fn end(&self, end: InterestEnd) {
        self.end.send_if_modified(|now| {
            let first = now.is_none();
            now.get_or_insert(end);
            first
        });
    }
}

/// The live interests of one engine.
#[derive(Debug)]
pub(crate) struct Interests {
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// Counts changes; also the source of ids.
    version: watch::Sender<u64>,
}

impl Interests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { entries: Mutex::default(), version: watch::Sender::new(0) })
    }

    pub(crate) fn add(self: &Arc<Self>, scope: Scope, now: Duration) -> Interest {
        let (end, receiver) = watch::channel(None);
        let mut id = 0;
        self.version.send_modify(|version| {
            *version += 1;
            id = *version;
        });
        self.change(|entries| {
            entries.insert(id, Entry { scope, episode: Episode::first(now), end });
        });
        Interest { id, interests: Arc::clone(self), end: receiver }
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Entry>) -> T) -> T {
        let result = self.quietly(change);
        self.version.send_modify(|version| *version += 1);
        result
    }

    fn quietly<T>(&self, look: impl FnOnce(&mut BTreeMap<u64, Entry>) -> T) -> T {
        // A panic under this lock can't leave the map half changed.
        look(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.quietly(|entries| entries.values().map(|entry| entry.scope.clone()).collect())
    }

    /// A recovery cycle failed for everybody whose topics the receiver carries.
    pub(crate) fn failed(&self, now: Duration) {
        self.quietly(|entries| entries.values_mut().for_each(|entry| entry.episode.failed(now)));
    }

    /// Tells each stream whether all its registrations are active, and ends those whose budget is spent.
    pub(crate) fn observe(&self, now: Duration, all_active: bool) {
        self.quietly(|entries| {
            for entry in entries.values_mut() {
                if all_active {
                    entry.episode.active(now);
                } else {
                    entry.episode.inactive(now);
                }
                if entry.episode.is_exhausted(now) {
                    entry.end(InterestEnd::Exhausted);
                }
            }
        });
    }

    /// Ends everybody's: the deployment refuses this client.
    pub(crate) fn refused(&self, refusal: &TransportError) {
        self.quietly(|entries| {
            entries.values().for_each(|entry| entry.end(InterestEnd::Refused(refusal.clone())));
        });
    }
}

/// The topics that `scopes` ask for now. An inactive or restored group has no network interest (STR-086, PROC-051), and
/// whoever is interested in any group is interested in invitations to it.
pub(crate) fn desired(
    scopes: &[Scope],
    active: &BTreeSet<GroupId>,
    welcome: Option<Topic>,
) -> BTreeSet<Topic> {
    let mut topics = BTreeSet::new();
    for scope in scopes {
        match scope {
            Scope::AllGroups => topics.extend(active.iter().copied().map(Topic::group)),
            Scope::Groups(groups) => {
                topics.extend(groups.intersection(active).copied().map(Topic::group));
            }
        }
    }
    if !scopes.is_empty() {
        topics.extend(welcome);
    }
    topics
}

/// Where one topic of a receiver session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Asked for, not acknowledged.
    Pending,
    /// Acknowledged with this fixed target.
    Active(Cursor),
}

/// The registrations of one receiver session.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    topics: BTreeMap<Topic, Registration>,
    /// Out of capacity: registered again, at F, when there is room.
    paused: BTreeSet<Topic>,
}

/// What the session must be asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) adds: Vec<Topic>,
    pub(crate) removes: Vec<Topic>,
}

impl Registrations {
    /// Compares with what is desired and assumes that the changes are asked for.
    pub(crate) fn reconcile(&mut self, desired: &BTreeSet<Topic>) -> Changes {
        self.paused.retain(|topic| desired.contains(topic));
        let removes: Vec<_> = self.topics.keys().copied().filter(|topic| !desired.contains(topic)).collect();
        let adds: Vec<_> = desired
            .iter()
            .copied()
            .filter(|topic| !self.topics.contains_key(topic) && !self.paused.contains(topic))
            .collect();
        for topic in &removes {
            self.topics.remove(topic);
        }
        for topic in &adds {
            self.topics.insert(*topic, Registration::Pending);
        }
        Changes { adds, removes }
    }

    /// The backend acknowledged a registration.
    pub(crate) fn acknowledged(&mut self, topic: Topic, target: Cursor) {
        if let Some(registration) = self.topics.get_mut(&topic) {
            *registration = Registration::Active(target);
        }
    }

    /// There is no room for a topic. Says whether it must be removed from the session.
    pub(crate) fn pause(&mut self, topic: Topic) -> bool {
        let registered = self.topics.remove(&topic).is_some();
        if registered {
            self.paused.insert(topic);
        }
        registered
    }

    /// A topic must start over at F. Says whether it must be removed from the session first.
    pub(crate) fn restart(&mut self, topic: Topic) -> bool {
        self.topics.remove(&topic).is_some()
    }

    pub(crate) fn paused(&self) -> Vec<Topic> {
        self.paused.iter().copied().collect()
    }

    pub(crate) fn resume(&mut self, topic: Topic) {
        self.paused.remove(&topic);
    }

    /// Whether every desired topic is acknowledged and none is paused.
    pub(crate) fn all_active(&self) -> bool {
        self.paused.is_empty() && self.topics.values().all(|state| matches!(state, Registration::Active(_)))
    }

    pub(crate) fn topics(&self) -> &BTreeMap<Topic, Registration> {
        &self.topics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(n: u8) -> GroupId {
        GroupId::from_bytes([n; 16])
    }

    fn topics(groups: &[u8]) -> BTreeSet<Topic> {
        groups.iter().map(|n| Topic::group(group(*n))).collect()
    }

    /// Shows: PROC-049.
    #[test]
    fn a_topic_stays_while_anybody_needs_it() {
        let interests = Interests::new();
        let all = interests.add(Scope::AllGroups, Duration::ZERO);
        let one = interests.add(Scope::Groups(BTreeSet::from([group(1)])), Duration::ZERO);
        let active = BTreeSet::from([group(1), group(2)]);
        assert_eq!(desired(&interests.scopes(), &active, None), topics(&[1, 2]));
        drop(all);
        assert_eq!(desired(&interests.scopes(), &active, None), topics(&[1]));
        drop(one);
        assert!(desired(&interests.scopes(), &active, None).is_empty());
    }

    /// Shows: STR-086, PROC-051.
    #[test]
    fn an_inactive_group_has_no_network_interest_even_when_selected() {
        let scopes = [Scope::Groups(BTreeSet::from([group(1), group(9)]))];
        assert_eq!(desired(&scopes, &BTreeSet::from([group(1)]), None), topics(&[1]));
    }

    #[test]
    fn a_paused_topic_leaves_the_session_and_comes_back_when_there_is_room() {
        let mut registrations = Registrations::default();
        let wanted = topics(&[1, 2]);
        assert_eq!(registrations.reconcile(&wanted).adds.len(), 2);
        let paused = Topic::group(group(1));
        assert!(registrations.pause(paused));
        assert!(!registrations.all_active());
        assert_eq!(registrations.reconcile(&wanted), Changes::default());
        registrations.resume(paused);
        assert_eq!(registrations.reconcile(&wanted).adds, [paused]);
    }

    #[test]
    fn a_late_acknowledgement_of_a_removed_topic_changes_nothing() {
        let mut registrations = Registrations::default();
        registrations.reconcile(&topics(&[1]));
        registrations.reconcile(&BTreeSet::new());
        registrations.acknowledged(Topic::group(group(1)), Cursor::ZERO);
        assert!(registrations.topics().is_empty());
    }

    /// Shows: PROC-038, PROC-039.
    #[tokio::test]
    async fn a_spent_budget_ends_its_own_stream_only() {
        let interests = Interests::new();
        let mut old = interests.add(Scope::AllGroups, Duration::ZERO);
        for n in 0..10 {
            interests.failed(Duration::from_secs(n));
        }
        let mut fresh = interests.add(Scope::AllGroups, Duration::from_secs(10));
        interests.observe(Duration::from_secs(11), false);
        assert_eq!(old.ended().await, InterestEnd::Exhausted);
        let waited = tokio::time::timeout(Duration::from_millis(10), fresh.ended()).await;
        assert!(waited.is_err());
    }
}
