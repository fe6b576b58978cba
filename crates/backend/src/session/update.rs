//! Updates: checked as a whole, then applied as a whole (STR-002).

use std::{collections::HashSet, time::Instant};

use highwater_wire::{Topic, proto::backend};
use tonic::Status;

use super::{Action, Frame, Session};
use crate::{
    config::Limits,
    query::{invalid, ordered_read},
    store::TopicRead,
};

impl Session {
    pub(super) fn update(
        &mut self,
        update: &backend::subscribe_request::Update,
        now: Instant,
        actions: &mut Vec<Action>,
    ) -> Result<(), Status> {
        let Checked { added, removed } = self.check(update)?;
        self.last_update = update.id;
        for topic in &removed {
            self.topics.remove(topic);
        }
        if !removed.is_empty() {
            actions.push(Action::Deregister(removed));
        }
        if added.is_empty() {
            self.admit(Frame::Applied { id: update.id, targets: Vec::new() }, now, actions);
        } else {
            self.register(Some(update.id), &added, actions);
        }
        Ok(())
    }

    fn check(&self, update: &backend::subscribe_request::Update) -> Result<Checked, Status> {
        let limits = &self.limits;
        // Also refuses 0 (STR-003).
        if update.id <= self.last_update {
            return Err(invalid(format!("update id {} is not above {}", update.id, self.last_update)));
        }
        at_most("adds", update.adds.len(), limits.max_update_adds)?;
        at_most("removes", update.removes.len(), limits.max_update_removes)?;
        let mut once = HashSet::with_capacity(update.adds.len() + update.removes.len());
        let mut removed = Vec::new();
        for topic in &update.removes {
            let topic = Topic::try_from(topic).map_err(|error| invalid(error.to_string()))?;
            if !topic.kind().is_ordered() {
                return Err(invalid("key package topics have no ordered read"));
            }
            seen_once(&mut once, topic)?;
            if self.topics.contains_key(&topic) {
                removed.push(topic);
            }
        }
        let mut added = Vec::new();
        for query in &update.adds {
            let read = ordered_read(query)?;
            seen_once(&mut once, read.topic)?;
            // A topic that is active stays as it is, whatever the cursor (STR-005).
            if !self.topics.contains_key(&read.topic) {
                added.push(read);
            }
        }
        let total = self.topics.len() - removed.len() + added.len();
        at_most("topics on one stream", total, limits.max_stream_topics)?;
        Ok(Checked { added, removed })
    }
}

/// What an update changes.
struct Checked {
    added: Vec<TopicRead>,
    removed: Vec<Topic>,
}

/// The topics of a static stream (STR-050).
pub(super) fn fixed_topics(
    queries: &[backend::TopicQuery],
    limits: &Limits,
) -> Result<Vec<TopicRead>, Status> {
    if queries.is_empty() {
        return Err(invalid("a static subscription needs at least one topic"));
    }
    at_most("topics", queries.len(), limits.max_static_topics)?;
    let mut once = HashSet::with_capacity(queries.len());
    queries
        .iter()
        .map(|query| {
            let read = ordered_read(query)?;
            seen_once(&mut once, read.topic)?;
            Ok(read)
        })
        .collect()
}

fn seen_once(seen: &mut HashSet<Topic>, topic: Topic) -> Result<(), Status> {
    if seen.insert(topic) { Ok(()) } else { Err(invalid("a topic occurs twice")) }
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<(), Status> {
    if found > limit {
        return Err(invalid(format!("{found} {what}, the limit is {limit}")));
    }
    Ok(())
}
