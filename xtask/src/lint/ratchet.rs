//! File sizes only go down: a Rust file over the limit is recorded with its size, may not grow past
//! it, and leaves the record once it has been split.

use crate::finding::Finding;
use crate::workspace::TextFile;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(crate) const PATH: &str = "xtask/ratchet.toml";
const LIMIT: usize = 400;
const HEAD: &str = "\
# Rust files over 400 lines, with the size they may not pass. Split a file rather than raise its record;
# `cargo xtask lint --fix-ratchet` writes this file anew.

";

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Records {
    #[serde(default)]
    files: BTreeMap<String, usize>,
}

pub(crate) fn check(root: &Path, files: &[TextFile]) -> Result<Vec<Finding>> {
    let records = load(root)?;
    Ok(compare(&sizes(files), &records.files))
}

/// Writes the records anew and says how many there are.
pub(crate) fn rewrite(root: &Path, files: &[TextFile]) -> Result<usize> {
    let mut sizes = sizes(files);
    sizes.retain(|_, lines| *lines > LIMIT);
    let records = Records { files: sizes };
    let text = format!("{HEAD}{}\n", toml::to_string(&records)?.trim_end());
    fs::write(root.join(PATH), text).with_context(|| format!("writing {PATH}"))?;
    Ok(records.files.len())
}

fn load(root: &Path) -> Result<Records> {
    let text = match fs::read_to_string(root.join(PATH)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {PATH}")),
    };
    toml::from_str(&text).with_context(|| format!("in {PATH}"))
}

fn sizes(files: &[TextFile]) -> BTreeMap<String, usize> {
    let rust = files.iter().filter(|file| file.has_extension("rs"));
    let sizes = rust.map(|file| {
        let path = file.path.to_string_lossy().replace('\\', "/");
        (path, file.text.lines().count())
    });
    sizes.collect()
}

fn compare(sizes: &BTreeMap<String, usize>, records: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, lines) in sizes.iter().filter(|(_, lines)| **lines > LIMIT) {
        let what = match records.get(path) {
            None => format!("{lines} lines, over {LIMIT} and not recorded"),
            Some(recorded) if lines > recorded => {
                format!("{lines} lines, above its recorded {recorded}")
            }
            Some(_) => continue,
        };
        let fix =
            "split it by idea, or record it with `cargo xtask lint --fix-ratchet` and say why in the commit";
        findings.push(Finding::new(path, 1, what, fix));
    }
    for path in records.keys() {
        let what = match sizes.get(path) {
            None => format!("{path} is recorded and doesn't exist"),
            Some(lines) if *lines <= LIMIT => {
                format!("{path} has {lines} lines and needs no record any more")
            }
            Some(_) => continue,
        };
        let fix = "run `cargo xtask lint --fix-ratchet`";
        findings.push(Finding::new(PATH, 1, what, fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, usize)]) -> BTreeMap<String, usize> {
        entries.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect()
    }

    #[test]
    fn a_long_file_needs_a_record_and_may_not_pass_it() {
        let sizes = map(&[("a.rs", 400), ("b.rs", 401), ("c.rs", 500), ("d.rs", 501)]);
        let records = map(&[("c.rs", 500), ("d.rs", 500)]);
        let findings = compare(&sizes, &records);
        let paths: Vec<_> = findings.iter().map(|f| f.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["b.rs", "d.rs"]);
    }

    #[test]
    fn a_record_that_nobody_needs_is_a_finding() {
        let findings = compare(&map(&[("a.rs", 90)]), &map(&[("a.rs", 450), ("b.rs", 450)]));
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn records_survive_being_written() {
        let records = Records { files: map(&[("crates/a/src/b.rs", 512)]) };
        let text = format!("{HEAD}{}", toml::to_string(&records).unwrap());
        let read: Records = toml::from_str(&text).unwrap();
        assert_eq!(read.files, records.files);
    }
}
