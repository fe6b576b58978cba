//! The configuration file: TOML, in which an unknown key is an error, and any value that is a secret may
//! be `env:NAME`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use serde::Deserialize;

use crate::config::{ConfigError, CorsOrigins, DatabaseConfig, Limits, ServerConfig, Timing, WalletRoute};

/// The port of a server whose file names no address.
const PORT: u16 = 5050;

/// What a configuration file says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// What the server is started with. Checked.
    pub server: ServerConfig,
    /// What it writes down about itself.
    pub logs: LogSettings,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
    /// Which lines are written, in the form of `tracing_subscriber::EnvFilter`: a level, or targets with
    /// levels.
    pub filter: String,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::default(), filter: "info".to_owned() }
    }
}

/// The configuration file can't be used. No message holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file can't be read.
    #[error("can't read the configuration: {0}")]
    Unreadable(#[from] std::io::Error),
    /// Not TOML, an unknown key, or a value of another type.
    #[error("line {line}: {message}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A secret's variable isn't set, or isn't text.
    #[error("{key} is env:{variable}, but the environment has no such variable")]
    NoVariable {
        /// The key that names it.
        key: &'static str,
        /// The variable.
        variable: String,
    },
    /// A database key can't be used.
    #[error("{key}: {source}")]
    Database {
        /// The key.
        key: &'static str,
        /// Why not.
        source: ConfigError,
    },
    /// The values can't work together.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl SettingsError {
    /// Never: the same file stays wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: ServerSection,
    database: DatabaseSection,
    #[serde(default)]
    logs: LogSettings,
    #[serde(default)]
    metrics: MetricsSection,
    #[serde(default)]
    wallets: Vec<WalletSection>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    timing: Timing,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ServerSection {
    listen: SocketAddr,
    /// Absent: all.
    cors_origins: Option<Vec<String>>,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), cors_origins: None }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MetricsSection {
    listen: Option<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WalletSection {
    chain_id: u64,
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabaseSection {
    url: String,
    replica_url: Option<String>,
    max_connections: Option<u32>,
}

impl Settings {
    /// Reads and checks a file, with secrets from this process's environment.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        Self::parse(&std::fs::read_to_string(path)?, |variable| std::env::var(variable).ok())
    }

    /// As [`Settings::read`], from text, with `variable` to look secrets up.
    ///
    /// # Errors
    /// [`SettingsError`].
    ///
    /// # Examples
    /// ```
    /// use highwater_backend::Settings;
    ///
    /// let settings = Settings::parse("[database]\nurl = \"env:DB\"", |_| Some("sqlite:x.db".into()))?;
    /// assert_eq!(settings.server.listen.port(), 5050);
    /// # Ok::<(), highwater_backend::SettingsError>(())
    /// ```
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let file: File = toml::from_str(text).map_err(|error| SettingsError::Malformed {
            line: 1 + text[..error.span().map_or(0, |span| span.start)].matches('\n').count(),
            message: without_urls(error.message()),
        })?;
        let secrets = Secrets(&variable);
        let mut server = ServerConfig::new(database(&file.database, &secrets)?);
        server.listen = file.server.listen;
        server.cors = file.server.cors_origins.map_or(CorsOrigins::Any, CorsOrigins::List);
        server.metrics_listen = file.metrics.listen;
        for WalletSection { chain_id, url } in &file.wallets {
            let url = secrets.get("wallets.url", url)?;
            server.wallets.push(WalletRoute { chain_id: *chain_id, url });
        }
        server.limits = file.limits;
        server.timing = file.timing;
        server.validate()?;
        Ok(Self { server, logs: file.logs })
    }
}

/// The parser quotes values of the wrong type, and one that is a URL may hold a secret.
fn without_urls(message: &str) -> String {
    match message.contains("://") {
        true => "a URL stands where something else is expected".to_owned(),
        false => message.to_owned(),
    }
}

/// Where `env:NAME` is looked up.
struct Secrets<'v>(&'v dyn Fn(&str) -> Option<String>);

impl Secrets<'_> {
    fn get(&self, key: &'static str, value: &str) -> Result<String, SettingsError> {
        match value.strip_prefix("env:") {
            Some(name) => {
                (self.0)(name).ok_or_else(|| SettingsError::NoVariable { key, variable: name.to_owned() })
            }
            None => Ok(value.to_owned()),
        }
    }
}

fn database(section: &DatabaseSection, secrets: &Secrets<'_>) -> Result<DatabaseConfig, SettingsError> {
    let named = |key| move |source| SettingsError::Database { key, source };
    const URL: &str = "database.url";
    const REPLICA: &str = "database.replica_url";
    const CONNECTIONS: &str = "database.max_connections";
    let mut database: DatabaseConfig = secrets.get(URL, &section.url)?.parse().map_err(named(URL))?;
    if let Some(replica) = &section.replica_url {
        database = database.with_replica(&secrets.get(REPLICA, replica)?).map_err(named(REPLICA))?;
    }
    if let Some(connections) = section.max_connections {
        database = database.with_max_connections(connections).map_err(named(CONNECTIONS))?;
    }
    Ok(database)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../docs/backend.example.toml");

    fn parse(text: &str) -> Result<Settings, SettingsError> {
        Settings::parse(text, |name| (name == "DB").then(|| "postgres://me:s3cret@db/hw".to_owned()))
    }

    fn refused(text: &str) -> String {
        parse(text).expect_err("refused").to_string()
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let example = parse(EXAMPLE).expect("the example is good");
        let least = parse("[database]\nurl = \"sqlite:backend.db\"").expect("enough");
        assert_eq!(example.server.limits, least.server.limits);
        assert_eq!(example.server.timing, least.server.timing);
        assert_eq!(example.server.listen, least.server.listen);
        assert_eq!(example.logs, least.logs);
        let table: toml::Table = EXAMPLE.parse().expect("TOML");
        let named = |section: &str| table[section].as_table().expect("a section").len();
        let all = |value| toml::Table::try_from(value).expect("a table").len();
        assert_eq!(named("limits"), all(toml::Value::try_from(Limits::default()).expect("TOML")));
        assert_eq!(named("timing"), all(toml::Value::try_from(Timing::default()).expect("TOML")));
    }

    #[test]
    fn a_secret_comes_from_the_environment_and_is_never_told() {
        let settings = parse("[database]\nurl = \"env:DB\"\nreplica_url = \"env:DB\"").expect("good");
        let shown = format!("{settings:?}");
        assert!(shown.contains("db") && !shown.contains("s3cret"), "{shown}");
        assert!(refused("[database]\nurl = \"env:NONE\"").contains("NONE"));
        let misplaced = refused("database = \"postgres://me:s3cret@db\"");
        assert!(misplaced.starts_with("line 1") && !misplaced.contains("s3cret"), "{misplaced}");
        let wrong = refused("[database]\nurl = \"mysql://me:s3cret@db\"");
        assert!(wrong.starts_with("database.url: ") && !wrong.contains("s3cret"), "{wrong}");
    }

    /// Shows: STR-031.
    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let database = "[database]\nurl = \"sqlite:x\"\n";
        for (text, part) in [
            ("", "database"),
            ("[database]\nurl = 1", "line 2"),
            (&format!("{database}[limits]\nmax_envelope_byte = 1"), "line 4"),
            (&format!("{database}[other]\n"), "other"),
            (&format!("{database}[limits]\nmax_envelope_bytes = 3000000"), "delivery_frame_target_bytes"),
            (&format!("{database}[limits]\nmax_envelope_bytes = -1"), "line 4"),
            (&format!("{database}[timing]\nkeepalive_ms = 90000"), "pong_wait"),
            (&format!("{database}[timing]\nstore_poll_ms = 0"), "store_poll"),
            (&format!("{database}[logs]\nformat = \"xml\""), "line 4"),
            (&format!("{database}[server]\ncors_origins = [\"*\"]"), "origin"),
            (&format!("{database}max_connections = 0"), "max_connections"),
            (&format!("{database}[[wallets]]\nchain_id = 1\nurl = \"ftp://node\""), "chain"),
            (&format!("{database}[[wallets]]\nchain_id = 1\nurl = \"env:NONE\""), "wallets.url"),
            (&format!("{database}replica_url = \"postgres://db/x\""), "replica_url"),
        ] {
            let error = refused(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
