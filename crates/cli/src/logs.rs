//! Where logs go: standard error, as lines for people unless a configuration file says otherwise.

use std::io::IsTerminal as _;

use highwater_backend::{LogFormat, LogSettings};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Starts writing logs. Without settings `RUST_LOG` decides, and else warnings are written.
pub(crate) fn start(settings: Option<&LogSettings>) -> Result<(), Failure> {
    // A reader of the log who went away must not take the server along.
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    match settings {
        None => {
            let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
            lines.with_env_filter(filter).init();
        }
        Some(settings) => {
            let filter = EnvFilter::try_new(&settings.filter)
                .map_err(|error| Failure::usage(format!("logs.filter: {error}")))?;
            match settings.format {
                LogFormat::Text => lines.with_env_filter(filter).init(),
                LogFormat::Json => lines.json().with_env_filter(filter).init(),
            }
        }
    }
    Ok(())
}
