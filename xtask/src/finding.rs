//! One thing a check found: where, what, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Ordered by place, so that a report reads file by file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: PathBuf,
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(
        path: impl AsRef<Path>,
        line: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { path: path.as_ref().to_path_buf(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, fix } = self;
        write!(f, "{}:{line}: {what}; {fix}", path.display())
    }
}
