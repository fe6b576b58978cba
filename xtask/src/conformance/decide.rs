//! The verdicts: plain functions over the catalogue, what tests claim, and how they ended.

use super::output::RanTest;
use super::shows::ShownTest;
use crate::catalogue::{self, Catalogue, Status};
use crate::finding::Finding;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestOutcome {
    Passed,
    Failed,
    Ignored,
    /// Named in the source and absent from the run.
    NotRun,
}

impl fmt::Display for TestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Ignored => "ignored",
            Self::NotRun => "not run",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Fail,
    /// No test, and none promised.
    Open,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Open => "open",
        })
    }
}

/// One requirement with the tests that say they show it.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) reason: String,
    pub(crate) tests: Vec<(String, TestOutcome)>,
}

impl Row {
    pub(crate) fn verdict(&self) -> Verdict {
        let passed = |(_, outcome): &(String, TestOutcome)| *outcome == TestOutcome::Passed;
        match (self.status, self.tests.is_empty()) {
            (Status::Built, true) => Verdict::Fail,
            (Status::Planned, false) => Verdict::Fail,
            (Status::Partial | Status::Planned, true) => Verdict::Open,
            (Status::Built | Status::Partial, false) if self.tests.iter().all(passed) => Verdict::Pass,
            (Status::Built | Status::Partial, false) => Verdict::Fail,
        }
    }
}

pub(crate) fn rows(catalogue: &Catalogue, shown: &[ShownTest], ran: &[RanTest]) -> Vec<Row> {
    let row = |(id, requirement): (&String, &catalogue::Requirement)| {
        let naming = shown.iter().filter(|test| test.ids.contains(id));
        Row {
            id: id.clone(),
            status: requirement.status,
            reason: requirement.reason.clone(),
            tests: naming.map(|test| (spoken(test), outcome(test, ran))).collect(),
        }
    };
    catalogue.requirements.iter().map(row).collect()
}

/// Every row that fails, with what to do.
pub(crate) fn failures(catalogue: &Catalogue, rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows.iter().filter(|row| row.verdict() == Verdict::Fail) {
        let not_passed = row.tests.iter().filter(|(_, outcome)| *outcome != TestOutcome::Passed);
        let broken: Vec<_> = not_passed.map(|(name, outcome)| format!("{name} ({outcome})")).collect();
        let (what, fix) = if row.status == Status::Planned {
            planned_with_tests(&row.id)
        } else if row.tests.is_empty() {
            built_without_tests(&row.id)
        } else {
            let what = format!("{} is {} but {}", row.id, row.status, broken.join(", "));
            (what, "make these tests run and pass".to_owned())
        };
        let line = catalogue.line(&row.id);
        findings.push(Finding::new(catalogue::PATH, line, what, fix));
    }
    findings
}

/// Where catalogue and tests disagree before anything has run.
pub(crate) fn check_claims(catalogue: &Catalogue, shown: &[ShownTest]) -> Vec<Finding> {
    let claimed: BTreeSet<&str> = shown.iter().flat_map(|test| test.ids.iter().map(String::as_str)).collect();
    let mut findings = Vec::new();
    for (id, requirement) in &catalogue.requirements {
        let (what, fix) = match (requirement.status, claimed.contains(id.as_str())) {
            (Status::Planned, true) => planned_with_tests(id),
            (Status::Built, false) => built_without_tests(id),
            _ => continue,
        };
        findings.push(Finding::new(catalogue::PATH, catalogue.line(id), what, fix));
    }
    for test in shown {
        for id in test.ids.iter().filter(|id| !catalogue.contains(id)) {
            findings.push(Finding::new(
                &test.file,
                test.line,
                format!("{} shows {id}, which is no requirement", test.name),
                format!("spell it as in {}", catalogue::PATH),
            ));
        }
    }
    findings
}

fn planned_with_tests(id: &str) -> (String, String) {
    (format!("{id} is planned but tests show it"), "say partial with a reason, or built".to_owned())
}

fn built_without_tests(id: &str) -> (String, String) {
    (
        format!("{id} is built but no test shows it"),
        "write the test, or say partial or planned with a reason".to_owned(),
    )
}

fn spoken(test: &ShownTest) -> String {
    let mut parts = test.file.components().map(|part| part.as_os_str());
    let top = parts.next().unwrap_or_default();
    let place = if top == "crates" { parts.next().unwrap_or_default() } else { top };
    format!("{}: {}", place.to_string_lossy(), test.name)
}

/// How a test ended, over every executable it is compiled into.
fn outcome(test: &ShownTest, ran: &[RanTest]) -> TestOutcome {
    let same_package: Vec<_> = ran
        .iter()
        .filter(|candidate| test.file.starts_with(&candidate.package))
        .filter(|candidate| last(&candidate.name) == test.name)
        .collect();
    let exact: Vec<_> = same_package
        .iter()
        .copied()
        .filter(|candidate| full_name(test, &candidate.source).as_ref() == Some(&candidate.name))
        .collect();
    // A file reached through `#[path]` or a macro has another module path; its name alone will do
    // when nothing else in the package is called the same.
    let found = match (exact.is_empty(), same_package.len()) {
        (true, 1) => same_package,
        _ => exact,
    };
    let outcomes: Vec<_> = found.iter().map(|candidate| candidate.outcome).collect();
    for decisive in [TestOutcome::Failed, TestOutcome::Ignored] {
        if outcomes.contains(&decisive) {
            return decisive;
        }
    }
    outcomes.first().copied().unwrap_or(TestOutcome::NotRun)
}

fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The name the harness gives a test whose executable has this root source file.
fn full_name(test: &ShownTest, source: &Path) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if test.file != source {
        let inside = test.file.strip_prefix(source.parent()?).ok()?;
        let inside = inside.with_extension("");
        let components = inside.components();
        parts.extend(components.map(|part| part.as_os_str().to_string_lossy().into_owned()));
        if parts.last().is_some_and(|part| part == "mod") {
            parts.pop();
        }
    }
    parts.extend(test.modules.iter().cloned());
    parts.push(test.name.clone());
    Some(parts.join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: Status, outcomes: &[TestOutcome]) -> Verdict {
        let tests = outcomes.iter().map(|outcome| ("t".to_owned(), *outcome));
        Row { id: "STR-001".to_owned(), status, reason: String::new(), tests: tests.collect() }.verdict()
    }

    #[test]
    fn built_needs_passing_tests_and_planned_must_have_none() {
        use TestOutcome::{Failed, Ignored, NotRun, Passed};
        assert_eq!(row(Status::Built, &[]), Verdict::Fail);
        assert_eq!(row(Status::Built, &[Passed]), Verdict::Pass);
        for broken in [Failed, Ignored, NotRun] {
            assert_eq!(row(Status::Built, &[Passed, broken]), Verdict::Fail);
            assert_eq!(row(Status::Partial, &[broken]), Verdict::Fail);
        }
        assert_eq!(row(Status::Partial, &[]), Verdict::Open);
        assert_eq!(row(Status::Partial, &[Passed]), Verdict::Pass);
        assert_eq!(row(Status::Planned, &[]), Verdict::Open);
        assert_eq!(row(Status::Planned, &[Passed]), Verdict::Fail);
    }

    fn shown(file: &str, modules: &[&str]) -> ShownTest {
        ShownTest {
            file: file.into(),
            line: 1,
            modules: modules.iter().map(|m| (*m).to_owned()).collect(),
            name: "keeps".to_owned(),
            ids: vec!["STR-061".to_owned()],
        }
    }

    fn ran(package: &str, source: &str, name: &str, outcome: TestOutcome) -> RanTest {
        RanTest { package: package.into(), source: source.into(), name: name.to_owned(), outcome }
    }

    #[test]
    fn a_test_is_found_by_package_file_and_module() {
        let lib = "crates/receipt/src/lib.rs";
        let runs = [
            ran("crates/receipt", lib, "admit::tests::keeps", TestOutcome::Passed),
            ran("crates/receipt", lib, "fair::tests::keeps", TestOutcome::Failed),
            ran("crates/store", "crates/store/src/lib.rs", "admit::tests::keeps", TestOutcome::Ignored),
        ];
        let test = shown("crates/receipt/src/admit.rs", &["tests"]);
        assert_eq!(outcome(&test, &runs), TestOutcome::Passed);
        let elsewhere = shown("crates/receipt/src/other.rs", &["tests"]);
        assert_eq!(outcome(&elsewhere, &runs), TestOutcome::NotRun);
    }

    #[test]
    fn an_integration_test_is_its_own_root() {
        let file = "tests/tests/cut.rs";
        let runs = [ran("tests", file, "keeps", TestOutcome::Passed)];
        assert_eq!(outcome(&shown(file, &[]), &runs), TestOutcome::Passed);
    }

    #[test]
    fn a_planned_requirement_with_a_test_and_a_built_one_without_disagree_with_the_catalogue() {
        let text = "[STR-061]\nsays = \"x\"\ncrate = \"receipt\"\nstatus = \"planned\"\nreason = \"y\"\n\
                    [STR-062]\nsays = \"x\"\ncrate = \"receipt\"\nstatus = \"built\"\n";
        let catalogue = Catalogue::parse(text).unwrap();
        let findings = check_claims(&catalogue, &[shown("crates/receipt/src/admit.rs", &[])]);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 6], "{findings:?}");
    }
}
