//! Where PostgreSQL's programs are, and as whom they run.

use std::{
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Why PostgreSQL can't be started here, if it can't.
pub fn missing() -> Option<String> {
    match folder_of_programs() {
        Some(_) => None,
        None => Some("PostgreSQL's server isn't installed (Debian: apt-get install postgresql)".to_owned()),
    }
}

/// The newest version's folder, in Debian's place or behind `initdb` in the PATH.
fn folder_of_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, folder)| folder.join("initdb").exists())
        .max();
    if let Some((_, folder)) = newest {
        return Some(folder);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}

#[derive(Debug, Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// Whether they must run as another user than this process.
    as_postgres: bool,
}

impl Programs {
    pub(crate) fn find() -> Self {
        let folder = folder_of_programs().unwrap_or_else(|| {
            panic!("{}; `cargo xtask prepare` installs it", missing().unwrap_or_default())
        });
        let user = Command::new("id").arg("-u").output().expect("id runs").stdout;
        Self { folder, as_postgres: user == b"0\n" }
    }

    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// A command line that runs a program as whoever may.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        if self.as_postgres {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
            // It may not enter this process's folder.
            command.current_dir("/");
            command
        } else {
            Command::new(program)
        }
    }

    /// Runs a program to its end and gives its output.
    pub(crate) fn run(&self, program: &str, arguments: impl FnOnce(&mut Command)) -> String {
        let mut command = self.command(self.path(program));
        arguments(&mut command);
        let output = command.stdin(Stdio::null()).output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} failed: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A new folder of the user that runs the server.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("highwater-postgres-").tempdir();
        let folder = folder.expect("a temporary folder").keep();
        // The server insists on it.
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&folder, private).expect("the folder is ours");
        if self.as_postgres {
            own(&folder);
        }
        folder
    }
}

fn own(folder: &Path) {
    let status = Command::new("chown").arg("postgres:postgres").arg(folder).status().expect("chown runs");
    assert!(status.success(), "the folder could not be given to postgres");
}
