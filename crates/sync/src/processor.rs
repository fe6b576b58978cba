//! The processor driver: attempts what is pending, Welcomes included, and has their needs looked after.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_delivery::ConversationState;
use highwater_join::JoinReport;
use highwater_mls::{Need, Resolution, Resolutions};
use highwater_processing::{Action, Event, Scheduler};
use highwater_wire::{SequenceId, Topic, TopicKind};
use tokio::task::JoinSet;

use crate::SyncError;
use crate::desired::welcome;
use crate::engine::Shared;
use crate::resolver::resolve;

/// How many attempts are made before the database is looked at again.
const ATTEMPTS_PER_LOOK: usize = 4;
/// How long the processor waits after the database failed it.
const STORAGE_RETRY: Duration = Duration::from_millis(500);

pub(crate) async fn run(shared: Shared) {
    let mut processor = Processor {
        scheduler: Scheduler::default(),
        resolutions: Resolutions::default(),
        resolving: JoinSet::new(),
        parents: BTreeMap::new(),
        due_welcomes: BTreeMap::new(),
        failed_join: false,
        next_welcome: None,
        waiting: Vec::new(),
        shared,
    };
    let mut wakes = processor.shared.store.wakes();
    while !processor.shared.cancel.is_cancelled() {
        wakes.mark_unchanged();
        let looked = processor.look().await;
        let waited = match looked {
            Ok(true) => continue,
            Ok(false) => processor.wait(&mut wakes).await,
            Err(error) => {
                tracing::warn!(%error, "processing failed");
                tokio::select! {
                    _ = processor.shared.cancel.cancelled() => None,
                    _ = tokio::time::sleep(STORAGE_RETRY) => Some(()),
                }
            }
        };
        if waited.is_none() {
            break;
        }
    }
    processor.resolving.shutdown().await;
}

/// Whose needs are being looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Parent {
    Topic(Topic),
    Welcome(SequenceId),
}

/// What the database holds for the processor now.
struct Work {
    topics: Vec<(Topic, SequenceId)>,
    welcome_topic: Option<Topic>,
    welcomes: Vec<SequenceId>,
    next_welcome_ns: Option<i64>,
}

struct Processor {
    shared: Shared,
    scheduler: Scheduler,
    /// Answers so far. Kept for the process's life: proofs don't go stale.
    resolutions: Resolutions,
    resolving: JoinSet<(Parent, Resolutions)>,
    /// Whose needs are being looked after, and whether the answer decides a Welcome past its deadline.
    parents: BTreeMap<Parent, bool>,
    /// Welcomes whose needs were answered: attempted with these answers, before their retry is due.
    due_welcomes: BTreeMap<SequenceId, Resolutions>,
    /// A join attempt failed without a verdict; its Welcome is tried again after [`STORAGE_RETRY`].
    failed_join: bool,
    /// How long until the earliest held Welcome is tried again.
    next_welcome: Option<Duration>,
    /// What the scheduler wants done at the next look.
    waiting: Vec<Action>,
}

impl Processor {
    /// One look at the database and a bounded turn of what it makes possible: Welcomes that are due, then ready topics.
    /// Says whether another look is worth it at once.
    async fn look(&mut self) -> Result<bool, SyncError> {
        let work = self.work().await?;
        let mut busy = self.join_due(work.welcome_topic, work.welcomes).await;
        self.next_welcome = work.next_welcome_ns.map(|at| self.until(at));
        let news = Event::Pending(work.topics);
        let mut actions = std::mem::take(&mut self.waiting);
        actions.extend(self.scheduler.on(self.shared.now(), news));
        for _ in 0..ATTEMPTS_PER_LOOK {
            let Some(attempt) = self.act(actions).await? else {
                return Ok(busy);
            };
            busy = true;
            actions = self.scheduler.on(self.shared.now(), attempt);
        }
        // Welcomes that came in meanwhile, and a shutdown, don't wait for a long backlog.
        self.waiting = actions;
        Ok(busy)
    }

    /// Attempts each Welcome that is due. One whose attempt can't be carried out doesn't keep the others from theirs
    /// (STR-080).
    async fn join_due(&mut self, topic: Option<Topic>, ready: Vec<SequenceId>) -> bool {
        let Some(topic) = topic else { return false };
        let mut answers = std::mem::take(&mut self.due_welcomes);
        let due: BTreeSet<_> = ready.into_iter().chain(answers.keys().copied()).collect();
        let mut settled = false;
        for sequence_id in due {
            if self.parents.contains_key(&Parent::Welcome(sequence_id)) {
                continue;
            }
            match self.join(topic, sequence_id, answers.remove(&sequence_id)).await {
                Ok(done) => settled |= done,
                Err(error) => {
                    tracing::warn!(sequence_id = sequence_id.get(), %error, "a join attempt failed");
                    self.failed_join = true;
                }
            }
        }
        settled
    }

    async fn work(&self) -> Result<Work, SyncError> {
        self.shared
            .store
            .read("pending work", |tx| {
                Box::pin(async move {
                    let pending = highwater_receipt::pending_topics(tx, None).await?;
                    let groups: Vec<_> = pending.iter().filter_map(|found| found.topic.group_id()).collect();
                    let states = highwater_delivery::conversation_states(tx, &groups).await?;
                    let topics = pending
                        .into_iter()
                        .filter(|found| match (found.topic.kind(), found.topic.group_id()) {
                            (TopicKind::GroupMessage, Some(group)) => {
                                states.get(&group) == Some(&ConversationState::Active)
                            }
                            (kind, _) => kind == TopicKind::IdentityUpdate,
                        })
                        .map(|found| (found.topic, found.head))
                        .collect();
                    let welcome_topic = welcome(tx).await?;
                    let welcomes = match welcome_topic {
                        Some(topic) => highwater_join::ready(tx, topic).await?,
                        None => Vec::new(),
                    };
                    let next_welcome_ns = highwater_join::next_retry(tx).await?;
                    Ok::<_, SyncError>(Work { topics, welcome_topic, welcomes, next_welcome_ns })
                })
            })
            .await
    }

    /// Carries out actions. Returns the event that the one attempt among them ended with.
    async fn act(&mut self, actions: Vec<Action>) -> Result<Option<Event>, SyncError> {
        let mut ended = None;
        for action in actions {
            match action {
                Action::Resolve(topic, needs) => self.resolve(Parent::Topic(topic), needs, false),
                Action::Attempt(topics) => {
                    let count = topics.len();
                    let attempt = highwater_processing::attempt_together(
                        &self.shared.store,
                        topics,
                        self.resolutions.clone(),
                    );
                    ended = Some(match attempt.await {
                        Ok(reports) => {
                            let stops = reports.into_iter().map(|(topic, report)| (topic, report.stop));
                            Event::Attempted(stops.collect())
                        }
                        Err(error) => {
                            tracing::warn!(topics = count, %error, "attempt failed");
                            Event::Failed
                        }
                    });
                }
            }
        }
        Ok(ended)
    }

    /// Attempts one Welcome. Says whether it was settled.
    async fn join(
        &mut self,
        topic: Topic,
        sequence_id: SequenceId,
        answers: Option<Resolutions>,
    ) -> Result<bool, SyncError> {
        let mut resolutions = self.resolutions.clone();
        for (need, resolution) in answers.iter().flat_map(Resolutions::iter) {
            resolutions.insert(need.clone(), resolution.clone());
        }
        let store = &self.shared.store;
        let report = highwater_join::attempt(store, topic, sequence_id, resolutions).await?;
        if let JoinReport::Held { needs, held } = report {
            let last_chance = held.deadline_ns.is_some_and(|deadline| deadline <= store.now_ns());
            self.resolve(Parent::Welcome(sequence_id), needs, last_chance);
            return Ok(false);
        }
        Ok(true)
    }

    fn resolve(&mut self, parent: Parent, needs: Vec<Need>, decides: bool) {
        if needs.is_empty() || self.parents.contains_key(&parent) {
            return;
        }
        self.parents.insert(parent, decides);
        let shared = self.shared.clone();
        self.resolving.spawn(async move { (parent, resolve(&shared, needs).await) });
    }

    /// Waits for anything that makes another look worthwhile. `None` when the engine ends.
    async fn wait(&mut self, wakes: &mut tokio::sync::watch::Receiver<u64>) -> Option<()> {
        let until = self.scheduler.next_retry().map(|at| at.saturating_sub(self.shared.now()));
        let failed_join = std::mem::take(&mut self.failed_join).then_some(STORAGE_RETRY);
        let until = [until, self.next_welcome, failed_join].into_iter().flatten().min();
        tokio::select! {
            _ = self.shared.cancel.cancelled() => return None,
            changed = wakes.changed() => changed.ok()?,
            Some(resolved) = self.resolving.join_next() => match resolved {
                Ok((parent, resolutions)) => self.resolved(parent, resolutions),
                Err(error) => tracing::error!(%error, "a resolver ended abnormally"),
            },
            _ = sleep(until) => {}
        }
        Some(())
    }

    fn resolved(&mut self, parent: Parent, answers: Resolutions) {
        let decides = self.parents.remove(&parent).unwrap_or_default();
        let mut helped = decides && !answers.is_empty();
        for (need, resolution) in answers.iter() {
            // What isn't there now may be there next time: only proofs are kept.
            if !matches!(resolution, Resolution::Retry { .. }) {
                helped = true;
                self.resolutions.insert(need.clone(), resolution.clone());
            }
        }
        // Without an answer the parent waits for its own retry, which backs off.
        if !helped {
            return;
        }
        match parent {
            Parent::Topic(topic) => {
                self.waiting.extend(self.scheduler.on(self.shared.now(), Event::Resolved(topic)));
            }
            Parent::Welcome(sequence_id) => {
                self.due_welcomes.insert(sequence_id, answers);
            }
        }
    }

    fn until(&self, at_ns: i64) -> Duration {
        let wait = at_ns.saturating_sub(self.shared.store.now_ns());
        Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
    }
}

async fn sleep(until: Option<Duration>) {
    match until {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
