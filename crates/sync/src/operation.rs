//! An explicit sync: fixed targets, immediate queries, and waiting for processing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_delivery::ConversationState;
use highwater_store::Reads;
use highwater_transport::TransportError;
use highwater_wire::{Cursor, GroupId, Topic, TopicKind};
use tokio::time::Instant;

use crate::engine::Shared;
use crate::fetch::{Fetched, fetch};
use crate::obligation::{Cause, Obligation, Progress, is_complete};
use crate::{BARRIER_TIMEOUT, Backoff, SyncError};

/// How long targets are tried to be captured before the run ends for want of a connection.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(3);

/// What to sync. The default takes in every stored group and those discovered, within [`BARRIER_TIMEOUT`].
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The longest time the run may take.
    pub within: Duration,
}

impl Default for SyncRequest {
    fn default() -> Self {
        Self { within: BARRIER_TIMEOUT }
    }
}

/// A run that finished everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The topics that had a target, each processed through it.
    pub topics: usize,
    /// Groups that Welcomes at or below the fixed Welcome target opened during the run.
    pub discovered: usize,
}

/// Runs an explicit sync. Dropping the future leaves everything committed as it is.
pub(crate) async fn sync(shared: &Shared, request: SyncRequest) -> Result<Synced, SyncError> {
    shared.connection.not_refused()?;
    let mut run = Run {
        shared,
        deadline: Instant::now() + request.within,
        targets: BTreeMap::new(),
        uncaptured: BTreeMap::new(),
        paused: BTreeSet::new(),
        connection: None,
        discovered: 0,
    };
    shared.kick.notify_one();
    run.publish_first().await?;
    let start = run.starting_topics().await?;
    run.capture(start, CAPTURE_PATIENCE).await?;
    run.finish().await
}

struct Run<'a> {
    shared: &'a Shared,
    deadline: Instant,
    targets: BTreeMap<Topic, Cursor>,
    /// Topics whose target could not be captured, and why.
    uncaptured: BTreeMap<Topic, String>,
    paused: BTreeSet<Topic>,
    /// The last failure of the connection since it last worked.
    connection: Option<String>,
    discovered: usize,
}

impl Run<'_> {
    /// What this client owes goes out first, so that its echoes are among the targets. A failure shows up again when
    /// the targets are captured.
    async fn publish_first(&mut self) -> Result<(), SyncError> {
        let mut publishing = self.shared.publishing.subscribe();
        let asked = publishing.borrow().started + 1;
        let patience = (Instant::now() + CAPTURE_PATIENCE).min(self.deadline);
        let done = publishing.wait_for(|now| now.ended.as_ref().is_some_and(|(n, _)| *n >= asked));
        tokio::select! {
            _ = self.shared.cancel.cancelled() => Err(SyncError::Closed),
            _ = done => Ok(()),
            _ = tokio::time::sleep_until(patience) => Ok(()),
        }
    }

    /// Every stored group with network interest, this installation's Welcomes, and its own identity.
    async fn starting_topics(&self) -> Result<BTreeSet<Topic>, SyncError> {
        self.shared
            .store
            .read("sync scope", |tx| {
                Box::pin(async move {
                    let active = highwater_delivery::active_groups(tx).await?;
                    let mut topics: BTreeSet<_> = active.into_iter().map(Topic::group).collect();
                    if let Some(installation) = highwater_mls::installation(tx).await? {
                        topics.insert(Topic::welcome(installation.key));
                        topics.extend(installation.inbox.map(Topic::identity));
                    }
                    Ok::<_, SyncError>(topics)
                })
            })
            .await
    }

    /// Fixes each topic's target from the serving backend's heads (STR-040). A topic without an envelope has target
    /// zero; one whose capture failed has none.
    async fn capture(&mut self, topics: BTreeSet<Topic>, patience: Duration) -> Result<(), SyncError> {
        if topics.is_empty() {
            return Ok(());
        }
        let asked: Vec<_> = topics.iter().copied().collect();
        let until = (Instant::now() + patience).min(self.deadline);
        let mut backoff = Backoff::new();
        loop {
            let newest = tokio::select! {
                _ = self.shared.cancel.cancelled() => return Err(SyncError::Closed),
                newest = self.shared.connection.query_newest(&asked) => newest,
            };
            let error = match newest {
                Ok(newest) => {
                    self.connection = None;
                    for topic in topics {
                        let head = newest.get(&topic).map_or(Cursor::ZERO, |id| Cursor::from(*id));
                        self.targets.insert(topic, head);
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            if let TransportError::Refused { .. } = error {
                return Err(error.into());
            }
            let wait = backoff.failed(error.retry_after(), rand::random());
            if !error.is_retryable() || Instant::now() + wait >= until {
                self.connection = Some(error.to_string());
                self.uncaptured.extend(topics.into_iter().map(|topic| (topic, error.to_string())));
                return Ok(());
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn finish(mut self) -> Result<Synced, SyncError> {
        let mut wakes = self.shared.store.wakes();
        let mut backoff = Backoff::new();
        let mut next_fetch = Instant::now();
        loop {
            wakes.mark_unchanged();
            if Instant::now() >= next_fetch {
                next_fetch = self.fetch(&mut backoff).await?;
            }
            // In this order: a Welcome that completes in between is one whose group is enrolled then. The other way
            // round a run could end without the group that its last Welcome opened (STR-041).
            let unfinished = self.unfinished().await?;
            if self.enroll_discovered().await? {
                next_fetch = Instant::now();
                continue;
            }
            if unfinished.is_empty() {
                return Ok(Synced { topics: self.targets.len(), discovered: self.discovered });
            }
            if let Some(ended) = self.ended(unfinished) {
                return Err(ended);
            }
            if !self.paused.is_empty() {
                next_fetch = next_fetch.min(Instant::now() + Duration::from_millis(100));
            }
            tokio::select! {
                _ = self.shared.cancel.cancelled() => return Err(SyncError::Closed),
                changed = wakes.changed() => changed.map_err(|_| SyncError::Closed)?,
                _ = tokio::time::sleep_until(next_fetch.min(self.deadline)) => {}
            }
        }
    }

    /// Queries what is missing at once (STR-042). Returns when it is worth trying again.
    async fn fetch(&mut self, backoff: &mut Backoff) -> Result<Instant, SyncError> {
        let fetched = tokio::select! {
            _ = self.shared.cancel.cancelled() => return Err(SyncError::Closed),
            _ = tokio::time::sleep_until(self.deadline) => return Ok(self.deadline),
            fetched = fetch(&self.shared.store, &self.shared.connection, &self.targets) => fetched,
        };
        match fetched {
            Ok(fetched) => {
                self.connection = None;
                self.paused = fetched
                    .into_iter()
                    .filter(|(_, fetched)| *fetched == Fetched::Paused)
                    .map(|(topic, _)| topic)
                    .collect();
                Ok(self.deadline)
            }
            Err(SyncError::Transport(error)) if error.is_retryable() => {
                self.connection = Some(error.to_string());
                Ok(Instant::now() + backoff.failed(error.retry_after(), rand::random()))
            }
            Err(error) if error.is_refusal() => Err(error),
            Err(SyncError::Transport(error)) => {
                self.connection = Some(error.to_string());
                Ok(self.deadline)
            }
            Err(error) => Err(error),
        }
    }

    /// Groups from Welcomes at or below the fixed Welcome target join the run, each with one fixed target (STR-041).
    async fn enroll_discovered(&mut self) -> Result<bool, SyncError> {
        let through = self
            .targets
            .iter()
            .filter(|(topic, _)| topic.kind() == TopicKind::Welcome)
            .map(|(_, target)| *target)
            .next();
        let Some(through) = through else {
            return Ok(false);
        };
        let found: Vec<(GroupId, _)> = self
            .shared
            .store
            .read("discovered", move |tx| {
                Box::pin(async move { highwater_delivery::discovered_through(tx, through).await })
            })
            .await?;
        let new: BTreeSet<_> = found
            .into_iter()
            .map(|(group, _)| Topic::group(group))
            .filter(|topic| !self.targets.contains_key(topic) && !self.uncaptured.contains_key(topic))
            .collect();
        if new.is_empty() {
            return Ok(false);
        }
        self.discovered += new.len();
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.capture(new, left).await?;
        Ok(true)
    }

    async fn unfinished(&self) -> Result<Vec<Obligation>, SyncError> {
        let targets = self.targets.clone();
        let uncaptured: Vec<_> = self.uncaptured.keys().copied().collect();
        let (found, held) = self
            .shared
            .store
            .read("obligations", move |tx| {
                Box::pin(async move {
                    let mut found = Vec::new();
                    for (topic, target) in targets {
                        let progress = progress(tx, topic, target).await?;
                        if !is_complete(topic, target, &progress) {
                            found.push((topic, Some(target), progress));
                        }
                    }
                    for topic in uncaptured {
                        found.push((topic, None, progress(tx, topic, Cursor::ZERO).await?));
                    }
                    let held = Held::read(tx).await?;
                    Ok::<_, SyncError>((found, held))
                })
            })
            .await?;
        Ok(found
            .into_iter()
            .map(|(topic, target, progress)| {
                let cause = self.cause(topic, target, &progress, &held);
                Obligation {
                    topic,
                    target,
                    received: progress.received,
                    processed: progress.processed,
                    unresolved: progress.unresolved,
                    cause,
                }
            })
            .collect())
    }

    fn cause(&self, topic: Topic, target: Option<Cursor>, progress: &Progress, held: &Held) -> Cause {
        let Some(target) = target else {
            let reason = self.uncaptured.get(&topic).cloned().unwrap_or_default();
            return Cause::TargetMissing(reason);
        };
        if let Some(cause) = held.cause(topic, progress) {
            return cause;
        }
        if progress.received.cursor() >= target {
            return Cause::NotProcessed;
        }
        if self.paused.contains(&topic) {
            return Cause::Capacity;
        }
        self.connection.clone().map_or(Cause::NotReceived, Cause::Connection)
    }

    /// Whether the run ends with what is left: nothing but blocked work, no way to the backend's heads, or the deadline.
    fn ended(&self, unfinished: Vec<Obligation>) -> Option<SyncError> {
        let blocked =
            |obligation: &Obligation| matches!(obligation.cause, Cause::Held { transient: false, .. });
        let hopeless = |obligation: &Obligation| {
            blocked(obligation) || matches!(obligation.cause, Cause::TargetMissing(_))
        };
        if unfinished.iter().all(blocked) {
            return Some(SyncError::Blocked(unfinished));
        }
        (unfinished.iter().all(hopeless) || Instant::now() >= self.deadline)
            .then_some(SyncError::Incomplete(unfinished))
    }
}

/// What is held, topics' heads and Welcomes.
struct Held {
    heads: BTreeMap<Topic, highwater_processing::HeldHead>,
    welcomes: Vec<highwater_join::HeldWelcome>,
}

impl Held {
    async fn read(tx: &mut impl Reads) -> Result<Self, SyncError> {
        let heads = highwater_processing::held(tx).await?;
        Ok(Self {
            heads: heads.into_iter().map(|head| (head.topic, head)).collect(),
            welcomes: highwater_join::held(tx).await?,
        })
    }

    fn cause(&self, topic: Topic, progress: &Progress) -> Option<Cause> {
        if let Some(head) = self.heads.get(&topic) {
            return Some(Cause::Held {
                sequence_id: head.sequence_id,
                code: head.code.clone(),
                detail: head.detail.clone(),
                transient: head.is_transient(),
            });
        }
        // Blocked only when every unresolved Welcome is: one that can still be attempted may finish.
        let held: Vec<_> = progress
            .unresolved
            .iter()
            .filter_map(|id| self.welcomes.iter().find(|held| held.sequence_id == *id))
            .collect();
        let first = held.first()?;
        (held.len() == progress.unresolved.len()).then(|| Cause::Held {
            sequence_id: first.sequence_id,
            code: first.code.clone(),
            detail: first.detail.clone(),
            transient: held.iter().any(|held| held.is_transient()),
        })
    }
}

/// A topic's durable progress, its Welcomes counted through `target`.
pub(crate) async fn progress(
    tx: &mut impl Reads,
    topic: Topic,
    target: Cursor,
) -> Result<Progress, SyncError> {
    let mut progress =
        Progress { received: highwater_receipt::received(tx, topic).await?, ..Progress::default() };
    match topic.group_id() {
        Some(group) => {
            let conversation = highwater_delivery::conversation(tx, group).await?;
            progress.inactive = conversation.is_some_and(|found| found.state != ConversationState::Active);
            progress.processed = highwater_processing::processed(tx, topic).await?;
        }
        None if topic.kind() == TopicKind::Welcome => {
            progress.unresolved = highwater_join::unresolved(tx, topic, target).await?;
        }
        None => progress.processed = highwater_processing::processed(tx, topic).await?,
    }
    Ok(progress)
}
