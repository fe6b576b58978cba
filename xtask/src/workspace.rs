//! Where the repository is, which files and packages it has, and how commands run in it.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root folder: the one that holds this package's folder.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// A cargo command in the repository's root, without colours so that its output can be read back.
pub(crate) fn cargo<I, S>(arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments);
    command
}

/// The command as a person would type it.
pub(crate) fn spoken(command: &Command) -> String {
    let mut words = vec!["cargo".to_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// A file of the repository, read as text.
pub(crate) struct TextFile {
    /// Relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }
}

const TEXT_EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "proto", "sql", "sh", "yml", "yaml", "txt"];
const NOT_OURS: [&str; 2] = [".git", "node_modules"];
/// Build folders carry this mark; a module may well be called `target`.
const BUILD_MARK: &str = "CACHEDIR.TAG";

/// Every text file of the repository, in path order.
pub(crate) fn text_files(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let name = entry.file_name();
            if kind.is_dir() {
                let skipped = NOT_OURS.iter().any(|skipped| name == *skipped);
                if !skipped && !path.join(BUILD_MARK).exists() {
                    folders.push(path);
                }
            } else if kind.is_file()
                && path.extension().is_some_and(|found| TEXT_EXTENSIONS.iter().any(|known| found == *known))
            {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("{} is not UTF-8 text", path.display()))?;
                let path = path.strip_prefix(root)?.to_path_buf();
                files.push(TextFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// When a dependency counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    Dev,
    Build,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency.
    pub(crate) kind: Option<DependencyKind>,
}

/// A package of the workspace as its manifest declares it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The workspace's own packages; asks cargo, without resolving or downloading anything.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = cargo(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    Ok(metadata.packages)
}
