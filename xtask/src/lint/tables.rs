//! Table ownership: a crate's tables are those its SQL creates, and no other crate's string
//! literals may name them, not even to read.

use crate::finding::Finding;
use crate::source::Source;
use crate::workspace::TextFile;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The server's tables live in a database of their own and carry no prefix; elsewhere their names
/// are ordinary words, so they only count where SQL expects a table.
const UNPREFIXED: &str = "backend";

struct SqlText {
    path: PathBuf,
    folder: String,
    line: usize,
    text: String,
    /// Inside test code, where throw-away tables are nobody's business.
    in_test: bool,
}

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let texts: Vec<SqlText> = files.iter().flat_map(sql_texts).collect();
    let mut findings = Vec::new();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for text in texts.iter().filter(|text| !text.in_test) {
        for (line, table) in created_tables(text) {
            let prefix = format!("{}_", text.folder.replace('-', "_"));
            if text.folder != UNPREFIXED && !table.starts_with(&prefix) {
                findings.push(Finding::new(
                    &text.path,
                    line,
                    format!("table {table} doesn't carry its owner's name"),
                    format!("call it {prefix}…"),
                ));
            }
            let owner = *owners.entry(table.clone()).or_insert(&text.folder);
            if owner != text.folder {
                findings.push(Finding::new(
                    &text.path,
                    line,
                    format!("table {table} is created by {owner} already"),
                    "give each table one owner",
                ));
            }
        }
    }
    for text in &texts {
        for (line, table) in foreign_tables(text, &owners) {
            findings.push(Finding::new(
                &text.path,
                line,
                format!("{} names {table}, a table of {}", text.folder, owners[&table]),
                format!("call a function of {} with the transaction", owners[&table]),
            ));
        }
    }
    findings
}

/// The string literals of a crate's source, and its SQL files whole.
fn sql_texts(file: &TextFile) -> Vec<SqlText> {
    let mut parts = file.path.components();
    let (Some(Component::Normal(top)), Some(Component::Normal(folder)), Some(Component::Normal(inner))) =
        (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let is_source = inner == "src" && file.has_extension("rs");
    let is_sql = file.has_extension("sql");
    if top != "crates" || !(is_source || is_sql) {
        return Vec::new();
    }
    let text = |line, text, in_test| SqlText {
        path: file.path.clone(),
        folder: folder.to_string_lossy().into_owned(),
        line,
        text,
        in_test,
    };
    if is_sql {
        return vec![text(1, file.text.clone(), false)];
    }
    let source = Source::scan(&file.text);
    let regions = source.test_regions();
    let test_file = is_test_file(&file.path);
    let literals = source.literals.into_iter().map(|literal| {
        let inside = |(first, last): &(usize, usize)| (*first..=*last).contains(&literal.line);
        let in_test = test_file || regions.iter().any(inside);
        text(literal.line, literal.text, in_test)
    });
    literals.collect()
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"))
}

/// Words with the line each stands on.
fn words(text: &SqlText) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.text.split('\n').enumerate() {
        let line_words = line
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .map(|word| (text.line + index, word));
        found.extend(line_words);
    }
    found
}

fn created_tables(text: &SqlText) -> Vec<(usize, String)> {
    let words = words(text);
    let is =
        |at: usize, keyword: &str| words.get(at).is_some_and(|(_, word)| word.eq_ignore_ascii_case(keyword));
    let mut found = Vec::new();
    for at in 0..words.len() {
        if !is(at, "create") {
            continue;
        }
        let mut next = at + 1;
        if is(next, "virtual") {
            next += 1;
        }
        if !is(next, "table") {
            continue;
        }
        next += 1;
        if is(next, "if") && is(next + 1, "not") && is(next + 2, "exists") {
            next += 3;
        }
        if let Some((line, name)) = words.get(next) {
            found.push((*line, (*name).to_owned()));
        }
    }
    found
}

fn foreign_tables(text: &SqlText, owners: &BTreeMap<String, &str>) -> Vec<(usize, String)> {
    let words = words(text);
    let mut found = Vec::new();
    for (at, (line, word)) in words.iter().enumerate() {
        let Some(owner) = owners.get(*word) else {
            continue;
        };
        let wants_table = at > 0
            && ["from", "join", "into", "update", "table"]
                .iter()
                .any(|keyword| words[at - 1].1.eq_ignore_ascii_case(keyword));
        if *owner != text.folder && (*owner != UNPREFIXED || wants_table) {
            found.push((*line, (*word).to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.to_owned() }
    }

    fn receipt() -> TextFile {
        file(
            "crates/receipt/src/schema.rs",
            "const STEP: &str = \"\n    CREATE TABLE IF NOT EXISTS receipt_pending (id)\";",
        )
    }

    #[test]
    fn a_foreign_table_is_found_in_a_literal_and_nowhere_else() {
        let reader = file(
            "crates/processing/src/head.rs",
            "// receipt_pending\nfn receipt_pending() { q(\"SELECT 1\n FROM receipt_pending\"); }",
        );
        let findings = check(&[receipt(), reader]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].line, 3);
        assert!(findings[0].what.contains("a table of receipt"));
    }

    #[test]
    fn the_owner_may_name_its_own_table() {
        let own = file("crates/receipt/src/admit.rs", "q(\"INSERT INTO receipt_pending VALUES (1)\")");
        assert!(check(&[receipt(), own]).is_empty());
    }

    #[test]
    fn a_table_without_its_owners_prefix_is_found_outside_tests_only() {
        let source = "const S: &str = \"create table heads (x)\";\n#[cfg(test)]\nmod tests {\n\
                      const T: &str = \"CREATE TABLE t (x)\";\n}\n";
        let findings = check(&[file("crates/delivery/src/schema.rs", source)]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("heads"));
    }

    #[test]
    fn a_server_table_counts_only_where_sql_expects_a_table() {
        let server = file("crates/backend/src/schema.rs", "const S: &str = \"CREATE TABLE envelopes (x)\";");
        let prose = file("crates/sync/src/a.rs", "log(\"envelopes arrived\")");
        let query = file("crates/sync/src/b.rs", "q(\"SELECT x FROM envelopes\")");
        let findings = check(&[server, prose, query]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].path.ends_with("b.rs"));
    }
}
