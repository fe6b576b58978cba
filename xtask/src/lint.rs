//! `lint`: the rules of the house that neither rustc nor clippy knows.

mod arrows;
mod docs;
mod forbidden;
mod ratchet;
mod tables;

use crate::catalogue::Catalogue;
use crate::finding::Finding;
use crate::workspace;
use anyhow::{Result, bail};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Rewrite the recorded file sizes to what they are now
    #[arg(long)]
    fix_ratchet: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.fix_ratchet {
        let root = workspace::root();
        let files = workspace::text_files(&root)?;
        let recorded = ratchet::rewrite(&root, &files)?;
        println!("{}: {recorded} files recorded", ratchet::PATH);
    }
    let findings = findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("lint found {} things", findings.len());
    }
    println!("lint: nothing found");
    Ok(())
}

/// Everything all rules find, in path order.
fn findings() -> Result<Vec<Finding>> {
    let root = workspace::root();
    let files = workspace::text_files(&root)?;
    let mut findings = arrows::check(&root, &workspace::packages()?);
    findings.extend(tables::check(&files));
    findings.extend(docs::check(&root, &files, &Catalogue::load(&root)?));
    findings.extend(ratchet::check(&root, &files)?);
    findings.extend(forbidden::check(&files));
    findings.sort();
    findings.dedup();
    Ok(findings)
}
