//! Which envelopes come next: directly from the tailer where a topic is current, in bounded fair turns
//! from the store where it isn't (STR-016, STR-030).

use std::{sync::Arc, time::Instant};

use highwater_wire::{SequenceId, Topic};
use tonic::Status;

use super::{Action, Asked, Delivery, Page, Session, Turn};
use crate::store::TopicRead;

impl Session {
    pub(super) fn live(&mut self, delivery: &Arc<Delivery>, now: Instant) {
        let reserved = self.turn.as_ref().map_or(0, |turn| turn.reserved);
        let Some(registration) = self.topics.get_mut(&delivery.topic) else {
            return;
        };
        if registration.floor.covers(delivery.sequence_id) {
            return;
        }
        if registration.is_current() && self.outbound.push_delivery(delivery, reserved).is_ok() {
            registration.floor = delivery.sequence_id.into();
            registration.known = registration.floor;
            self.last_admission = now;
        } else {
            self.notice(delivery.topic, delivery.sequence_id);
        }
    }

    pub(super) fn notice(&mut self, topic: Topic, id: SequenceId) {
        if let Some(registration) = self.topics.get_mut(&topic) {
            registration.known = registration.known.max(id.into());
            self.enqueue_if_behind(topic);
        }
    }

    /// Puts a topic that owes envelopes at the back of the ready queue (STR-016).
    pub(super) fn enqueue_if_behind(&mut self, topic: Topic) {
        let Some(registration) = self.topics.get_mut(&topic) else {
            return;
        };
        if registration.capturing || registration.queued || registration.floor >= registration.known {
            return;
        }
        registration.queued = true;
        let entry = (topic, registration.generation);
        self.ready.push_back(entry);
        // Entries of removed registrations go when a turn meets them; a stream that adds and removes
        // without ever being served must not pile them up.
        if self.ready.len() > 2 * self.topics.len() + 1_024 {
            let topics = &self.topics;
            self.ready
                .retain(|(topic, generation)| topics.get(topic).is_some_and(|r| r.generation == *generation));
        }
    }

    pub(super) fn fetched(&mut self, pages: &[Page], now: Instant, actions: &mut Vec<Action>) {
        let Some(turn) = self.turn.take() else { return };
        let mut unserved = Vec::new();
        for (position, Asked { topic, generation, known }) in turn.topics.iter().enumerate() {
            // A registration made since then starts from its own cursor (STR-008).
            let Some(registration) =
                self.topics.get_mut(topic).filter(|found| found.generation == *generation)
            else {
                continue;
            };
            let Some(page) = pages.get(position) else {
                unserved.push((*topic, *generation));
                continue;
            };
            let mut fits = true;
            for delivery in &page.envelopes {
                if registration.floor.covers(delivery.sequence_id) {
                    continue;
                }
                fits = self.outbound.push_delivery(delivery, 0).is_ok();
                if !fits {
                    break;
                }
                registration.floor = delivery.sequence_id.into();
                self.last_admission = now;
            }
            registration.known = registration.known.max(registration.floor);
            if fits && !page.has_more && registration.floor < *known {
                // It was there before the fetch: a standby that was swapped for one further behind, say.
                let status = Status::unavailable("the store no longer shows what it did; reconnect");
                return self.end(Some(status), true, actions);
            }
            if !fits {
                unserved.push((*topic, *generation));
            } else if page.has_more || registration.floor < registration.known {
                self.ready.push_back((*topic, *generation));
            } else {
                registration.queued = false;
            }
        }
        // Whoever was not reached keeps its place.
        for entry in unserved.into_iter().rev() {
            self.ready.push_front(entry);
        }
    }

    pub(super) fn next_turn(&mut self, actions: &mut Vec<Action>) {
        if self.turn.is_some() || self.ready.is_empty() {
            return;
        }
        let bytes = self.outbound.fetch_room().min(self.limits.fetched_unsent_bytes);
        if bytes == 0 {
            return;
        }
        let mut topics = Vec::new();
        let mut reads = Vec::new();
        while topics.len() < self.limits.fetch_turn_topics
            && let Some((topic, generation)) = self.ready.pop_front()
        {
            if let Some(registration) = self.topics.get(&topic).filter(|found| found.generation == generation)
            {
                topics.push(Asked { topic, generation, known: registration.known });
                reads.push(TopicRead { topic, after: registration.floor });
            }
        }
        if topics.is_empty() {
            return;
        }
        self.turn = Some(Turn { topics, reserved: bytes });
        let rows_per_topic = self.limits.fetch_turn_rows;
        actions.push(Action::Fetch { reads, rows_per_topic, bytes });
    }
}
