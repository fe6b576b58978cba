//! Who wants to hear of arrivals on which topic, and the mailbox in which each stream finds them.
//!
//! The tailer never waits for a stream: a mailbox that holds too much keeps only the greatest id of
//! each further topic, and its stream reads the envelopes from the store (STR-031).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use highwater_wire::{SequenceId, Topic};
use tokio::sync::Notify;
use tonic::Status;

use crate::{metrics::Metrics, session::Delivery};

/// Topics registered under one hold of the lock, so that a huge update doesn't hold up the tailer.
const LOCK_BATCH: usize = 1_024;

/// All registrations of one instance.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    metrics: Metrics,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next_stream: u64,
    streams: HashMap<u64, Arc<Mailbox>>,
    topics: HashMap<Topic, Vec<u64>>,
}

/// What arrived for one stream and has not been looked at.
#[derive(Debug)]
pub(crate) struct Mailbox {
    max_bytes: usize,
    inner: Mutex<Arrived>,
    wake: Notify,
    metrics: Metrics,
}

/// The content of a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// Envelopes, in order per topic.
    pub(crate) live: VecDeque<Arc<Delivery>>,
    live_bytes: usize,
    /// For topics whose envelopes found no room: the greatest id, above all of theirs in `live`.
    pub(crate) notices: HashMap<Topic, SequenceId>,
    /// Why the stream must end.
    pub(crate) failed: Option<Status>,
}

impl Arrived {
    fn is_empty(&self) -> bool {
        self.live.is_empty() && self.notices.is_empty() && self.failed.is_none()
    }
}

impl Mailbox {
    fn new(max_bytes: usize, metrics: Metrics) -> Self {
        Self { max_bytes, inner: Mutex::default(), wake: Notify::new(), metrics }
    }

    /// Waits for content and takes it all. Cancel-safe.
    pub(crate) async fn take(&self) -> Arrived {
        loop {
            let woken = self.wake.notified();
            let arrived = std::mem::take(&mut *lock(&self.inner));
            if !arrived.is_empty() {
                return arrived;
            }
            woken.await;
        }
    }

    fn put(&self, delivery: &Arc<Delivery>) {
        let mut inner = lock(&self.inner);
        if inner.notices.contains_key(&delivery.topic) || inner.live_bytes + delivery.bytes > self.max_bytes {
            // The tailer delivers ids of a topic in rising order.
            inner.notices.insert(delivery.topic, delivery.sequence_id);
            self.metrics.mailbox_overflowed();
        } else {
            inner.live_bytes += delivery.bytes;
            inner.live.push_back(Arc::clone(delivery));
        }
        drop(inner);
        self.wake.notify_one();
    }

    fn fail(&self, status: &Status) {
        lock(&self.inner).failed.get_or_insert_with(|| status.clone());
        self.wake.notify_one();
    }
}

/// How many streams and registrations a server holds; cheap to clone, valid after the server is gone.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Registry>);

impl Activity {
    pub(crate) fn of(registry: &Arc<Registry>) -> Self {
        Self(Arc::clone(registry))
    }

    /// Open streams.
    pub fn streams(&self) -> usize {
        lock(&self.0.inner).streams.len()
    }

    /// Topics registered, over all streams.
    pub fn registrations(&self) -> usize {
        lock(&self.0.inner).topics.values().map(Vec::len).sum()
    }
}

/// One stream's place in the registry; dropping it removes every trace of the stream.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    registry: Arc<Registry>,
    stream: u64,
    topics: std::collections::HashSet<Topic>,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Registry {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, inner: Mutex::default() }
    }

    /// Adds a stream without topics.
    pub(crate) fn open(self: &Arc<Self>, max_mailbox_bytes: usize) -> StreamHandle {
        let mailbox = Arc::new(Mailbox::new(max_mailbox_bytes, self.metrics.clone()));
        let mut inner = lock(&self.inner);
        let stream = inner.next_stream;
        inner.next_stream += 1;
        inner.streams.insert(stream, Arc::clone(&mailbox));
        StreamHandle { registry: Arc::clone(self), stream, topics: std::collections::HashSet::new(), mailbox }
    }

    /// Whether any stream wants the topic.
    pub(crate) fn wants(&self, topic: &Topic) -> bool {
        lock(&self.inner).topics.contains_key(topic)
    }

    /// Gives an envelope to every stream that wants its topic. Never waits.
    pub(crate) fn dispatch(&self, delivery: &Arc<Delivery>) {
        let inner = lock(&self.inner);
        for stream in inner.topics.get(&delivery.topic).into_iter().flatten() {
            if let Some(mailbox) = inner.streams.get(stream) {
                mailbox.put(delivery);
            }
        }
    }

    /// Ends every stream.
    pub(crate) fn fail_all(&self, status: &Status) {
        for mailbox in lock(&self.inner).streams.values() {
            mailbox.fail(status);
        }
    }
}

impl StreamHandle {
    /// From now on arrivals on these topics reach the mailbox.
    pub(crate) fn register(&mut self, topics: &[Topic]) {
        for batch in topics.chunks(LOCK_BATCH) {
            let mut inner = lock(&self.registry.inner);
            for topic in batch {
                if self.topics.insert(*topic) {
                    inner.topics.entry(*topic).or_default().push(self.stream);
                    self.registry.metrics.registered(1);
                }
            }
        }
    }

    /// Stops that.
    pub(crate) fn deregister(&mut self, topics: &[Topic]) {
        for batch in topics.chunks(LOCK_BATCH) {
            let mut inner = lock(&self.registry.inner);
            for topic in batch {
                if self.topics.remove(topic) {
                    inner.remove(topic, self.stream);
                    self.registry.metrics.deregistered(1);
                }
            }
        }
    }

    /// Stops it for all topics.
    pub(crate) fn clear(&mut self) {
        let topics: Vec<Topic> = self.topics.drain().collect();
        self.registry.metrics.deregistered(topics.len());
        for batch in topics.chunks(LOCK_BATCH) {
            let mut inner = lock(&self.registry.inner);
            for topic in batch {
                inner.remove(topic, self.stream);
            }
        }
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.clear();
        lock(&self.registry.inner).streams.remove(&self.stream);
    }
}

impl Inner {
    fn remove(&mut self, topic: &Topic, stream: u64) {
        if let Some(streams) = self.topics.get_mut(topic) {
            streams.retain(|found| *found != stream);
            if streams.is_empty() {
                self.topics.remove(topic);
            }
        }
    }
}

/// No code panics while it holds one of these locks half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
