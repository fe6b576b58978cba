//! Group topics: bounded attempts at the ordered prefixes of conversations.
//!
//! Three things overlap, for they need different threads: decrypting one portion, storing what the portion before it
//! came to, and reading the one after it. All of it is one transaction.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use highwater_delivery::ConversationState;
use highwater_mls::{Resolutions, Trial};
use highwater_receipt::{PendingEnvelope, PendingPart};
use highwater_store::WriteTx;
use highwater_wire::{Cursor, GroupId, Topic};

use crate::attempt::{Hold, MAX_ATTEMPT_ROWS, MAX_ATTEMPT_TIME, PORTION_BYTES, PORTION_ROWS, Report, Stop};
use crate::disposition::{self, Disposition, GroupInput, Prefix, ProposalKnowledge};
use crate::effects::Gathered;
use crate::run::Run;
use crate::{ProcessingError, hold, position};

/// Attempts the topics in turn. Those that the bounds left no room for aren't in the answer.
pub(crate) async fn attempt(
    tx: &mut WriteTx,
    topics: &[Topic],
    resolutions: &Resolutions,
) -> Result<Vec<(Topic, Report)>, ProcessingError> {
    let mut source = Source::new(tx, topics).await?;
    let mut done = Vec::new();
    let mut gathered = Gathered::default();
    let mut portion = source.runs(tx).await?;
    while !portion.is_empty() {
        let long = portion.iter().find(|run| run.wants_more()).map(|run| (run.topic, run.last_read()));
        // Both to their end, whatever becomes of the other: a walk can't be called back.
        let (walked, next) = tokio::join!(walk(portion), async {
            gathered.write(tx).await?;
            source.next(tx, long).await
        });
        let (mut walked, mut next) = (walked?, next?);
        while answer(tx, &mut walked, resolutions).await? {
            walked = walk(walked).await?;
        }
        gathered = Gathered::default();
        walked.iter_mut().for_each(|run| gathered.add(run.effects.take()));
        portion = std::mem::take(&mut next.runs);
        for mut run in walked {
            if run.wants_more() && !next.more.is_empty() {
                run.feed(std::mem::take(&mut next.more));
                portion.push(run);
            } else {
                done.push(run);
            }
        }
    }
    gathered.write(tx).await?;
    finish(tx, &mut done).await?;
    source.ended.extend(done.iter().map(|run| (run.topic, run.report())));
    Ok(topics.iter().filter_map(|topic| Some((*topic, source.ended.remove(topic)?))).collect())
}

/// Has runs settle what needs no database, on a thread that may be busy for a while.
async fn walk(mut runs: Vec<Run>) -> Result<Vec<Run>, ProcessingError> {
    let walking = tokio::task::spawn_blocking(move || {
        runs.iter_mut().try_for_each(Run::walk)?;
        Ok(runs)
    });
    match walking.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(walked) => walked,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => Err(ProcessingError::Stopped),
    }
}

/// Answers one question of each run. Says whether there was any.
async fn answer(
    tx: &mut WriteTx,
    runs: &mut [Run],
    resolutions: &Resolutions,
) -> Result<bool, ProcessingError> {
    let mut any = false;
    for run in runs {
        if let Some(question) = run.question() {
            any = true;
            run.answer(tx, question, resolutions).await?;
        }
    }
    Ok(any)
}

/// What the attempt changed, with the positions that cover it (PROC-008).
async fn finish(tx: &mut WriteTx, runs: &mut [Run]) -> Result<(), ProcessingError> {
    let handled: Vec<_> = runs.iter().filter_map(|run| Some((run.topic, run.handled()?))).collect();
    let changed = runs.iter_mut().filter(|run| run.handled().is_some());
    Trial::store_together(tx, changed.map(|run| &mut run.trial)).await?;
    position::advance(tx, &handled).await?;
    highwater_receipt::settle_together(tx, &handled).await?;
    for run in runs {
        if let Stop::Held(head) = run.report().stop {
            hold::record(tx, run.topic, head.sequence_id, &head.cause).await?;
        }
    }
    Ok(())
}

/// What of the topics' prefixes is read next, within the bounds of an attempt.
struct Source {
    started: Instant,
    /// How many portions may still be read.
    portions: u32,
    /// Active topics that weren't reached yet.
    waiting: VecDeque<Topic>,
    /// Topics that nothing was attempted on.
    ended: BTreeMap<Topic, Report>,
}

/// What is to be settled next.
#[derive(Default)]
struct Next {
    /// The continuation of the one topic that was too long for a portion.
    more: Vec<PendingEnvelope>,
    runs: Vec<Run>,
}

impl Source {
    async fn new(tx: &mut WriteTx, topics: &[Topic]) -> Result<Self, ProcessingError> {
        let group = |topic: &Topic| topic.group_id().ok_or(ProcessingError::NotProcessed(*topic));
        let groups = topics.iter().map(group).collect::<Result<Vec<_>, _>>()?;
        let states = highwater_delivery::conversation_states(tx, &groups).await?;
        let mut waiting = VecDeque::new();
        let mut ended = BTreeMap::new();
        for (topic, group) in topics.iter().zip(&groups) {
            match states.get(group) {
                Some(ConversationState::Active) => waiting.push_back(*topic),
                _ => drop(ended.insert(*topic, untouched(Stop::Inactive))),
            }
        }
        Ok(Self { started: Instant::now(), portions: MAX_ATTEMPT_ROWS / PORTION_ROWS, waiting, ended })
    }

    /// What comes after a portion: first the rest of a topic that is longer, else the topics after it.
    async fn next(
        &mut self,
        tx: &mut WriteTx,
        long: Option<(Topic, Cursor)>,
    ) -> Result<Next, ProcessingError> {
        if self.portions == 0 || self.started.elapsed() >= MAX_ATTEMPT_TIME {
            return Ok(Next::default());
        }
        let Some((topic, after)) = long else {
            return Ok(Next { runs: self.runs(tx).await?, ..Next::default() });
        };
        self.portions -= 1;
        let more = highwater_receipt::pending_after(tx, topic, after, PORTION_ROWS, PORTION_BYTES).await?;
        Ok(Next { more, ..Next::default() })
    }

    /// The next topics, as many as fit into a portion, with their groups loaded.
    async fn runs(&mut self, tx: &mut WriteTx) -> Result<Vec<Run>, ProcessingError> {
        let mut runs = Vec::new();
        while runs.is_empty() && !self.waiting.is_empty() && self.portions > 0 {
            self.portions -= 1;
            let topics = self.waiting.make_contiguous();
            let parts = highwater_receipt::pending_together(tx, topics, PORTION_ROWS, PORTION_BYTES).await?;
            self.waiting.drain(..parts.len());
            runs = self.load(tx, parts).await?;
        }
        Ok(runs)
    }

    async fn load(&mut self, tx: &mut WriteTx, parts: Vec<PendingPart>) -> Result<Vec<Run>, ProcessingError> {
        let groups: Vec<_> = parts.iter().filter_map(|part| part.topic.group_id()).collect();
        let trials = Trial::load_together(tx, &groups).await?;
        let mut runs = Vec::new();
        for (part, (group, trial)) in parts.into_iter().zip(trials) {
            match (part.envelopes.first(), trial) {
                (None, _) => {
                    hold::clear(tx, part.topic).await?;
                    self.ended.insert(part.topic, untouched(Stop::Drained));
                }
                (Some(head), None) => {
                    let held = stateless(tx, part.topic, head, group).await?;
                    self.ended.insert(part.topic, untouched(held));
                }
                (Some(_), Some(trial)) => runs.push(Run::new(group, trial, part)),
            }
        }
        Ok(runs)
    }
}

fn untouched(stop: Stop) -> Report {
    Report { applied: 0, rejected: 0, stop }
}

/// An active conversation without MLS state: nothing of it can be judged.
async fn stateless(
    tx: &mut WriteTx,
    topic: Topic,
    head: &PendingEnvelope,
    group: GroupId,
) -> Result<Stop, ProcessingError> {
    tracing::error!(?group, "an active group has no MLS state");
    let prefix = Prefix { epoch: 0, proposals: ProposalKnowledge::Complete };
    let Disposition::Hold(cause) = disposition::group(&GroupInput::NoState, prefix) else {
        return Err(ProcessingError::Damaged("the group's MLS state"));
    };
    hold::record(tx, topic, head.sequence_id, &cause).await?;
    Ok(Stop::Held(Hold { sequence_id: head.sequence_id, cause, needs: Vec::new() }))
}
