//! Reads back what `cargo test --message-format=json-render-diagnostics` printed: cargo's artifact
//! lines say which package an executable belongs to, its headers which one is running, and the test
//! harness how each test ended.

use super::TestOutcome;
use anyhow::{Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One test of one executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RanTest {
    /// The package's folder, relative to the root.
    pub(crate) package: PathBuf,
    /// The root source file of the executable, relative to the root.
    pub(crate) source: PathBuf,
    /// With the modules, as the harness prints it.
    pub(crate) name: String,
    pub(crate) outcome: TestOutcome,
}

#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

#[derive(Clone)]
struct Executable {
    package: PathBuf,
    source: PathBuf,
}

pub(crate) fn parse(text: &str, root: &Path) -> Result<Vec<RanTest>> {
    let mut executables: BTreeMap<String, Executable> = BTreeMap::new();
    let mut running: Option<Executable> = None;
    let mut ran = Vec::new();
    for line in text.lines() {
        if line.starts_with("{\"reason\":") {
            if let Some((name, executable)) = artifact(line, root) {
                executables.insert(name, executable);
            }
        } else if let Some(name) = header(line) {
            let Some(executable) = executables.get(name) else {
                bail!("the output runs {name} and never said what it is: was it cut off?");
            };
            running = Some(executable.clone());
        } else if line.trim_start().starts_with("Doc-tests ") {
            // Documentation examples claim no requirement.
            running = None;
        } else if let (Some((name, outcome)), Some(executable)) = (result(line), &running) {
            ran.push(RanTest {
                package: executable.package.clone(),
                source: executable.source.clone(),
                name: name.to_owned(),
                outcome,
            });
        }
    }
    Ok(ran)
}

fn artifact(line: &str, root: &Path) -> Option<(String, Executable)> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let executable = artifact.executable?;
    let name = executable.file_name()?.to_string_lossy().into_owned();
    let within = |path: &Path| path.strip_prefix(root).map(Path::to_path_buf).ok();
    let executable = Executable {
        package: within(artifact.manifest_path.parent()?)?,
        source: within(&artifact.target.src_path)?,
    };
    Some((name, executable))
}

/// `     Running unittests src/lib.rs (target/debug/deps/highwater_wire-0a1b)` → the file's name.
fn header(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("Running ")?;
    let path = rest.strip_suffix(')')?.rsplit_once('(')?.1;
    path.rsplit(['/', '\\']).next()
}

/// `test a::b ... ok` → the test and how it ended.
fn result(line: &str) -> Option<(&str, TestOutcome)> {
    let (name, ended) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.trim_end_matches(" - should panic");
    let outcome = match ended.split([',', ' ']).next()? {
        "ok" => TestOutcome::Passed,
        "FAILED" => TestOutcome::Failed,
        "ignored" => TestOutcome::Ignored,
        _ => return None,
    };
    Some((name, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"   Compiling highwater-wire v0.1.0
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/r/crates/wire/Cargo.toml","target":{"kind":["lib"],"name":"highwater_wire","src_path":"/r/crates/wire/src/lib.rs"},"executable":"/r/target/debug/deps/highwater_wire-1a"}
{"reason":"compiler-artifact","package_id":"y","manifest_path":"/r/tests/Cargo.toml","target":{"kind":["test"],"name":"cut","src_path":"/r/tests/tests/cut.rs"},"executable":"/r/target/debug/deps/cut-2b"}
{"reason":"build-finished","success":true}
     Running unittests src/lib.rs (target/debug/deps/highwater_wire-1a)

running 3 tests
test topic::tests::a ... ok
test topic::tests::b ... FAILED
test topic::tests::c - should panic ... ignored, slow
     Running tests/cut.rs (target/debug/deps/cut-2b)
test a ... ok
   Doc-tests highwater_wire
test crates/wire/src/lib.rs - (line 3) ... ok
"#;

    #[test]
    fn results_belong_to_the_executable_whose_header_came_before() {
        let ran = parse(OUTPUT, Path::new("/r")).unwrap();
        let told: Vec<_> =
            ran.iter().map(|t| (t.source.to_str().unwrap(), t.name.as_str(), t.outcome)).collect();
        let wire = "crates/wire/src/lib.rs";
        assert_eq!(
            told,
            [
                (wire, "topic::tests::a", TestOutcome::Passed),
                (wire, "topic::tests::b", TestOutcome::Failed),
                (wire, "topic::tests::c", TestOutcome::Ignored),
                ("tests/tests/cut.rs", "a", TestOutcome::Passed),
            ]
        );
        assert_eq!(ran[3].package, Path::new("tests"));
    }

    #[test]
    fn an_executable_nobody_announced_is_an_error() {
        let cut = OUTPUT.lines().skip(2).collect::<Vec<_>>().join("\n");
        assert!(parse(&cut, Path::new("/r")).is_err());
    }
}
