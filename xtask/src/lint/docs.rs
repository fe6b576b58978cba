//! Documents that point at nothing: requirement ids without an entry, and paths without a file.

use crate::catalogue::{self, Catalogue};
use crate::finding::Finding;
use crate::workspace::TextFile;
use std::path::{Path, PathBuf};

/// A back-ticked word with a slash is a path when it starts with one of these.
const TOP_FOLDERS: [&str; 6] = ["crates", "docs", "proto", "tests", "xtask", ".ci"];

pub(crate) fn check(root: &Path, files: &[TextFile], catalogue: &Catalogue) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (line, id) in catalogue::named_ids(&file.text) {
            if !catalogue.contains(&id) {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("{id} is no requirement"),
                    format!("spell it as in {}", catalogue::PATH),
                ));
            }
        }
        if file.has_extension("md") {
            for pointer in pointers(&file.text) {
                findings.extend(check_pointer(root, &file.path, &pointer));
            }
        }
    }
    findings
}

#[derive(Debug, PartialEq, Eq)]
enum Pointer {
    /// A Markdown link: relative to the document.
    Link { line: usize, target: String },
    /// A path in running text: relative to the document or the root.
    Named { line: usize, path: String },
}

fn pointers(text: &str) -> Vec<Pointer> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let number = index + 1;
            found.extend(links(line).map(|target| Pointer::Link { line: number, target: target.to_owned() }));
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(
                spans
                    .filter(|span| is_path(span))
                    .map(|path| Pointer::Named { line: number, path: path.to_owned() }),
            );
        }
    }
    found
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let target = rest[..rest.find(')')?].split_whitespace().next()?;
        let outside = target.contains("://") || target.starts_with("mailto:");
        (!outside).then_some(target)
    })
}

fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let Some((first, _)) = span.split_once('/') else {
        return false;
    };
    span.chars().all(plain) && TOP_FOLDERS.contains(&first)
}

fn check_pointer(root: &Path, document: &Path, pointer: &Pointer) -> Option<Finding> {
    let folder = root.join(document.parent().unwrap_or(Path::new("")));
    match pointer {
        Pointer::Link { line, target } => {
            let (path, heading) = match target.split_once('#') {
                Some((path, heading)) => (path, Some(heading)),
                None => (target.as_str(), None),
            };
            let file = if path.is_empty() { root.join(document) } else { folder.join(path) };
            if !file.exists() {
                return Some(missing(document, *line, target));
            }
            let heading = heading?;
            (!has_heading(&file, heading)).then(|| {
                Finding::new(document, *line, format!("{target}: no such heading"), "name one the file has")
            })
        }
        Pointer::Named { line, path } => {
            let candidates: [PathBuf; 2] = [folder.join(path), root.join(path)];
            let exists = candidates.iter().any(|candidate| candidate.exists());
            (!exists).then(|| missing(document, *line, path))
        }
    }
}

fn missing(document: &Path, line: usize, path: &str) -> Finding {
    Finding::new(document, line, format!("{path} doesn't exist"), "correct the path or remove it")
}

fn has_heading(file: &Path, wanted: &str) -> bool {
    if file.extension().is_none_or(|extension| extension != "md") {
        return true;
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| slug(line.trim_start_matches('#').trim()) == wanted)
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        _ if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        let root = workspace::root();
        let catalogue = Catalogue::load(&root).unwrap();
        let file = TextFile { path: path.into(), text: text.to_owned() };
        check(&root, &[file], &catalogue)
    }

    #[test]
    fn an_unknown_id_is_found_in_any_text() {
        let unknown = format!("{}-{}", "STR", 999);
        let found = findings("crates/x/src/lib.rs", &format!("//! STR-001\n//! {unknown}"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn links_and_named_paths_must_exist() {
        let text = "[a](requirements.toml) [b](gone.md) `xtask/Cargo.toml` `docs/gone.md` `a/b`\n\
                    [c](https://example.org/x)\n```\n[d](fenced.md)\n```\n";
        let found = findings("docs/guide.md", text);
        let whats: Vec<_> = found.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(whats, ["gone.md doesn't exist", "docs/gone.md doesn't exist"]);
    }

    #[test]
    fn headings_become_slugs() {
        assert_eq!(slug("What it owns, `F` and P"), "what-it-owns-f-and-p");
    }
}
