//! What a session has admitted for its reader and not yet handed to the transport.
//!
//! Bounded in frames and bytes. Envelopes may use only a part of both bounds, so that an
//! acknowledgement always finds room beside a backlog that a slow reader leaves standing; what finds
//! no room stays in the store and is read again later (STR-030).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use highwater_wire::{SequenceId, Topic, proto::backend};
use prost::Message as _;

use crate::{
    config::Limits,
    store::{StoreError, StoredEnvelope},
};

/// An envelope in its delivered form, shared by all streams it goes to.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) topic: Topic,
    pub(crate) sequence_id: SequenceId,
    /// Bytes it adds to a frame.
    pub(crate) bytes: usize,
    pub(crate) envelope: backend::ServerEnvelope,
    /// For one that arrived while it was waited for: the server's time, since the Unix epoch.
    pub(crate) live_since: Option<Duration>,
}

impl Delivery {
    pub(crate) fn new(stored: &StoredEnvelope) -> Result<Self, StoreError> {
        let envelope = stored.to_proto()?;
        Ok(Self {
            topic: stored.meta.topic,
            sequence_id: stored.meta.sequence_id,
            // Tag and length prefix of a repeated field.
            bytes: envelope.encoded_len() + 6,
            envelope,
            live_since: None,
        })
    }

    /// One that just became visible.
    pub(crate) fn live(stored: &StoredEnvelope) -> Result<Self, StoreError> {
        let at = Duration::from_nanos(u64::try_from(stored.meta.server_ns).unwrap_or(0));
        Ok(Self { live_since: Some(at), ..Self::new(stored)? })
    }
}

/// One message to the reader, before it takes the form of either stream.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    /// The stream is open; the targets are a static stream's only.
    Started { targets: Vec<(Topic, u64)> },
    /// An update took effect.
    Applied { id: u64, targets: Vec<(Topic, u64)> },
    /// Envelopes, ascending per topic.
    Messages(Vec<Arc<Delivery>>),
    /// A challenge.
    Ping(u64),
    /// The answer to the reader's Ping.
    Pong(u64),
    /// A static stream's sign of life.
    Keepalive,
}

impl Frame {
    /// What an acknowledgement of so many added topics takes.
    pub(crate) fn acknowledgement_bytes(topics: usize) -> usize {
        // A target: topic of 33 bytes, id of at most 10, tags and lengths.
        const TARGET_BYTES: usize = 56;
        32 + topics * TARGET_BYTES
    }

    fn control_bytes(&self) -> usize {
        match self {
            Self::Started { targets } | Self::Applied { targets, .. } => {
                Self::acknowledgement_bytes(targets.len())
            }
            Self::Messages(_) | Self::Ping(_) | Self::Pong(_) | Self::Keepalive => 16,
        }
    }
}

#[derive(Debug)]
struct Queued {
    frame: Frame,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Outbound {
    queue: VecDeque<Queued>,
    bytes: usize,
    max_frames: usize,
    max_bytes: usize,
    data_frames: usize,
    data_bytes: usize,
    frame_target: usize,
}

/// There is no room, and waiting is no option.
#[derive(Debug)]
pub(super) struct Full;

impl Outbound {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            max_frames: limits.outbound_queue_frames,
            max_bytes: limits.outbound_queue_bytes,
            data_frames: (limits.outbound_queue_frames / 4 * 3).max(1),
            data_bytes: (limits.outbound_queue_bytes / 2).max(limits.worst_delivered_bytes()),
            frame_target: limits.delivery_frame_target_bytes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Admits a frame that isn't envelopes.
    pub(super) fn push(&mut self, frame: Frame) -> Result<(), Full> {
        let bytes = frame.control_bytes();
        if self.queue.len() >= self.max_frames || self.bytes + bytes > self.max_bytes {
            return Err(Full);
        }
        self.bytes += bytes;
        self.queue.push_back(Queued { frame, bytes });
        Ok(())
    }

    /// Whether the last frame is a sign of life that a second one would only repeat.
    pub(super) fn ends_in_keepalive(&self) -> bool {
        matches!(self.queue.back(), Some(Queued { frame: Frame::Keepalive, .. }))
    }

    /// Admits an envelope if it fits beside `reserved` bytes: into the last frame while that is below
    /// its target, else into a frame of its own.
    pub(super) fn push_delivery(&mut self, delivery: &Arc<Delivery>, reserved: usize) -> Result<(), Full> {
        if self.bytes + reserved + delivery.bytes > self.data_bytes {
            return Err(Full);
        }
        if let Some(Queued { frame: Frame::Messages(envelopes), bytes }) = self.queue.back_mut()
            && *bytes + delivery.bytes <= self.frame_target
        {
            envelopes.push(Arc::clone(delivery));
            *bytes += delivery.bytes;
        } else {
            if self.queue.len() >= self.data_frames {
                return Err(Full);
            }
            let frame = Frame::Messages(vec![Arc::clone(delivery)]);
            self.queue.push_back(Queued { frame, bytes: delivery.bytes });
        }
        self.bytes += delivery.bytes;
        Ok(())
    }

    /// Bytes of envelopes that a fetch may bring: 0 until there is room for a whole frame, so that a
    /// slow reader isn't served in crumbs.
    pub(super) fn fetch_room(&self) -> usize {
        // Two consecutive frames of envelopes hold more than one target together.
        let slots = self.data_frames.saturating_sub(self.queue.len());
        let by_frames = (slots / 2).max(usize::from(slots == 1 && self.queue.is_empty())) * self.frame_target;
        let room = self.data_bytes.saturating_sub(self.bytes).min(by_frames);
        if room >= self.frame_target.min(self.data_bytes) { room } else { 0 }
    }

    pub(super) fn pop(&mut self) -> Option<Frame> {
        let queued = self.queue.pop_front()?;
        self.bytes -= queued.bytes;
        Some(queued.frame)
    }
}
