//! Ordered pages, and the newest envelope of each topic.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::limits::{
    DEFAULT_QUERY_LIMIT, MAX_NEWEST_FULL_TOPICS, MAX_NEWEST_METADATA_TOPICS, MAX_QUERY_LIMIT,
    MAX_QUERY_TOPICS,
};
use highwater_wire::proto::backend::{
    QueryNewestRequest, QueryRequest, QueryResponse, ServerEnvelope, TopicQuery, query_newest_response,
};
use highwater_wire::{Cursor, OrderedPrefix, PrefixCursor, ReceivedEnvelope, SequenceId, Topic, received};

use crate::arrived::{by_topic, stored};
use crate::{Connection, TransportError};

/// One answer to an ordered read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryPage {
    /// One prefix for each topic that has something in this page; none is empty.
    pub prefixes: Vec<OrderedPrefix>,
    /// Whether anything eligible was left out. Then `prefixes` isn't empty.
    pub has_more: bool,
}

impl Connection {
    /// Reads each topic from its exclusive start, at most `limit` envelopes in all (0 for the
    /// protocol's default of 100; 1,000 at most). A topic named twice is read from its lowest start.
    ///
    /// More topics than one request takes are asked for in several, in the order given, until the
    /// limit is used up. A page too long for one message is asked for again with half the limit.
    ///
    /// # Errors
    /// [`TransportError::InvalidArgument`], unsent, for a topic that has no ordered read;
    /// [`TransportError::Protocol`] for an answer that isn't what was asked for; the backend's own.
    pub async fn query(&self, queries: &[(Topic, Cursor)], limit: u32) -> Result<QueryPage, TransportError> {
        if let Some((topic, _)) = queries.iter().find(|(topic, _)| !topic.kind().is_ordered()) {
            return Err(TransportError::invalid(format!("{topic:?} has no ordered read")));
        }
        let mut left = match limit {
            0 => DEFAULT_QUERY_LIMIT,
            limit => limit.min(MAX_QUERY_LIMIT),
        };
        let mut page = QueryPage { prefixes: Vec::new(), has_more: false };
        for chunk in once_each(queries).chunks(MAX_QUERY_TOPICS) {
            if left == 0 {
                page.has_more = true;
                break;
            }
            let part = self.query_fitting(chunk, left).await?;
            let rows: usize = part.prefixes.iter().map(OrderedPrefix::len).sum();
            left = left.saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX));
            page.prefixes.extend(part.prefixes);
            page.has_more |= part.has_more;
        }
        Ok(page)
    }

    async fn query_fitting(
        &self,
        queries: &[(Topic, Cursor)],
        mut limit: u32,
    ) -> Result<QueryPage, TransportError> {
        loop {
            let request = QueryRequest { queries: topic_queries(queries), limit };
            match self.answered(self.queries().query(request)).await {
                Ok(response) => return page(queries, limit, response),
                Err(TransportError::OutOfRange { .. }) if limit > 1 => limit /= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// The newest sequence id of each topic; a topic without an envelope is absent. Says what to
    /// fetch, never what was received (STR-062).
    ///
    /// # Errors
    /// [`TransportError::Protocol`] for an answer that isn't what was asked for; the backend's own.
    pub async fn query_newest(
        &self,
        topics: &[Topic],
    ) -> Result<BTreeMap<Topic, SequenceId>, TransportError> {
        let mut newest = BTreeMap::new();
        for chunk in distinct(topics).chunks(MAX_NEWEST_METADATA_TOPICS) {
            for (topic, result) in self.newest(chunk, false).await? {
                let meta = result.meta.ok_or_else(|| TransportError::protocol("no metadata"))?;
                let meta = stored(meta)?;
                if meta.topic != topic {
                    return Err(another(topic, meta.topic));
                }
                newest.insert(topic, meta.sequence_id);
            }
        }
        Ok(newest)
    }

    /// The newest envelope of each topic; a topic without one is absent. Not admissible: nothing is
    /// known of what lies before it (STR-062).
    ///
    /// An answer too long for one message is asked for again in halves.
    ///
    /// # Errors
    /// As [`Connection::query_newest`].
    pub async fn query_newest_full(
        &self,
        topics: &[Topic],
    ) -> Result<BTreeMap<Topic, ReceivedEnvelope>, TransportError> {
        let topics = distinct(topics);
        let mut newest = BTreeMap::new();
        let mut rest = topics.as_slice();
        let mut at_once = MAX_NEWEST_FULL_TOPICS;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(at_once.min(rest.len()));
            let results = match self.newest(chunk, true).await {
                Err(TransportError::OutOfRange { .. }) if chunk.len() > 1 => {
                    at_once = chunk.len() / 2;
                    continue;
                }
                results => results?,
            };
            for (topic, result) in results {
                let (meta, envelope) = (result.meta, result.envelope);
                let envelope = received(ServerEnvelope { meta, envelope })
                    .map_err(|error| TransportError::protocol(error.to_string()))?;
                if envelope.topic() != topic {
                    return Err(another(topic, envelope.topic()));
                }
                newest.insert(topic, envelope);
            }
            rest = after;
        }
        Ok(newest)
    }

    /// One QueryNewest, its results matched by topic.
    async fn newest(
        &self,
        topics: &[Topic],
        include_full_envelope: bool,
    ) -> Result<BTreeMap<Topic, query_newest_response::Result>, TransportError> {
        let request = QueryNewestRequest {
            topics: topics.iter().map(Topic::to_proto).collect(),
            include_full_envelope,
        };
        let response = self.answered(self.queries().query_newest(request)).await?;
        let asked: BTreeSet<_> = topics.iter().copied().collect();
        let mut results = BTreeMap::new();
        for mut result in response.results {
            let topic = result.topic.take();
            let topic = topic.ok_or_else(|| TransportError::protocol("a result names no topic"))?;
            let topic = Topic::try_from(topic)
                .map_err(|error| TransportError::protocol(format!("a result's topic: {error}")))?;
            if !asked.contains(&topic) {
                return Err(unasked(topic));
            }
            if results.insert(topic, result).is_some() {
                return Err(TransportError::protocol(format!("two results for {topic:?}")));
            }
        }
        Ok(results)
    }
}

pub(crate) fn topic_queries(queries: &[(Topic, Cursor)]) -> Vec<TopicQuery> {
    let query = |(topic, after): &(Topic, Cursor)| TopicQuery {
        topic: Some(topic.to_proto()),
        cursor: Some((*after).into()),
    };
    queries.iter().map(query).collect()
}

/// Each topic at its first place, with its lowest start.
fn once_each(queries: &[(Topic, Cursor)]) -> Vec<(Topic, Cursor)> {
    let mut starts: BTreeMap<Topic, Cursor> = BTreeMap::new();
    for (topic, after) in queries {
        let lowest = starts.entry(*topic).or_insert(*after);
        *lowest = (*lowest).min(*after);
    }
    queries.iter().filter_map(|(topic, _)| starts.remove_entry(topic)).collect()
}

fn distinct(topics: &[Topic]) -> Vec<Topic> {
    topics.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Checks an answer against the request it answers.
fn page(
    queries: &[(Topic, Cursor)],
    limit: u32,
    response: QueryResponse,
) -> Result<QueryPage, TransportError> {
    let has_more = response.continuation.is_some_and(|continuation| continuation.has_more);
    if response.envelopes.len() > limit as usize {
        return Err(TransportError::protocol("a page longer than its limit"));
    }
    if has_more && response.envelopes.is_empty() {
        return Err(TransportError::protocol("an empty page, and more to come"));
    }
    let starts: BTreeMap<_, _> = queries.iter().copied().collect();
    let mut prefixes = Vec::new();
    for (topic, envelopes) in by_topic(response.envelopes)? {
        let after = *starts.get(&topic).ok_or_else(|| unasked(topic))?;
        let prefix = PrefixCursor::new(topic, after)
            .extend(envelopes)
            .map_err(|error| TransportError::protocol(format!("{topic:?}: {error}")))?;
        prefixes.push(prefix);
    }
    Ok(QueryPage { prefixes, has_more })
}

fn unasked(topic: Topic) -> TransportError {
    TransportError::protocol(format!("{topic:?} came without being asked for"))
}

fn another(topic: Topic, found: Topic) -> TransportError {
    TransportError::protocol(format!("metadata of {found:?} came for {topic:?}"))
}
