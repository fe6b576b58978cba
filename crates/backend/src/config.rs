//! What an operator sets: where to listen, where to store, limits and times.

mod database;
mod limits;
mod timing;
mod wallet;

use std::net::{Ipv4Addr, SocketAddr};

pub(crate) use self::limits::WORST_METADATA_BYTES;
pub use self::{
    database::{DatabaseConfig, PostgresConfig},
    limits::Limits,
    timing::Timing,
    wallet::WalletRoute,
};

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
    /// Address of the listener for metrics, liveness and readiness; absent, there is none.
    pub metrics_listen: Option<SocketAddr>,
    /// Where contract wallets' signatures are judged, one route a chain.
    pub wallets: Vec<WalletRoute>,
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
            if !is_origin(origin) {
                return Err(ConfigError::Origin { origin: origin.clone() });
            }
        }
        Ok(())
    }
}

/// Whether it is written as a browser sends it: scheme, lowercase host, and a port unless it is the
/// scheme's own. Anything else would never match.
fn is_origin(text: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(text) else { return false };
    matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
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
            metrics_listen: None,
            wallets: Vec::new(),
        }
    }

    /// Checks that the numbers can work together (STR-031).
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.metrics_listen == Some(self.listen) && self.listen.port() != 0 {
            return Err(ConfigError::SameAddress);
        }
        self.limits.validate()?;
        self.cors.validate()?;
        self.timing.validate()?;
        wallet::validate(&self.wallets)
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
    /// SQLite has as many connections as it needs.
    #[error("max_connections is PostgreSQL's alone")]
    Connections,
    /// Not an origin as browsers send it.
    #[error(
        "`{origin}` is no origin: write https://HOST or https://HOST:PORT as browsers send it: lowercase, no path, no default port"
    )]
    Origin {
        /// What was written.
        origin: String,
    },
    /// The two listeners would share an address.
    #[error("metrics can't have the server's own address")]
    SameAddress,
    /// A number that must be positive is 0.
    #[error("{name} must be greater than 0")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// A permitted envelope could not be delivered (STR-031).
    #[error(
        "{name} must be at least {needed} bytes, so that the largest permitted envelope and acknowledgement fit"
    )]
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
    /// A chain's node has no usable URL; which one isn't said, as it may hold a key.
    #[error("the node of chain {chain_id} must be an http or https URL")]
    WalletUrl {
        /// The chain.
        chain_id: u64,
    },
    /// Two nodes for one chain.
    #[error("chain {chain_id} has two nodes")]
    WalletChainTwice {
        /// The chain.
        chain_id: u64,
    },
    /// No HTTPS client can be made for the chains' nodes.
    #[error("the system's root certificates can't be read, so the chains' nodes can't be called")]
    WalletTls,
}

impl ConfigError {
    /// Never: the same configuration stays wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
