//! What the server needs of a database. One trait; every engine passes the same suite.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bytes::Bytes;
use highwater_identity::LogEntry;
use highwater_wire::{
    Cursor, InboxId, MessageHash, SequenceId, Topic,
    proto::{associations::IdentifierKind, backend},
};
use prost::Message as _;
use tokio::sync::watch;

/// A failure of the store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database can't be reached, is locked by another process, or is shutting down.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The database answered too late.
    #[error("the store took longer than {0:?}")]
    TimedOut(Duration),
    /// The store no longer shows what it showed before: its database was swapped for an older copy. What
    /// was read before can't be relied on.
    #[error("the store went back: {0}")]
    WentBack(String),
    /// A stored value breaks an invariant.
    #[error("a stored value breaks an invariant: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Corrupt(_))
    }
}

/// What the store says about an envelope it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMeta {
    /// The topic.
    pub topic: Topic,
    /// Its id.
    pub sequence_id: SequenceId,
    /// SHA-256 of the stored bytes.
    pub hash: MessageHash,
    /// The store's clock at its publish, nanoseconds since the Unix epoch.
    pub server_ns: i64,
    /// When it may be forgotten, 0 for never. Metadata only.
    pub expiry_ns: i64,
    /// Whether it is an MLS commit or proposal.
    pub is_commit_or_proposal: bool,
}

impl StoredMeta {
    /// The wire form.
    pub fn to_proto(&self) -> backend::EnvelopeMeta {
        backend::EnvelopeMeta {
            cursor: Some(self.sequence_id.into()),
            server_ns: u64::try_from(self.server_ns).unwrap_or(0),
            message_hash: Some(self.hash.into()),
            topic: Some(self.topic.to_proto()),
            expiry_ns: u64::try_from(self.expiry_ns).unwrap_or(0),
            is_commit_or_proposal: self.is_commit_or_proposal,
        }
    }
}

/// A stored envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEnvelope {
    /// Its metadata.
    pub meta: StoredMeta,
    /// The encoded `ClientEnvelope`.
    pub payload: Bytes,
}

impl StoredEnvelope {
    /// The payload, decoded.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: only decodable payloads were ever stored.
    pub fn client_envelope(&self) -> Result<backend::ClientEnvelope, StoreError> {
        backend::ClientEnvelope::decode(self.payload.clone())
            .map_err(|error| StoreError::Corrupt(format!("payload of {:?}: {error}", self.meta.sequence_id)))
    }

    /// The wire form.
    ///
    /// # Errors
    /// As [`StoredEnvelope::client_envelope`].
    pub fn to_proto(&self) -> Result<backend::ServerEnvelope, StoreError> {
        Ok(backend::ServerEnvelope {
            meta: Some(self.meta.to_proto()),
            envelope: Some(self.client_envelope()?),
        })
    }
}

/// The key under which a publish is idempotent.
pub type EnvelopeKey = (Topic, MessageHash);

/// What one snapshot knows that bears on a publish.
#[derive(Debug, Default)]
pub struct AdmissionView {
    /// Which of the asked envelopes are stored.
    pub stored: HashMap<EnvelopeKey, StoredMeta>,
    /// The whole identity log of each asked inbox, ascending.
    pub histories: BTreeMap<InboxId, Vec<LogEntry>>,
}

/// An envelope to store.
#[derive(Debug, Clone)]
pub struct NewEnvelope {
    /// Its topic.
    pub topic: Topic,
    /// SHA-256 of `payload`.
    pub hash: MessageHash,
    /// The encoded `ClientEnvelope`.
    pub payload: Bytes,
    /// What `expiry_ns` adds to `server_ns`; `None` never expires.
    pub retention: Option<Duration>,
    /// Whether it is an MLS commit or proposal.
    pub is_commit_or_proposal: bool,
    /// For an identity update that was checked against a history.
    pub identity: Option<IdentityChange>,
}

/// What a checked identity update rests on and changes.
#[derive(Debug, Clone)]
pub struct IdentityChange {
    /// Where the history ended that the update was checked against.
    pub head: Cursor,
    /// Identifiers that the inbox gains.
    pub gained: Vec<Identifier>,
    /// Identifiers that the inbox loses.
    pub lost: Vec<Identifier>,
}

/// An identifier that GetInboxIds can look up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier {
    /// Ethereum or passkey, never unspecified.
    pub kind: IdentifierKind,
    /// Lowercase text.
    pub text: String,
}

/// How a commit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// All envelopes are stored; metadata in the given order, duplicates with what was stored before.
    Stored(Vec<StoredMeta>),
    /// An identity log grew after its history was read. Nothing was stored.
    HistoryMoved,
}

/// Which copy of the data an ordered read is answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The database that publishes go to: a reader sees what it wrote.
    Primary,
    /// The database that streams are served from; it may lag behind.
    Serving,
}

/// One topic of an ordered read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicRead {
    /// The topic.
    pub topic: Topic,
    /// The exclusive start.
    pub after: Cursor,
}

/// How much one ordered read may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadBounds {
    /// Rows of one topic.
    pub rows_per_topic: usize,
    /// Rows in all.
    pub rows: usize,
    /// Bytes of payload and metadata in all. The first row is returned whatever its size.
    pub bytes: usize,
}

/// What an ordered read returned for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    /// Ascending, without a hole above the start.
    pub envelopes: Vec<StoredEnvelope>,
    /// Whether the same snapshot holds more above the last of them.
    pub has_more: bool,
}

/// The pages of the topics that were reached, in the order asked; the rest was cut off by a bound.
pub type ReadPage = Vec<TopicPage>;

/// Something new on a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The topic.
    pub topic: Topic,
    /// The new envelope's id.
    pub sequence_id: SequenceId,
    /// Bytes of its payload.
    pub bytes: usize,
}

/// Use of a pool of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// Which pool; a fixed name.
    pub name: &'static str,
    /// Connections there are.
    pub open: u32,
    /// Those of them that nobody uses.
    pub idle: u32,
    /// The most there may be.
    pub max: u32,
}

impl PoolUse {
    pub(crate) fn of<DB: sqlx::Database>(name: &'static str, pool: &sqlx::Pool<DB>) -> Self {
        Self {
            name,
            open: pool.size(),
            idle: u32::try_from(pool.num_idle()).unwrap_or(u32::MAX),
            max: pool.options().get_max_connections(),
        }
    }
}

/// Follows everything that becomes visible. Per topic the ids rise; nothing is left out, whatever
/// failed in between.
#[tonic::async_trait]
pub trait Tail: Send {
    /// What became visible since the last successful call, at most a bounded batch; empty when there
    /// is nothing new.
    ///
    /// # Errors
    /// When the store can't be read. The next call continues where the last successful one ended.
    async fn next(&mut self) -> Result<Vec<Arrival>, StoreError>;

    /// Ids below the greatest one seen that may still become visible.
    fn gaps(&self) -> usize {
        0
    }
}

/// An envelope store. All calls are cancel-safe: a dropped call either took effect wholly or not at
/// all.
#[tonic::async_trait]
pub trait EnvelopeStore: Send + Sync + 'static {
    /// Reads, in one snapshot, which of `keys` are stored and the full logs of `inboxes`.
    async fn admission_view(
        &self,
        keys: &[EnvelopeKey],
        inboxes: &[InboxId],
    ) -> Result<AdmissionView, StoreError>;

    /// Stores all envelopes or none. Sequence ids are allocated after every lock is held; a key that
    /// is stored already, or occurs earlier in `envelopes`, is answered with the stored metadata.
    async fn commit(&self, envelopes: &[NewEnvelope]) -> Result<Committed, StoreError>;

    /// Reads on from the given places, from one snapshot of what every commit so far has made visible
    /// in the source.
    async fn read_after(
        &self,
        source: Source,
        reads: &[TopicRead],
        bounds: ReadBounds,
    ) -> Result<ReadPage, StoreError>;

    /// The given envelopes, from the serving database; ids that are not stored are left out.
    async fn read_ids(&self, ids: &[SequenceId]) -> Result<Vec<StoredEnvelope>, StoreError>;

    /// The greatest visible id of each topic that has one, in the serving database.
    async fn heads(&self, topics: &[Topic]) -> Result<HashMap<Topic, SequenceId>, StoreError>;

    /// What is known of the newest envelope of each topic that has one, in the serving database.
    async fn newest(&self, topics: &[Topic]) -> Result<Vec<StoredMeta>, StoreError>;

    /// The inbox of each identifier that has one now.
    async fn inbox_ids(&self, identifiers: &[Identifier])
    -> Result<HashMap<Identifier, InboxId>, StoreError>;

    /// Starts following the serving database at its present end.
    async fn tail(&self) -> Result<Box<dyn Tail>, StoreError>;

    /// Whether publishes can reach their database. Asked while something doesn't work, so it may cost
    /// as much as a small write.
    async fn probe(&self) -> Result<(), StoreError>;

    /// How the pools of connections are used.
    fn pools(&self) -> Vec<PoolUse> {
        Vec::new()
    }

    /// Changes whenever something may have become visible. A hint: the tailer polls as well.
    fn hints(&self) -> watch::Receiver<u64>;

    /// Waits for running calls and closes; later calls are [`StoreError::Unavailable`].
    async fn close(&self);
}
