//! Where logs go: standard error, as lines for people unless a configuration file says otherwise.

use std::io::IsTerminal as _;

use highwater_backend::{LogFormat, LogSettings};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use crate::failure::Failure;

/// Libraries whose finer logs show ciphertext and what keys are derived from.
const INDISCREET: [&str; 1] = ["openmls"];

/// Starts writing logs. Without settings `RUST_LOG` decides, and else warnings are written; what would show payloads
/// isn't, whoever asks for it (STR-064).
pub(crate) fn start(settings: Option<&LogSettings>) -> Result<(), Failure> {
    let (filter, format) = match settings {
        None => {
            let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
            (filter, LogFormat::Text)
        }
        Some(settings) => {
            let filter = EnvFilter::try_new(&settings.filter)
                .map_err(|error| Failure::usage(format!("logs.filter: {error}")))?;
            (filter, settings.format)
        }
    };
    // A reader of the log who went away must not take the server along.
    let lines = tracing_subscriber::fmt::layer::<Registry>()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let filter = filter.and(filter_fn(discreet));
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}

fn discreet(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() <= Level::WARN || !INDISCREET.iter().any(|library| crate_name.starts_with(library))
}
