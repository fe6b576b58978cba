//! `soak`: the long system tests, which otherwise run in a short form or not at all.

use crate::workspace;
use anyhow::{Result, bail};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed to the test harness: name filters and its own flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    filters: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = workspace::cargo(["test", "--release"]);
    for package in ["highwater-tests", "highwater-backend", "highwater-delivery"] {
        command.args(["-p", package]);
    }
    command.arg("--").args(&options.filters).arg("--nocapture").env("HIGHWATER_SOAK", "1");
    println!("HIGHWATER_SOAK=1 {}", workspace::spoken(&command));
    if !command.status()?.success() {
        bail!("a long system test failed; its output names the seed to replay");
    }
    Ok(())
}
