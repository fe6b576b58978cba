//! Failures, as one line that says what to do.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Why a command did nothing, or not all of what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Failed,
    /// The arguments were wrong, as opposed to what they were applied to.
    Usage,
    /// Nobody reads what is printed any more. That ends a command as an interrupt does.
    Unread,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: Kind::Failed }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: Kind::Usage }
    }

    /// A line could not be printed.
    pub(crate) fn unprinted(error: &io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::Unread } else { Kind::Failed };
        Self { text: format!("standard output can't be written: {error}"), kind }
    }

    /// Whether the command only lost its reader.
    pub(crate) fn is_unread(&self) -> bool {
        self.kind == Kind::Unread
    }

    /// Prints it and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self.kind {
            Kind::Unread => return ExitCode::SUCCESS,
            Kind::Failed | Kind::Usage => line(&self.text),
        }
        ExitCode::from(if self.kind == Kind::Usage { 2 } else { 1 })
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = anyhow::Error::from(error);
        match error.downcast_ref::<highwater::Error>() {
            Some(known) => Self::new(hinted(known)),
            None => Self::new(error.to_string()),
        }
    }
}

/// The library's error, with the command that helps.
fn hinted(error: &highwater::Error) -> String {
    use highwater::Error;
    match error {
        error if error.is_already_active() => format!(
            "AlreadyActive: {error}; stop the other `stream` of this home first, or read with `replay`"
        ),
        Error::NotRegistered => {
            "this home is not registered yet: run `highwater init --home DIR --backend URL`".into()
        }
        Error::Registration(cause) => {
            format!("the backend did not register this home: {cause}; run the same `init` again")
        }
        Error::NoBackend => "no backend is known: name one with --backend URL".into(),
        Error::UnknownGroup(group) => {
            format!("group {group} is not known here: check `group list`, or run `sync` first")
        }
        Error::RecoveryExhausted => {
            "the backend could not be reached for too long: run the command again once it can be".into()
        }
        error if error.is_retryable() => format!("{error}; try again"),
        error => error.to_string(),
    }
}

/// A wrong command line, on one line. Help and version are no failures.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help that can't be printed has nobody to read it.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let rendered = error.render().to_string();
    let said: Vec<_> = rendered
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .flat_map(str::split_whitespace)
        .collect();
    let said = said.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let said = if said.is_empty() || !rendered.starts_with("error:") { "no command was named" } else { said };
    line(&format!("{said} (see `highwater --help`)"));
    ExitCode::from(2)
}

/// The home was never made.
pub(crate) fn no_home(dir: &Path) -> Failure {
    Failure::new(format!(
        "there is no client home at {}: run `highwater init --home {0} --backend URL` first",
        dir.display()
    ))
}

fn line(text: &str) {
    let text: Vec<_> = text.split_whitespace().collect();
    // The exit status is still there for whoever doesn't read it.
    let _ = writeln!(io::stderr(), "error: {}", text.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_lost_its_backend_says_what_to_run_and_says_it_once() {
        let said = Failure::from(highwater::Error::RecoveryExhausted).text;
        assert!(
            said.contains("could not be reached") && said.ends_with("run the command again once it can be")
        );
        for foreign in ["stream", "open", "try again"] {
            assert!(!said.contains(foreign), "{said}");
        }
    }

    #[test]
    fn only_a_reader_who_went_away_is_no_failure() {
        let unprinted = |kind: io::ErrorKind| Failure::unprinted(&kind.into());
        assert!(unprinted(io::ErrorKind::BrokenPipe).is_unread());
        assert!(!unprinted(io::ErrorKind::StorageFull).is_unread());
        // A pipe that broke elsewhere is a failure like any other.
        assert!(!Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_unread());
    }
}
