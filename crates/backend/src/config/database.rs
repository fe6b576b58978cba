//! Which database envelopes are stored in, and how it is reached.

use std::{path::PathBuf, str::FromStr};

use sqlx::postgres::PgConnectOptions;

use super::ConfigError;

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
    /// Connections that requests may use: to the primary, half of them for publishes and half for reads,
    /// and as many to the replica. Three more to the primary are the instance's own.
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

impl DatabaseConfig {
    /// The same database over so many connections of an instance, to the primary and to the replica each.
    ///
    /// # Errors
    /// [`ConfigError::Zero`]; [`ConfigError::Connections`] for SQLite.
    pub fn with_max_connections(self, max_connections: u32) -> Result<Self, ConfigError> {
        match self {
            _ if max_connections == 0 => Err(ConfigError::Zero { name: "max_connections" }),
            Self::Sqlite(_) => Err(ConfigError::Connections),
            Self::Postgres(config) => {
                Ok(Self::Postgres(Box::new(PostgresConfig { max_connections, ..*config })))
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
            // Other tools' forms would be taken for a file name that nobody meant.
            Some(path) if path.contains('?') || path.starts_with(':') => Err(ConfigError::Database),
            Some(path) if path.starts_with("//") && !path.starts_with("///") => Err(ConfigError::Database),
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
            _ => Err(ConfigError::Database),
        }
    }
}
