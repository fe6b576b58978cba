//! The requirement catalogue, `docs/requirements.toml`: what is asked, who owns it, how far it is.

use crate::finding::Finding;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Where the catalogue lies, relative to the root.
pub(crate) const PATH: &str = "docs/requirements.toml";

/// How many requirements each family has; an id can't vanish or appear unnoticed.
pub(crate) const FAMILIES: [(&str, usize); 3] = [("STR-", 85), ("PROC-", 36), ("REVIEW-", 4)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Built,
    Partial,
    Planned,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Built => "built",
            Self::Partial => "partial",
            Self::Planned => "planned",
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    /// The paraphrase, one line.
    pub(crate) says: String,
    /// The owning crate's folder.
    #[serde(rename = "crate")]
    pub(crate) owner: String,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) reason: String,
}

/// The whole catalogue, and the line each id stands on.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) requirements: BTreeMap<String, Requirement>,
    lines: BTreeMap<String, usize>,
}

impl Catalogue {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(PATH)).with_context(|| format!("reading {PATH}"))?;
        Self::parse(&text).with_context(|| format!("in {PATH}"))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let requirements: BTreeMap<String, Requirement> = toml::from_str(text)?;
        let lines = text
            .lines()
            .enumerate()
            .filter_map(|(index, line)| {
                let id = line.trim().strip_prefix('[')?.strip_suffix(']')?;
                Some((id.to_owned(), index + 1))
            })
            .collect();
        Ok(Self { requirements, lines })
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.requirements.contains_key(id)
    }

    pub(crate) fn line(&self, id: &str) -> usize {
        self.lines.get(id).copied().unwrap_or(1)
    }

    /// What is wrong with the catalogue itself, tests aside.
    pub(crate) fn check(&self, crate_exists: impl Fn(&str) -> bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (family, expected) in FAMILIES {
            let found = self.requirements.keys().filter(|id| id.starts_with(family)).count();
            if found != expected {
                findings.push(Finding::new(
                    PATH,
                    1,
                    format!("{found} ids start with {family} instead of {expected}"),
                    "restore the missing ones, or remove what the specification doesn't have",
                ));
            }
        }
        for (id, requirement) in &self.requirements {
            let mut complain = |what: String, fix: &str| {
                findings.push(Finding::new(PATH, self.line(id), what, fix));
            };
            if !FAMILIES.iter().any(|(family, _)| id.starts_with(family)) {
                complain(format!("{id} belongs to no family"), "spell the id right");
            }
            if requirement.says.trim().is_empty() {
                complain(format!("{id} says nothing"), "paraphrase it in one line");
            }
            if !crate_exists(&requirement.owner) {
                complain(
                    format!("{id} is owned by {:?}, no such crate", requirement.owner),
                    "name a folder under crates",
                );
            }
            let reasoned = !requirement.reason.trim().is_empty();
            match requirement.status {
                Status::Built if reasoned => complain(
                    format!("{id} is built and still gives a reason"),
                    "remove the reason, or say partial",
                ),
                Status::Partial | Status::Planned if !reasoned => complain(
                    format!("{id} is {} without a reason", requirement.status),
                    "say what is missing",
                ),
                _ => {}
            }
        }
        findings
    }
}

/// Every requirement id named in a text, with its line. `STR-nnn` with letters is no id.
pub(crate) fn named_ids(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (family, _) in FAMILIES {
            for (at, _) in line.match_indices(family) {
                let inside_word = line[..at]
                    .chars()
                    .next_back()
                    .is_some_and(|before| before.is_alphanumeric() || before == '_');
                let rest = &line[at + family.len()..];
                let belongs = |c: char| match family {
                    "REVIEW-" => c.is_ascii_uppercase() || c == '-',
                    _ => c.is_ascii_digit(),
                };
                let tail = rest.split(|c| !belongs(c)).next().unwrap_or_default();
                let tail = tail.trim_end_matches('-');
                if !inside_word && !tail.is_empty() {
                    found.push((index + 1, format!("{family}{tail}")));
                }
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_catalogue_has_every_requirement_once_and_is_sound() {
        let catalogue = Catalogue::load(&workspace::root()).unwrap();
        let count = |family: &str| {
            let ids = catalogue.requirements.keys();
            ids.filter(|id| id.starts_with(family)).count()
        };
        assert_eq!(count("STR-"), 85);
        assert_eq!(count("PROC-"), 36);
        assert_eq!(count("REVIEW-"), 4);
        assert_eq!(catalogue.requirements.len(), 125);
        let crates = workspace::root().join("crates");
        let findings = catalogue.check(|folder| crates.join(folder).is_dir());
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn planned_needs_a_reason_and_an_id_can_not_stand_twice() {
        let entry = "[STR-001]\nsays = \"x\"\ncrate = \"backend\"\nstatus = \"planned\"\n";
        let findings = Catalogue::parse(entry).unwrap().check(|_| true);
        assert!(findings.iter().any(|f| f.what.contains("without a reason")));
        assert!(Catalogue::parse(&format!("{entry}{entry}")).is_err());
    }

    #[test]
    fn ids_are_found_in_running_text() {
        let text = "as STR-061 and (PROC-002) say,\nREVIEW-FUTURE-EPOCH; not STR-nnn, not XSTR-001";
        let ids: Vec<_> = named_ids(text);
        assert_eq!(
            ids,
            [(1, "PROC-002".to_owned()), (1, "STR-061".to_owned()), (2, "REVIEW-FUTURE-EPOCH".to_owned())]
        );
    }
}
