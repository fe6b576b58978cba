//! A Python environment with exactly the packages of `tests/python/requirements.txt`.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::process::Command;

use crate::{run, write};

/// An installation fetches packages.
const INSTALLATION: Duration = Duration::from_secs(300);

/// The environment, which outlives a run: installing takes longer than testing.
pub(crate) struct Venv(PathBuf);

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Venv {
    /// Makes it, unless one for the same requirements is there.
    pub(crate) async fn ready() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in target");
        let venv = Self(target.join("python"));
        let lock = File::create(target.join("python.lock")).expect("a lock file");
        // Another run may be installing. The lock goes with the file, also on panic.
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
            .await
            .expect("no panic")
            .expect("the lock");
        let requirements = workspace().join("tests/python/requirements.txt");
        let wanted = std::fs::read(&requirements).expect("the requirements");
        let stamp = venv.0.join("requirements.stamp");
        if std::fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            venv.install(&requirements).await;
            // Last: an installation that was cut short has none.
            write(&stamp, &wanted);
        }
        drop(lock);
        venv
    }

    async fn install(&self, requirements: &Path) {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.0);
        run(make, INSTALLATION).await;
        let mut pip = self.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(requirements);
        run(pip, INSTALLATION).await;
    }

    pub(crate) fn python(&self) -> Command {
        let mut python = Command::new(self.0.join("bin/python"));
        python.env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }

    /// Messages and stubs of all of the workspace's `.proto` files.
    pub(crate) async fn generate_stubs(&self, into: &Path) {
        let proto = workspace().join("proto");
        let mut files = Vec::new();
        find(&proto, &mut files);
        let mut protoc = self.python();
        protoc.args(["-m", "grpc_tools.protoc"]);
        for (option, folder) in
            [("-I", proto.as_path()), ("--python_out=", into), ("--grpc_python_out=", into)]
        {
            protoc.arg(format!("{option}{}", folder.display()));
        }
        protoc.args(files);
        run(protoc, INSTALLATION).await;
    }
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
}
