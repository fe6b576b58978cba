//! What requests may ask for, and what may wait in memory.

use highwater_wire::limits;

use super::ConfigError;
use crate::session::Frame;

/// Bytes that metadata, topic and framing can add to one stored envelope in a response message: hash,
/// topic, four varints of at most ten bytes, tags and lengths, with room to spare (STR-031).
pub(crate) const WORST_METADATA_BYTES: usize = 256;

/// Ceilings. Each is the protocol's number unless a deployment sets another.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is the limit of the same name in highwater_wire::limits")]
pub struct Limits {
    pub max_envelope_bytes: usize,
    pub max_request_bytes: usize,
    pub max_response_bytes: usize,
    pub max_publish_topics: usize,
    pub max_query_topics: usize,
    pub default_query_limit: u32,
    pub max_query_limit: u32,
    pub max_newest_metadata_topics: usize,
    pub max_newest_full_topics: usize,
    pub max_update_adds: usize,
    pub max_update_removes: usize,
    pub max_stream_topics: usize,
    pub max_static_topics: usize,
    pub max_lookup_identifiers: usize,
    pub max_scw_signatures: usize,
    pub max_identity_entries: usize,
    pub max_http2_streams: u32,
    pub updates_per_second: u32,
    pub update_burst: u32,
    pub pings_per_second: u32,
    pub ping_burst: u32,
    pub delivery_frame_target_bytes: usize,
    pub outbound_queue_frames: usize,
    pub outbound_queue_bytes: usize,
    pub fetched_unsent_bytes: usize,
    pub fetch_turn_topics: usize,
    pub fetch_turn_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_envelope_bytes: limits::MAX_ENVELOPE_BYTES,
            max_request_bytes: limits::MAX_REQUEST_BYTES,
            max_response_bytes: limits::MAX_RESPONSE_BYTES,
            max_publish_topics: limits::MAX_PUBLISH_TOPICS,
            max_query_topics: limits::MAX_QUERY_TOPICS,
            default_query_limit: limits::DEFAULT_QUERY_LIMIT,
            max_query_limit: limits::MAX_QUERY_LIMIT,
            max_newest_metadata_topics: limits::MAX_NEWEST_METADATA_TOPICS,
            max_newest_full_topics: limits::MAX_NEWEST_FULL_TOPICS,
            max_update_adds: limits::MAX_UPDATE_ADDS,
            max_update_removes: limits::MAX_UPDATE_REMOVES,
            max_stream_topics: limits::MAX_STREAM_TOPICS,
            max_static_topics: limits::MAX_STATIC_TOPICS,
            max_lookup_identifiers: limits::MAX_LOOKUP_IDENTIFIERS,
            max_scw_signatures: limits::MAX_SCW_SIGNATURES,
            max_identity_entries: limits::MAX_IDENTITY_ENTRIES,
            max_http2_streams: limits::MAX_HTTP2_STREAMS,
            updates_per_second: limits::UPDATES_PER_SECOND,
            update_burst: limits::UPDATE_BURST,
            pings_per_second: limits::PINGS_PER_SECOND,
            ping_burst: limits::PING_BURST,
            delivery_frame_target_bytes: limits::DELIVERY_FRAME_TARGET_BYTES,
            outbound_queue_frames: limits::OUTBOUND_QUEUE_FRAMES,
            outbound_queue_bytes: limits::OUTBOUND_QUEUE_BYTES,
            fetched_unsent_bytes: limits::FETCHED_UNSENT_BYTES,
            fetch_turn_topics: limits::FETCH_TURN_TOPICS,
            fetch_turn_rows: limits::FETCH_TURN_ROWS,
        }
    }
}

impl Limits {
    /// The largest delivered form of a permitted envelope.
    pub(crate) fn worst_delivered_bytes(&self) -> usize {
        self.max_envelope_bytes.saturating_add(WORST_METADATA_BYTES)
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("max_envelope_bytes", self.max_envelope_bytes),
            ("max_publish_topics", self.max_publish_topics),
            ("max_query_topics", self.max_query_topics),
            ("default_query_limit", self.default_query_limit as usize),
            ("max_query_limit", self.max_query_limit as usize),
            ("max_http2_streams", self.max_http2_streams as usize),
            ("updates_per_second", self.updates_per_second as usize),
            ("update_burst", self.update_burst as usize),
            ("pings_per_second", self.pings_per_second as usize),
            ("ping_burst", self.ping_burst as usize),
            ("outbound_queue_frames", self.outbound_queue_frames),
            ("fetch_turn_topics", self.fetch_turn_topics),
            ("fetch_turn_rows", self.fetch_turn_rows),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        // An update's acknowledgement names a target for each topic, and waits like any frame.
        let topics = self.max_update_adds.min(self.max_stream_topics).max(self.max_static_topics);
        let acknowledged = Frame::acknowledgement_bytes(topics);
        if self.outbound_queue_bytes < acknowledged {
            return Err(ConfigError::TooSmall { name: "outbound_queue_bytes", needed: acknowledged });
        }
        if self.max_response_bytes < acknowledged {
            return Err(ConfigError::TooSmall { name: "max_response_bytes", needed: acknowledged });
        }
        let needed = self.worst_delivered_bytes();
        for (name, value) in [
            ("max_request_bytes", self.max_request_bytes),
            ("max_response_bytes", self.max_response_bytes),
            ("delivery_frame_target_bytes", self.delivery_frame_target_bytes),
            ("outbound_queue_bytes", self.outbound_queue_bytes),
            ("fetched_unsent_bytes", self.fetched_unsent_bytes),
        ] {
            if value < needed {
                return Err(ConfigError::TooSmall { name, needed });
            }
        }
        if self.max_response_bytes < self.delivery_frame_target_bytes {
            return Err(ConfigError::TooSmall {
                name: "max_response_bytes",
                needed: self.delivery_frame_target_bytes,
            });
        }
        Ok(())
    }
}
