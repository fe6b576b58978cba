//! What tests say they show: `/// Shows: STR-061, PROC-002.` right above a test attribute, or
//! `//! Shows: …` at the head of an integration test file for all of its tests.

use crate::catalogue;
use crate::finding::Finding;
use crate::source::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A test and the requirement ids it says it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownTest {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// The inline modules around it within its file.
    pub(crate) modules: Vec<String>,
    pub(crate) name: String,
    pub(crate) ids: Vec<String>,
}

const HOW: &str = "write `/// Shows: ID, ID.` right above the test attribute";

pub(crate) fn parse(file: &Path, text: &str) -> (Vec<ShownTest>, Vec<Finding>) {
    let source = Source::scan(text);
    let modules = modules_by_line(&source.code);
    let comments: BTreeMap<usize, &str> =
        source.comments.iter().map(|comment| (comment.line, comment.text.as_str())).collect();
    let mut reader = Reader {
        file,
        head: Vec::new(),
        claim: None,
        is_test: false,
        attribute_depth: 0,
        tests: Vec::new(),
        findings: Vec::new(),
    };
    for (index, code) in source.code.lines().enumerate() {
        let line = index + 1;
        let code = code.trim();
        if code.is_empty() {
            if let Some(comment) = comments.get(&line) {
                reader.comment(line, comment);
            }
        } else {
            reader.code(line, code, &modules[index]);
        }
    }
    reader.drop_claim();
    (reader.tests, reader.findings)
}

/// Ids waiting for the test they stand above.
struct Claim {
    line: usize,
    ids: Vec<String>,
    /// The list ended in a comma and goes on in the next comment line.
    open: bool,
}

struct Reader<'f> {
    file: &'f Path,
    head: Vec<String>,
    claim: Option<Claim>,
    is_test: bool,
    attribute_depth: usize,
    tests: Vec<ShownTest>,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn comment(&mut self, line: usize, text: &str) {
        let slashes = if text.starts_with("///") || text.starts_with("//!") { 3 } else { 2 };
        let (kind, said) = text.split_at(slashes);
        let said = said.trim();
        if let Some(list) = said.strip_prefix("Shows:") {
            self.shows(line, kind, list);
        } else if kind == "///"
            && let Some(claim) = self.claim.as_mut().filter(|claim| claim.open)
        {
            claim.ids.extend(ids(said));
            claim.open = said.ends_with(',');
        }
    }

    fn shows(&mut self, line: usize, kind: &str, list: &str) {
        let ids = ids(list);
        if ids.is_empty() {
            self.complain(line, "Shows: names no requirement id");
            return;
        }
        match kind {
            "//!" if is_integration_test(self.file) => self.head.extend(ids),
            "//!" => self.complain(line, "//! Shows: outside an integration test file"),
            "///" => {
                let open = list.trim_end().ends_with(',');
                match &mut self.claim {
                    Some(claim) => claim.ids.extend(ids),
                    None => self.claim = Some(Claim { line, ids, open }),
                }
            }
            _ => self.complain(line, "Shows: in a plain comment counts for nothing"),
        }
    }

    fn code(&mut self, line: usize, code: &str, modules: &[String]) {
        if self.attribute_depth > 0 || code.starts_with("#[") {
            if self.attribute_depth == 0 && is_test_attribute(code) {
                self.is_test = true;
            }
            self.attribute_depth += code.matches('[').count();
            self.attribute_depth -= code.matches(']').count().min(self.attribute_depth);
            let closed_with_more = code
                .rsplit_once(']')
                .is_some_and(|(_, rest)| self.attribute_depth == 0 && !rest.trim().is_empty());
            if !closed_with_more {
                return;
            }
        }
        match function_name(code).filter(|_| self.is_test) {
            Some(name) => {
                let claimed = self.claim.take().map(|claim| claim.ids);
                let mut ids: Vec<_> = self.head.clone();
                ids.extend(claimed.unwrap_or_default());
                ids.sort();
                ids.dedup();
                if !ids.is_empty() {
                    self.tests.push(ShownTest {
                        file: self.file.to_path_buf(),
                        line,
                        modules: modules.to_vec(),
                        name,
                        ids,
                    });
                }
            }
            None => self.drop_claim(),
        }
        self.is_test = false;
    }

    fn drop_claim(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.complain(claim.line, "Shows: stands above something that is no test");
        }
    }

    fn complain(&mut self, line: usize, what: &str) {
        self.findings.push(Finding::new(self.file, line, what, HOW));
    }
}

fn ids(text: &str) -> Vec<String> {
    let named = catalogue::named_ids(text).into_iter();
    named.map(|(_, id)| id).collect()
}

fn is_integration_test(file: &Path) -> bool {
    file.starts_with("tests") || file.components().any(|part| part.as_os_str() == "tests")
}

/// `#[test]`, `#[tokio::test(…)]` and the like.
fn is_test_attribute(code: &str) -> bool {
    let inner = code.trim_start_matches("#[");
    let path = inner.split(['(', ']', ' ', '=']).next().unwrap_or_default();
    path == "test" || path.ends_with("::test")
}

fn function_name(code: &str) -> Option<String> {
    let mut words = code.split_whitespace();
    words.find(|word| *word == "fn")?;
    let name = words.next()?;
    let end = name.find(['(', '<']).unwrap_or(name.len());
    Some(name[..end].to_owned())
}

/// The inline modules open at the start of each line.
fn modules_by_line(code: &str) -> Vec<Vec<String>> {
    let mut by_line = Vec::new();
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut named: Option<String> = None;
    for line in code.split('\n') {
        by_line.push(open.iter().map(|(name, _)| name.clone()).collect());
        let mut previous = "";
        for word in words_and_braces(line) {
            match word {
                "{" => {
                    depth += 1;
                    open.extend(named.take().map(|name| (name, depth)));
                }
                "}" => {
                    if open.last().is_some_and(|(_, at)| *at == depth) {
                        open.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                ";" => named = None,
                _ if previous == "mod" => named = Some(word.to_owned()),
                _ => {}
            }
            previous = word;
        }
    }
    by_line
}

fn words_and_braces(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.split_inclusive(move |c: char| !is_word(c))
        .flat_map(move |piece| {
            let word = piece.trim_end_matches(move |c: char| !is_word(c));
            [word, &piece[word.len()..]]
        })
        .filter(|piece| !piece.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, text: &str) -> (Vec<(String, Vec<String>)>, Vec<String>) {
        let (tests, findings) = parse(Path::new(file), text);
        let tests = tests.into_iter().map(|test| {
            let path = [test.modules, vec![test.name]].concat();
            (path.join("::"), test.ids)
        });
        let findings = findings.into_iter().map(|f| f.to_string());
        (tests.collect(), findings.collect())
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn ids_above_a_test_belong_to_it() {
        let text = "mod tests {\n    /// Keeps what it took.\n    /// Shows: STR-061, PROC-002.\n    #[test]\n    \
                    fn keeps() {}\n\n    /// Shows: STR-001,\n    /// STR-002.\n    \
                    #[tokio::test(\n        flavor = \"multi_thread\"\n    )]\n    async fn opens() {}\n    #[test]\n    fn silent() {}\n}\n";
        let (tests, findings) = parsed("crates/a/src/b.rs", text);
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(
            tests,
            [
                ("tests::keeps".to_owned(), strings(&["PROC-002", "STR-061"])),
                ("tests::opens".to_owned(), strings(&["STR-001", "STR-002"])),
            ]
        );
    }

    #[test]
    fn ids_at_the_head_of_an_integration_test_belong_to_all_of_it() {
        let text = "//! Cuts links.\n//! Shows: STR-036.\n\n#[test]\nfn a() {}\n/// Shows: STR-061.\n#[test]\nfn b() {}\n";
        let (tests, findings) = parsed("tests/tests/cut.rs", text);
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(tests[0], ("a".to_owned(), strings(&["STR-036"])));
        assert_eq!(tests[1], ("b".to_owned(), strings(&["STR-036", "STR-061"])));
    }

    #[test]
    fn a_claim_without_a_test_is_a_finding() {
        for text in [
            "/// Shows: STR-061.\nfn helper() {}\n",
            "// Shows: STR-061.\n#[test]\nfn a() {}\n",
            "/// Shows: nothing.\n#[test]\nfn a() {}\n",
            "//! Shows: STR-061.\n",
        ] {
            let (tests, findings) = parsed("crates/a/src/b.rs", text);
            assert!(tests.is_empty(), "{text}");
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        }
    }

    #[test]
    fn text_inside_a_literal_claims_nothing() {
        let text = "const T: &str = \"\n/// Shows: STR-061.\n#[test]\nfn a() {}\n\";\n";
        assert_eq!(parsed("crates/a/src/b.rs", text), (vec![], vec![]));
    }
}
