//! What an operator sets: where to listen, where to store, limits and times.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use highwater_wire::limits;
use sqlx::postgres::PgConnectOptions;

/// Bytes that metadata, topic and framing can add to one stored envelope in a response message: hash,
/// topic, four varints of at most ten bytes, tags and lengths, with room to spare (STR-031).
pub(crate) const WORST_METADATA_BYTES: usize = 256;

/// Everything a server is started with. [`ServerConfig::new`] gives the protocol's numbers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Address of the one listener; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where envelopes are stored.
    pub database: DatabaseConfig,
    /// What requests may ask for, and what may wait in memory.
    pub limits: Limits,
    /// Keepalive, deadlines and intervals.
    pub timing: Timing,
    /// Which web pages may use the server.
    pub cors: CorsOrigins,
}

/// Origins of web pages that may use the server from a browser. Nothing here is authorisation: other
/// clients aren't asked for an origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CorsOrigins {
    /// All pages.
    #[default]
    Any,
    /// These, each as `https://host` or `https://host:port`. None at all when the list is empty.
    List(Vec<String>),
}

impl CorsOrigins {
    fn validate(&self) -> Result<(), ConfigError> {
        let Self::List(origins) = self else { return Ok(()) };
        for origin in origins {
            let authority = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
            let plain = |text: &str| {
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@*".contains(&b))
            };
            if !authority.is_some_and(plain) {
                return Err(ConfigError::Origin { origin: origin.clone() });
            }
        }
        Ok(())
    }
}

impl ServerConfig {
    /// A server for `database` on a free loopback port, with the protocol's limits and times.
    pub fn new(database: DatabaseConfig) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            database,
            limits: Limits::default(),
            timing: Timing::default(),
            cors: CorsOrigins::default(),
        }
    }

    /// Checks that the numbers can work together (STR-031).
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.limits.validate()?;
        self.cors.validate()?;
        self.timing.validate()
    }
}

/// Which store to open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DatabaseConfig {
    /// One SQLite file, made when it is missing; for a deployment of one instance.
    Sqlite(PathBuf),
    /// A PostgreSQL database, for any number of instances.
    Postgres(Box<PostgresConfig>),
}

/// A PostgreSQL database and how it is reached. Debug output names no password.
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) primary: PgConnectOptions,
    pub(crate) replica: Option<PgConnectOptions>,
    /// Connections that requests may use, to the primary and to the replica each. A few more are the
    /// instance's own.
    pub max_connections: u32,
}

/// Connections of an instance unless it says otherwise.
const MAX_CONNECTIONS: u32 = 20;

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("host", &self.primary.get_host())
            .field("database", &self.primary.get_database())
            .field("replica", &self.replica.as_ref().map(PgConnectOptions::get_host))
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

impl DatabaseConfig {
    /// The same database with a physical standby that serves QueryNewest and streams.
    ///
    /// # Errors
    /// [`ConfigError::Replica`] for SQLite, or when `url` is none of PostgreSQL.
    pub fn with_replica(self, url: &str) -> Result<Self, ConfigError> {
        match self {
            Self::Sqlite(_) => Err(ConfigError::Replica { reason: "SQLite has no replicas".to_owned() }),
            Self::Postgres(config) => {
                let reason = || ConfigError::Replica { reason: "write postgres://HOST/DATABASE".to_owned() };
                let replica = Some(postgres(url).ok_or_else(reason)?);
                Ok(Self::Postgres(Box::new(PostgresConfig { replica, ..*config })))
            }
        }
    }
}

fn postgres(url: &str) -> Option<PgConnectOptions> {
    let known = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    if known { url.parse().ok() } else { None }
}

impl FromStr for DatabaseConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(primary) = postgres(text) {
            let max_connections = MAX_CONNECTIONS;
            let config = PostgresConfig { primary, replica: None, max_connections };
            return Ok(Self::Postgres(Box::new(config)));
        }
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
            _ => Err(ConfigError::Database),
        }
    }
}

/// The configuration can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The database isn't named in a form this server knows.
    // What was written may hold a password.
    #[error("no database is named: write sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE")]
    Database,
    /// The replica can't be one of this database.
    #[error("the replica can't be used: {reason}")]
    Replica {
        /// Why not.
        reason: String,
    },
    /// Not an origin as browsers send it.
    #[error("`{origin}` is no origin: write https://HOST or https://HOST:PORT, without a path")]
    Origin {
        /// What was written.
        origin: String,
    },
    /// A number that must be positive is 0.
    #[error("{name} must be greater than 0")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// A permitted envelope could not be delivered (STR-031).
    #[error("{name} must be at least {needed} bytes, so that the largest permitted envelope fits")]
    TooSmall {
        /// The setting that is too small.
        name: &'static str,
        /// The least value that works.
        needed: usize,
    },
    /// Two settings contradict each other.
    #[error("{greater} must exceed {smaller}")]
    Order {
        /// The setting that must be greater.
        greater: &'static str,
        /// The setting it must exceed.
        smaller: &'static str,
    },
}

impl ConfigError {
    /// Never: the same configuration stays wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Ceilings. Each is the protocol's number unless a deployment sets another.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    fn validate(&self) -> Result<(), ConfigError> {
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

/// Times. The protocol's numbers by default; tests shorten them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// A stream never stays silent longer than this.
    pub keepalive: Duration,
    /// How long after its transport handoff a Ping may go unanswered (STR-034).
    pub pong_wait: Duration,
    /// How long the transport may take no queued frame before the reader counts as too slow.
    pub stall_wait: Duration,
    /// How long a stream that ends by itself may still hand over what it had queued.
    pub flush_wait: Duration,
    /// How often the tailer looks at the store without having been woken.
    pub store_poll: Duration,
    /// A statement of a publish, and any single read of the store.
    pub statement_timeout: Duration,
    /// A whole publish.
    pub publish_lifetime: Duration,
    /// Interval of HTTP/2 PINGs, which find connections whose peer vanished.
    pub http2_ping_interval: Duration,
    /// How long an HTTP/2 PING may go unanswered.
    pub http2_ping_timeout: Duration,
    /// How long sent bytes may go unacknowledged before a connection counts as broken, where the system
    /// can be told so.
    pub tcp_user_timeout: Duration,
    /// How long a shutdown waits for requests in flight before it cuts connections.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            keepalive: limits::KEEPALIVE_INTERVAL,
            pong_wait: limits::PONG_WAIT,
            stall_wait: limits::PONG_WAIT,
            flush_wait: Duration::from_secs(1),
            store_poll: limits::STORE_POLL_INTERVAL,
            statement_timeout: limits::PUBLISH_STATEMENT_TIMEOUT,
            publish_lifetime: limits::PUBLISH_LIFETIME,
            http2_ping_interval: Duration::from_secs(30),
            http2_ping_timeout: Duration::from_secs(20),
            tcp_user_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(10),
        }
    }
}

impl Timing {
    fn validate(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("keepalive", self.keepalive),
            ("stall_wait", self.stall_wait),
            ("store_poll", self.store_poll),
            ("statement_timeout", self.statement_timeout),
            ("publish_lifetime", self.publish_lifetime),
            ("http2_ping_interval", self.http2_ping_interval),
            ("http2_ping_timeout", self.http2_ping_timeout),
            ("tcp_user_timeout", self.tcp_user_timeout),
        ] {
            if value.is_zero() {
                return Err(ConfigError::Zero { name });
            }
        }
        if self.pong_wait <= self.keepalive {
            return Err(ConfigError::Order { greater: "pong_wait", smaller: "keepalive" });
        }
        Ok(())
    }

    /// The keepalive as Started names it.
    pub(crate) fn keepalive_ms(&self) -> u32 {
        u32::try_from(self.keepalive.as_millis()).unwrap_or(u32::MAX)
    }
}
