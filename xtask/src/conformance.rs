//! `conformance`: requirement id → status → tests → verdict, from the catalogue, the tests' own words
//! and what a run of them printed.

mod decide;
mod output;
mod shows;

use crate::catalogue::{Catalogue, Status};
use crate::finding::Finding;
use crate::suite;
use crate::workspace::{self, TextFile};
use anyhow::{Context, Result, bail};
use decide::{Row, TestOutcome, Verdict};
use shows::ShownTest;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Read the output of a run that has been made already instead of making one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// List every test under its requirement
    #[arg(long)]
    tests: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // A catalogue that disagrees with the tests still gets its table.
    let sound = report_catalogue();
    let from = match &options.from {
        Some(path) => path.clone(),
        None => {
            if !suite::workspace_tests()? {
                println!("some tests failed; the table says which requirements that touches");
            }
            suite::output_path()
        }
    };
    report_run(&from, options.tests)?;
    sound
}

/// The part that needs no test run: the catalogue is sound and agrees with what tests say of it.
pub(crate) fn report_catalogue() -> Result<()> {
    let root = workspace::root();
    let catalogue = Catalogue::load(&root)?;
    let crates = root.join("crates");
    let mut findings = catalogue.check(|folder| crates.join(folder).is_dir());
    let (shown, misplaced) = shown_tests(&workspace::text_files(&root)?);
    findings.extend(misplaced);
    findings.extend(decide::check_claims(&catalogue, &shown));
    fail_on("the catalogue check", findings)
}

/// The table of one run, read from its recorded output.
pub(crate) fn report_run(from: &Path, list_tests: bool) -> Result<()> {
    let root = workspace::root();
    let text =
        fs::read_to_string(from).with_context(|| format!("no output of a test run in {}", from.display()))?;
    let ran = output::parse(&text, &root)?;
    let catalogue = Catalogue::load(&root)?;
    let (shown, misplaced) = shown_tests(&workspace::text_files(&root)?);
    let rows = decide::rows(&catalogue, &shown, &ran);
    print_table(&rows, list_tests);
    let mut findings = misplaced;
    findings.extend(decide::failures(&catalogue, &rows));
    fail_on("conformance", findings)
}

fn shown_tests(files: &[TextFile]) -> (Vec<ShownTest>, Vec<Finding>) {
    let mut shown = Vec::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        if file.path.starts_with("crates") || file.path.starts_with("tests") {
            let (tests, misplaced) = shows::parse(&file.path, &file.text);
            shown.extend(tests);
            findings.extend(misplaced);
        }
    }
    (shown, findings)
}

fn print_table(rows: &[Row], list_tests: bool) {
    println!("{:<26} {:<8} {:<8} {:>5}  tests", "requirement", "status", "verdict", "count");
    for row in rows {
        let mut names = row.tests.iter().map(|(name, _)| name.as_str());
        let words = match (names.next(), row.tests.len()) {
            (None, _) => format!("– {}", row.reason),
            (Some(first), 1) => first.to_owned(),
            (Some(first), count) => format!("{first} and {} more", count - 1),
        };
        println!("{:<26} {:<8} {:<8} {:>5}  {words}", row.id, row.status, row.verdict(), row.tests.len());
        for (name, outcome) in row.tests.iter().filter(|_| list_tests) {
            println!("{:<26} {:<8} {outcome:<8}        {name}", "", "");
        }
    }
    let with = |status| rows.iter().filter(|row| row.status == status).count();
    let passing = rows.iter().filter(|row| row.verdict() == Verdict::Pass);
    println!(
        "{} requirements: {} built, {} partial, {} planned; {} shown by passing tests",
        rows.len(),
        with(Status::Built),
        with(Status::Partial),
        with(Status::Planned),
        passing.count()
    );
}

fn fail_on(what: &str, mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{what} found {} things", findings.len());
    }
    Ok(())
}
