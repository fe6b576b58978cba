//! Dependency arrows: the table in ARCHITECTURE.md is the law, the manifests are held against it.
//! The table's last column is a transitive reduction: whatever is reachable through it is allowed.

use crate::finding::Finding;
use crate::workspace::{DependencyKind, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = "ARCHITECTURE.md";
/// Packages that stand outside the house: they may use all of it.
const OUTSIDE: [&str; 2] = ["highwater-tests", "xtask"];
/// Test kits may be reached through dev-dependencies only.
const KITS: [&str; 3] = ["highwater-testkit-base", "highwater-testkit", "highwater-testkit-postgres"];
/// The floor from which on the network may be reached.
const FIRST_NETWORKED: &str = "highwater-sync";
/// Wire holds the generated clients and transport drives them; nothing else below sync may.
const NETWORK_PARTS: [&str; 2] = ["highwater-wire", "highwater-transport"];
const NETWORK_CRATES: [&str; 10] = [
    "h2",
    "hyper",
    "hyper-util",
    "reqwest",
    "tonic",
    "tonic-health",
    "tonic-prost",
    "tonic-types",
    "tonic-web",
    "tower",
];

struct Row {
    line: usize,
    floor: Option<u32>,
    folder: String,
    depends: Vec<String>,
}

/// Rows by package name.
type Rows = BTreeMap<String, Row>;

pub(crate) fn check(root: &Path, packages: &[Package]) -> Vec<Finding> {
    let Ok(text) = fs::read_to_string(root.join(TABLE)) else {
        return vec![Finding::new(
            TABLE,
            1,
            "missing",
            "write it, with the table floor | crate | owns | depends on",
        )];
    };
    let (rows, mut findings) = parse(&text);
    for package in packages {
        let manifest = Manifest::read(root, package);
        findings.extend(check_package(&rows, package, &manifest));
    }
    for (name, row) in &rows {
        if !packages.iter().any(|package| package.name == *name) {
            findings.push(Finding::new(
                TABLE,
                row.line,
                format!("{name} is no package of the workspace"),
                "remove the row or add the crate",
            ));
        }
    }
    findings
}

struct Manifest {
    path: PathBuf,
    text: String,
}

impl Manifest {
    fn read(root: &Path, package: &Package) -> Self {
        let path = &package.manifest_path;
        Self {
            path: path.strip_prefix(root).unwrap_or(path).to_path_buf(),
            text: fs::read_to_string(path).unwrap_or_default(),
        }
    }

    fn line_naming(&self, dependency: &str) -> usize {
        let names = |line: &str| {
            line.trim_start().strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        self.text.lines().position(names).map_or(1, |at| at + 1)
    }
}

fn parse(text: &str) -> (Rows, Vec<Finding>) {
    let mut rows = Rows::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            inside = false;
            continue;
        };
        if cells.first().is_some_and(|cell| cell == "floor")
            && cells.last().is_some_and(|cell| cell == "depends on")
        {
            inside = true;
        } else if inside && let Some((name, row)) = row(index + 1, &cells) {
            rows.insert(name, row);
        }
    }
    let findings = if rows.is_empty() {
        vec![Finding::new(
            TABLE,
            1,
            "no table of crates found",
            "add it, with the columns floor | crate | owns | depends on",
        )]
    } else {
        check_rows(&rows)
    };
    (rows, findings)
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let cells = inner.split('|').map(|cell| cell.trim().to_owned());
    Some(cells.collect())
}

/// `| 2 | `highwater-receipt` (receipt) | … | store |`; None for the rule under the head.
fn row(line: usize, cells: &[String]) -> Option<(String, Row)> {
    let [floor, named, .., depends] = cells else {
        return None;
    };
    let name = named.split('`').nth(1)?.to_owned();
    let folder = match named.split_once('(') {
        Some((_, rest)) => rest.trim_end_matches(')').trim(),
        None => name.trim_start_matches("highwater-"),
    };
    let depends = depends
        .split(',')
        .map(|entry| entry.trim().trim_matches('`').to_owned())
        .filter(|entry| !entry.is_empty() && entry != "–" && entry != "-")
        .collect();
    let row = Row { line, floor: floor.parse().ok(), folder: folder.trim_matches('`').to_owned(), depends };
    Some((name, row))
}

fn resolve<'r>(rows: &'r Rows, entry: &str) -> Option<&'r str> {
    rows.iter().find(|(name, row)| *name == entry || row.folder == entry).map(|(name, _)| name.as_str())
}

/// The table must agree with itself before anything is held against it.
fn check_rows(rows: &Rows) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, row) in rows {
        for entry in &row.depends {
            let Some(target) = resolve(rows, entry) else {
                findings.push(Finding::new(
                    TABLE,
                    row.line,
                    format!("{name} depends on {entry}, which has no row"),
                    "name a crate or folder of the table",
                ));
                continue;
            };
            let upward = match (row.floor, rows[target].floor) {
                (Some(own), Some(below)) => below >= own,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if upward {
                findings.push(Finding::new(
                    TABLE,
                    row.line,
                    format!("{name} depends on {target}, which is on no lower floor"),
                    "move one of them or remove the arrow",
                ));
            }
        }
    }
    findings
}

fn reachable<'r>(rows: &'r Rows, from: &str) -> BTreeSet<&'r str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        let Some(row) = rows.get(name) else { continue };
        for target in row.depends.iter().filter_map(|entry| resolve(rows, entry)) {
            if found.insert(target) {
                open.push(target);
            }
        }
    }
    found
}

fn check_package(rows: &Rows, package: &Package, manifest: &Manifest) -> Vec<Finding> {
    let name = package.name.as_str();
    let Some(row) = rows.get(name) else {
        if OUTSIDE.contains(&name) {
            return Vec::new();
        }
        return vec![Finding::new(
            &manifest.path,
            1,
            format!("{name} has no row in {TABLE}"),
            "add the row: its floor, what it owns, what it depends on",
        )];
    };
    let allowed = reachable(rows, name);
    let offline = may_not_reach_network(rows, name, row);
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let target = dependency.name.as_str();
        let mut complain = |what: String, fix: &str| {
            let line = manifest.line_naming(target);
            findings.push(Finding::new(&manifest.path, line, what, fix));
        };
        let ours = rows.contains_key(target) || OUTSIDE.contains(&target);
        if dependency.kind == Some(DependencyKind::Dev) {
            if ours && reachable(rows, target).contains(name) {
                complain(
                    format!("{name}'s tests would see {name} twice, through {target}"),
                    "use a lower test kit, or move the test to the crate above",
                );
            }
        } else if ours && !allowed.contains(target) {
            let fix = if KITS.contains(&target) {
                "make it a dev-dependency"
            } else {
                "pass what you need as an argument, or change the table with a reason"
            };
            complain(format!("{name} may not depend on {target}"), fix);
        } else if offline && NETWORK_CRATES.contains(&target) {
            complain(
                format!("{name} is below sync and may not reach the network, but depends on {target}"),
                "return what is needed from outside as a value and let sync resolve it",
            );
        }
    }
    findings
}

fn may_not_reach_network(rows: &Rows, name: &str, row: &Row) -> bool {
    let first = rows.get(FIRST_NETWORKED).and_then(|sync| sync.floor);
    let below = matches!((row.floor, first), (Some(own), Some(first)) if own < first);
    below && !NETWORK_PARTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    const ARCHITECTURE: &str = "\
# Text
| floor | crate | owns | depends on |
|---|---|---|---|
| 0 | `highwater-wire` (wire) | ids | |
| 1 | `highwater-store` (store) | the file | wire |
| 1 | `highwater-transport` (transport) | connections | wire |
| 2 | `highwater-receipt` (receipt) | **F** | store |
| 3 | `highwater-sync` (sync) | targets | receipt, transport |
| – | `highwater-testkit-base` (testkit-base) | fixtures | store |

after";

    fn findings_for(name: &str, dependencies: &[(&str, Option<DependencyKind>)]) -> Vec<String> {
        let (rows, table) = parse(ARCHITECTURE);
        assert!(table.is_empty(), "{table:?}");
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: *kind })
            .collect();
        let lines = dependencies.iter().map(|d| format!("{}.workspace = true\n", d.name));
        let manifest = Manifest {
            path: "Cargo.toml".into(),
            text: format!("[dependencies]\n{}", lines.collect::<String>()),
        };
        let package = Package { name: name.to_owned(), manifest_path: "Cargo.toml".into(), dependencies };
        let findings = check_package(&rows, &package, &manifest);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_reachable_may_be_named_directly() {
        let dependencies = [("highwater-wire", None), ("highwater-store", None), ("sqlx", None)];
        assert!(findings_for("highwater-receipt", &dependencies).is_empty());
    }

    #[test]
    fn any_other_arrow_is_a_finding_with_its_line() {
        let dependencies = [("highwater-wire", None), ("highwater-transport", None)];
        let found = findings_for("highwater-receipt", &dependencies);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("Cargo.toml:3: highwater-receipt may not depend on"));
    }

    #[test]
    fn nothing_below_sync_takes_a_network_crate_but_wire_and_transport() {
        assert_eq!(findings_for("highwater-receipt", &[("tonic", None)]).len(), 1);
        assert!(findings_for("highwater-wire", &[("tonic", None)]).is_empty());
        assert!(findings_for("highwater-sync", &[("tonic", None)]).is_empty());
    }

    #[test]
    fn test_kits_are_for_tests_and_never_under_their_own_crate() {
        let kit = "highwater-testkit-base";
        let dev = Some(DependencyKind::Dev);
        assert_eq!(findings_for("highwater-receipt", &[(kit, None)]).len(), 1);
        assert!(findings_for("highwater-receipt", &[(kit, dev)]).is_empty());
        assert_eq!(findings_for("highwater-store", &[(kit, dev)]).len(), 1);
    }

    #[test]
    fn a_table_with_an_upward_arrow_is_refused() {
        let upward = ARCHITECTURE.replace("| the file | wire |", "| the file | receipt |");
        let (_, findings) = parse(&upward);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_a_finding() {
        assert_eq!(findings_for("highwater-new", &[]).len(), 1);
    }
}
