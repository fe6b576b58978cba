//! Leftovers that never land: unfinished code, debug prints, tests switched off. And, below sync,
//! sockets of one's own.

use crate::finding::Finding;
use crate::source::Source;
use crate::workspace::TextFile;

const EVERYWHERE: [(&str, &str); 4] = [
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "remove it or trace"),
    ("#[ignore", "make the test run, or guard a long one by HIGHWATER_SOAK"),
];

/// Folders whose code stands below sync and has no business with sockets (transport and wire aside).
const OFFLINE: [&str; 8] =
    ["delivery", "identity", "join", "mls", "outbox", "processing", "receipt", "store"];
const SOCKETS: [&str; 3] = ["std::net::Tcp", "std::net::Udp", "tokio::net"];

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        if !(file.path.starts_with("crates") || file.path.starts_with("tests")) {
            continue;
        }
        let source = Source::scan(&file.text);
        let offline = OFFLINE.iter().any(|folder| file.path.starts_with(format!("crates/{folder}/src")));
        for (index, line) in source.code.lines().enumerate() {
            for (pattern, fix) in EVERYWHERE {
                if has(line, pattern) {
                    let what = format!("{pattern} left in");
                    findings.push(Finding::new(&file.path, index + 1, what, fix));
                }
            }
            for pattern in SOCKETS.iter().filter(|_| offline) {
                if has(line, pattern) {
                    findings.push(Finding::new(
                        &file.path,
                        index + 1,
                        format!("{pattern} below sync"),
                        "return what is needed from outside as a value and let sync resolve it",
                    ));
                }
            }
        }
    }
    findings
}

/// The pattern as a word of its own.
fn has(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile { path: path.into(), text: text.to_owned() };
        check(&[file]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn leftovers_are_found_in_code_and_not_in_prose() {
        let text = "fn a() { todo!() }\n// todo!\nlet s = \"dbg!\";\n#[ignore = \"slow\"]\nmy_todo!();\n";
        assert_eq!(lines("crates/wire/src/lib.rs", text), [1, 4]);
        assert!(lines("xtask/src/main.rs", text).is_empty());
    }

    #[test]
    fn sockets_are_for_sync_and_above() {
        let text = "use tokio::net::TcpStream;\n";
        assert_eq!(lines("crates/store/src/lib.rs", text), [1]);
        assert!(lines("crates/transport/src/lib.rs", text).is_empty());
    }
}
