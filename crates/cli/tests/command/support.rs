//! Runs the real binary.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No command of a healthy test takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) lines: Vec<Value>,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    /// The one line of a command that succeeded.
    pub(crate) fn one(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.lines.len(), 1, "{self:?}");
        &self.lines[0]
    }

    /// All lines of a command that succeeded.
    pub(crate) fn all(&self) -> &[Value] {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.lines
    }

    /// The texts of the messages among the lines.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.all()
            .iter()
            .filter(|line| line["event"] == "message")
            .map(|line| line["text"].as_str().unwrap())
            .collect()
    }

    /// Asserts that it failed with `code` and said why on one line, and printed nothing else.
    pub(crate) fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = self.stderr.strip_suffix('\n').expect("an error ends its line");
        assert!(line.starts_with("error: ") && !line.contains('\n'), "{self:?}");
        assert!(self.lines.is_empty(), "{self:?}");
        line
    }
}

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command with `--json` to its end.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    finish(start(arguments))
}

/// Starts a command with `--json`.
pub(crate) fn start(arguments: &[&str]) -> Child {
    binary()
        .arg("--json")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

/// Waits for a command, and collects what it printed.
pub(crate) fn finish(mut child: Child) -> Ran {
    let started = Instant::now();
    let out = child.stdout.take().map(read_all);
    let err = child.stderr.take().map(read_all);
    let code = ended(&mut child);
    let took = started.elapsed();
    let text = |reader: Option<Reading>| reader.map(|reader| reader.join().unwrap().unwrap());
    let (stdout, stderr) = (text(out).unwrap_or_default(), text(err).unwrap_or_default());
    assert!(took < PATIENCE, "a command hangs: {stdout:?} {stderr:?}");
    let lines = stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    Ran { code, lines, stderr, took }
}

type Reading = std::thread::JoinHandle<std::io::Result<String>>;

fn read_all(mut from: impl std::io::Read + Send + 'static) -> Reading {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    })
}

/// Waits for a command's exit status. One that hangs is killed, and has none.
pub(crate) fn ended(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `serve` as a process of its own.
pub(crate) struct Backend {
    child: Option<Child>,
    database: PathBuf,
    pub(crate) url: String,
}

impl Backend {
    pub(crate) fn start(dir: &Path) -> Self {
        let mut backend =
            Self { child: None, database: dir.join("backend.db"), url: "http://127.0.0.1:0".into() };
        backend.restart();
        backend
    }

    /// Starts it, on the port it had before if it had one.
    pub(crate) fn restart(&mut self) {
        assert!(self.child.is_none());
        let database = format!("sqlite:{}", self.database.display());
        let listen = self.url.strip_prefix("http://").unwrap().to_owned();
        let mut child = binary()
            .args(["--json", "serve", "--listen", &listen, "--database", &database])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).expect("serve says where it listens");
        assert_eq!(listening["event"], "listening");
        self.url = format!("http://{}", listening["address"].as_str().unwrap());
        self.child = Some(child);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and the exit status.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        signal(&child, "TERM");
        child.wait().unwrap().code()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A registered client's home.
pub(crate) struct Home {
    pub(crate) dir: PathBuf,
    pub(crate) inbox: String,
}

impl Home {
    pub(crate) fn init(dir: PathBuf, backend: &Backend) -> Self {
        let ran = run(&["init", "--home", dir.to_str().unwrap(), "--backend", &backend.url]);
        let inbox = ran.one()["inbox_id"].as_str().unwrap().to_owned();
        Self { dir, inbox }
    }

    pub(crate) fn path(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    /// Runs a command for this home; `command` may be of two words.
    pub(crate) fn run(&self, command: &str, more: &[&str]) -> Ran {
        run(&self.arguments(command, more))
    }

    pub(crate) fn start(&self, command: &str, more: &[&str]) -> Child {
        start(&self.arguments(command, more))
    }

    fn arguments<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments: Vec<_> = command.split(' ').collect();
        arguments.extend(["--home", self.path()]);
        arguments.extend(more);
        arguments
    }

    /// Creates a group with `others` and has them follow the invitation.
    pub(crate) fn group_with(&self, others: &[&Home]) -> String {
        let mut more = vec!["--member"];
        more.extend(others.iter().map(|other| other.inbox.as_str()));
        let ran = self.run("group create", &more);
        let group = ran.one()["group_id"].as_str().unwrap().to_owned();
        for other in others {
            other.run("sync", &[]).one();
        }
        group
    }

    pub(crate) fn send(&self, group: &str, text: &str) -> Value {
        self.run("send", &["--group", group, text]).one().clone()
    }

    /// Asserts that the audit is clean.
    pub(crate) fn assert_clean(&self) {
        let ran = self.run("audit", &[]);
        assert_eq!(ran.one()["clean"], true, "{ran:?}");
    }
}

/// Reads lines of a running command.
pub(crate) struct Lines(BufReader<ChildStdout>);

impl Lines {
    pub(crate) fn of(child: &mut Child) -> Self {
        Self(BufReader::new(child.stdout.take().unwrap()))
    }

    /// The next message; news about groups are passed over.
    pub(crate) fn next_message(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the command ended");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["event"] == "message" {
                return value;
            }
        }
    }
}
