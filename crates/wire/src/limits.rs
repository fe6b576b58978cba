//! The protocol's limits. A deployment may configure other values; these are the defaults of a
//! server and what a client must stay within.

use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Bytes of one encoded `ClientEnvelope`.
pub const MAX_ENVELOPE_BYTES: usize = MIB;
/// Bytes of one request message on the wire.
pub const MAX_REQUEST_BYTES: usize = 25 * MIB;
/// Bytes of one response message on the wire.
pub const MAX_RESPONSE_BYTES: usize = 25 * MIB;
/// Distinct topics of one publish.
pub const MAX_PUBLISH_TOPICS: usize = 1_000;
/// Topics of one Query.
pub const MAX_QUERY_TOPICS: usize = 1_000;
/// Envelopes of a Query page when the request says 0.
pub const DEFAULT_QUERY_LIMIT: u32 = 100;
/// Envelopes of a Query page at most.
pub const MAX_QUERY_LIMIT: u32 = 1_000;
/// Topics of one QueryNewest that asks for metadata.
pub const MAX_NEWEST_METADATA_TOPICS: usize = 1_000;
/// Topics of one QueryNewest that asks for full envelopes.
pub const MAX_NEWEST_FULL_TOPICS: usize = 100;
/// Topics one Update adds.
pub const MAX_UPDATE_ADDS: usize = 100_000;
/// Topics one Update removes.
pub const MAX_UPDATE_REMOVES: usize = 100_000;
/// Topics one Subscribe stream holds.
pub const MAX_STREAM_TOPICS: usize = 100_000;
/// Topics of one SubscribeStatic stream.
pub const MAX_STATIC_TOPICS: usize = 10_000;
/// Identifiers of one GetInboxIds.
pub const MAX_LOOKUP_IDENTIFIERS: usize = 250;
/// Signatures of one VerifySmartContractWalletSignatures.
pub const MAX_SCW_SIGNATURES: usize = 100;
/// Entries of one identity log beyond which no new update is taken.
pub const MAX_IDENTITY_ENTRIES: usize = 256;
/// Concurrent HTTP/2 streams of one connection.
pub const MAX_HTTP2_STREAMS: u32 = 100;

/// Updates a stream may send per second, sustained.
pub const UPDATES_PER_SECOND: u32 = 10;
/// Updates a stream may send at once.
pub const UPDATE_BURST: u32 = 100;
/// Pings a stream may send per second, sustained.
pub const PINGS_PER_SECOND: u32 = 10;
/// Pings a stream may send at once.
pub const PING_BURST: u32 = 100;

/// The server lets no more time pass without a frame.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(30_000);
/// The server waits this long for a Pong; must exceed the keepalive.
pub const PONG_WAIT: Duration = Duration::from_millis(90_000);
const _: () = assert!(PONG_WAIT.as_millis() > KEEPALIVE_INTERVAL.as_millis());
/// How often the server asks its store for what other processes wrote.
pub const STORE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes after which a Messages frame is closed.
pub const DELIVERY_FRAME_TARGET_BYTES: usize = 2 * MIB;
/// Frames that may wait for a slow reader.
pub const OUTBOUND_QUEUE_FRAMES: usize = 64;
/// Bytes that may wait for a slow reader.
pub const OUTBOUND_QUEUE_BYTES: usize = 16 * MIB;
/// Bytes one stream may have fetched but not yet sent.
pub const FETCHED_UNSENT_BYTES: usize = 64 * MIB;
/// Topics of one fetch turn.
pub const FETCH_TURN_TOPICS: usize = 256;
/// Rows of one topic in one fetch turn.
pub const FETCH_TURN_ROWS: usize = 64;

/// One statement of a publish.
pub const PUBLISH_STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// A whole publish.
pub const PUBLISH_LIFETIME: Duration = Duration::from_secs(10);

/// What `expiry_ns` adds to `server_ns` for application messages, Welcomes and key packages.
pub const RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);
