//! What the demonstration tells while it runs: events as JSON, or one line drawn over itself where somebody watches.

use std::io::{self, Write as _};

use serde_json::Value;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) cuts: u64,
    pub(super) reopens: u64,
    pub(super) kills: u64,
}

pub(super) struct Progress {
    output: Output,
    drawn: bool,
}

impl Progress {
    pub(super) fn new(output: &Output) -> Self {
        Self { output: output.clone(), drawn: false }
    }

    /// One event. For people it is `text`, which may be empty.
    pub(super) fn event(&mut self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        self.clear()?;
        self.output.line(value, text)
    }

    /// How far it is, for whoever watches.
    pub(super) fn draw(&mut self, said: usize, of: u32, handed: usize, counts: &Counts) -> io::Result<()> {
        if !self.output.is_watched() {
            return Ok(());
        }
        let Counts { cuts, reopens, kills } = counts;
        let mut stderr = io::stderr().lock();
        write!(
            stderr,
            "\r\x1b[K{said}/{of} sent, {handed} handed out, {cuts} cuts, {reopens} reopened, {kills} killed"
        )?;
        stderr.flush()?;
        self.drawn = true;
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.drawn) {
            write!(io::stderr().lock(), "\r\x1b[K")?;
        }
        Ok(())
    }
}
