//! A client in a process of its own.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_testkit::TestClient;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Long enough for a loaded machine, short enough to fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running process. It dies with this value.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<Value>>>,
    reading: JoinHandle<()>,
}

impl Process {
    /// Runs over the database of a client, which may be open here or not.
    pub(crate) fn start(client: &TestClient, backend: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
        command.arg("--database").arg(client.path());
        command.args(["--key", &client.key().to_hex(), "--backend", backend]).args(more);
        Self::run(command)
    }

    /// Runs a program that says JSON, a line each.
    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&lines);
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                // A line that death cut short says nothing.
                if let Ok(line) = serde_json::from_str(&line) {
                    said.lock().unwrap().push(line);
                }
            }
        });
        Self { child, stdin, lines, reading }
    }

    /// What it said so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// Gives it a line to read.
    pub(crate) async fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it listens");
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Waits until it has said so many lines, and returns the last of them.
    pub(crate) async fn said_line(&self, count: usize) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.lines.lock().unwrap().get(count - 1) {
                return line.clone();
            }
            assert!(Instant::now() < deadline, "it said only {:?}", self.lines().last());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// SIGKILL. Returns all that it said.
    pub(crate) async fn kill(mut self) -> Vec<Value> {
        self.child.kill().await.unwrap();
        self.said().await
    }

    /// Sends a signal by its name. Returns from `STOP` when no thread of it runs any more: the signal is under way for as
    /// long as the thread that takes it has to wait for a processor, and the others go on meanwhile.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs");
        let sent = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).status().await.unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + PATIENCE;
        while name == "STOP" && !is_stopped(id) {
            assert!(Instant::now() < deadline, "it is not stopped");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Tells it to end, and waits until it did. Returns all that it said.
    pub(crate) async fn end(mut self) -> Vec<Value> {
        drop(self.stdin.take());
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert!(ended.success(), "{ended}");
        self.said().await
    }

    async fn said(self) -> Vec<Value> {
        self.reading.await.unwrap();
        self.lines.lock().unwrap().clone()
    }
}

/// Whether all threads of a process are stopped. Where there is no `/proc` to tell, that is taken on trust.
fn is_stopped(id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // After the name, which may hold anything, in parentheses.
        stat.rsplit(')')
            .next()
            .is_none_or(|rest| rest.trim_start().starts_with(['T', 't', 'X', 'Z']) || rest.is_empty())
    })
}
