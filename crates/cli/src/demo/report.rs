//! The table and the sums at the end.

use std::collections::BTreeMap;

use highwater::{GroupId, InboxId, Status, TopicProgress};
use serde_json::{Value, json};

use super::ledger::Sums;
use super::plan::Place;
use super::progress::Counts;
use crate::commands::status::topic as topic_value;

/// One client's positions, by the names of its conversations.
pub(super) struct Table<'a> {
    pub(super) client: &'static str,
    pub(super) status: &'a Status,
    pub(super) places: &'a BTreeMap<Place, GroupId>,
    pub(super) inboxes: &'a BTreeMap<InboxId, &'static str>,
}

impl Table<'_> {
    fn name(&self, topic: &TopicProgress) -> String {
        let place = topic.topic.group_id().and_then(|group| {
            self.places.iter().find(|(_, place)| **place == group).map(|(place, _)| place.name())
        });
        let inbox = topic.topic.inbox_id().and_then(|inbox| self.inboxes.get(&inbox));
        match (place, inbox) {
            (Some(place), _) => place.to_owned(),
            (None, Some(inbox)) => format!("{} {inbox}", topic.topic.kind().name()),
            (None, None) => topic.topic.kind().name().to_owned(),
        }
    }

    fn delivered(&self, topic: &TopicProgress) -> Option<u64> {
        let group = topic.topic.group_id()?;
        let found = self.status.groups.iter().find(|progress| progress.group_id == group);
        found.map(|progress| progress.delivered)
    }

    /// One event per topic.
    pub(super) fn events(&self) -> Vec<Value> {
        let event = |topic: &TopicProgress| {
            let mut value = topic_value(topic);
            value["event"] = "topic".into();
            value["client"] = self.client.into();
            value["name"] = self.name(topic).into();
            value["d"] = self.delivered(topic).into();
            value
        };
        self.status.topics.iter().map(event).collect()
    }

    /// One line per topic, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let or_dash = |number: Option<u64>| number.map_or_else(|| "-".into(), |n| n.to_string());
        let line = |topic: &TopicProgress| {
            format!(
                "{:8} {:14} {:>8} {:>8} {:>8} {:>8} {:>8}",
                self.client,
                self.name(topic),
                topic.received,
                or_dash(topic.processed),
                or_dash(self.delivered(topic)),
                topic.held.as_ref().map_or_else(|| "-".into(), |held| held.sequence_id.to_string()),
                topic.pending,
            )
        };
        self.status.topics.iter().map(line).collect()
    }
}

pub(super) fn header() -> String {
    format!("{:8} {:14} {:>8} {:>8} {:>8} {:>8} {:>8}", "client", "topic", "F", "P", "D", "held", "pending")
}

/// The last event.
pub(super) fn summary(sums: &Sums, counts: &Counts, clean: bool) -> Value {
    json!({
        "event": "summary",
        "sent": sums.sent,
        "delivered": sums.delivered,
        "lost": sums.lost,
        "duplicated": sums.duplicated,
        "reordered": sums.reordered,
        "repeated": sums.repeated,
        "cuts": counts.cuts,
        "reopens": counts.reopens,
        "kills": counts.kills,
        "audit": if clean { "clean" } else { "violated" },
    })
}

/// The last line, for people.
pub(super) fn line(sums: &Sums, counts: &Counts, clean: bool) -> String {
    format!(
        "{} sent, {} delivered to others, {} lost, {} duplicated, {} reordered, {} repeated by a kill; \
         {} cuts, {} reopened, {} killed; audit {}",
        sums.sent,
        sums.delivered,
        sums.lost,
        sums.duplicated,
        sums.reordered,
        sums.repeated,
        counts.cuts,
        counts.reopens,
        counts.kills,
        if clean { "clean" } else { "VIOLATED" },
    )
}
