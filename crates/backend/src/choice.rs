//! Which rows of an ordered read fit its bounds. Every engine offers the rows it finds and loads only
//! the payloads of those chosen.

use std::collections::HashMap;

use highwater_wire::SequenceId;

use crate::{
    config::WORST_METADATA_BYTES,
    store::{ReadBounds, ReadPage, StoreError, StoredEnvelope, TopicPage},
};

pub(crate) struct Choice {
    pub(crate) bounds: ReadBounds,
    rows: usize,
    bytes: usize,
    topics: Vec<TopicChoice>,
    /// Topics from here on were not reached.
    cut: Option<usize>,
}

#[derive(Clone, Default)]
struct TopicChoice {
    ids: Vec<SequenceId>,
    has_more: bool,
}

impl Choice {
    pub(crate) fn new(topics: usize, bounds: ReadBounds) -> Self {
        let topics = vec![TopicChoice::default(); topics];
        Self { bounds, rows: 0, bytes: 0, topics, cut: None }
    }

    /// Offers the next row, topics in the order asked and ids ascending in each. One row more of a topic
    /// than its page may have says that there is more.
    pub(crate) fn offer(&mut self, index: usize, id: SequenceId, payload_bytes: usize) {
        if self.cut.is_some() {
            return;
        }
        let bytes = self.bytes + payload_bytes + WORST_METADATA_BYTES;
        let topic = &mut self.topics[index];
        if topic.ids.len() == self.bounds.rows_per_topic {
            topic.has_more = true;
        } else if self.rows == self.bounds.rows || (self.rows > 0 && bytes > self.bounds.bytes) {
            topic.has_more = true;
            self.cut = Some(index + usize::from(!topic.ids.is_empty()));
        } else {
            topic.ids.push(id);
            self.rows += 1;
            self.bytes = bytes;
        }
    }

    /// Whether a bound was met, so that further rows have no effect.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Rows of `topics` topics that are worth offering now.
    pub(crate) fn rows_wanted(&self, topics: usize) -> usize {
        (self.bounds.rows - self.rows).saturating_add(topics + 1)
    }

    pub(crate) fn ids(&self) -> Vec<SequenceId> {
        self.topics.iter().flat_map(|topic| topic.ids.iter().copied()).collect()
    }

    /// The page, from the envelopes with the chosen ids in any order.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when one of them is absent.
    pub(crate) fn page(self, envelopes: Vec<StoredEnvelope>) -> Result<ReadPage, StoreError> {
        let mut envelopes: HashMap<SequenceId, StoredEnvelope> =
            envelopes.into_iter().map(|envelope| (envelope.meta.sequence_id, envelope)).collect();
        let reached = self.cut.unwrap_or(self.topics.len());
        let mut take = |id| {
            envelopes.remove(&id).ok_or_else(|| StoreError::Corrupt(format!("topic index: no envelope {id}")))
        };
        self.topics
            .into_iter()
            .take(reached)
            .map(|topic| {
                let envelopes = topic.ids.into_iter().map(&mut take).collect::<Result<_, _>>()?;
                Ok(TopicPage { envelopes, has_more: topic.has_more })
            })
            .collect()
    }
}
