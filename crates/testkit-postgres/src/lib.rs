//! Throw-away PostgreSQL servers for tests: real ones, on a free port, gone with the test process.
//!
//! Each server runs under a small shell that waits on a pipe from this process. However the process ends,
//! the pipe closes, and the shell stops the server and removes its files.
//!
//! PostgreSQL refuses to run as root; a root process runs it as the user `postgres`, which Debian's
//! package makes.

#![allow(clippy::expect_used, reason = "a test kit: what fails here fails the test")]

mod programs;
mod watched;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use programs::Programs;
pub use programs::missing;
use watched::Watched;

/// How a server is made to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, everything is written down.
    Fast,
    /// As a crash: recovery is needed at the next start.
    Immediate,
}

/// A server, or a standby of one. Dropping it stops it and removes its files.
#[derive(Debug)]
pub struct Postgres {
    programs: Programs,
    data: PathBuf,
    port: u16,
    sync: bool,
    running: Option<Watched>,
}

impl Postgres {
    /// The server that all tests of this process share. Each takes a database of its own.
    ///
    /// # Panics
    /// When PostgreSQL isn't installed or doesn't start.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a server of its own, for a test that stops it.
    ///
    /// # Panics
    /// When PostgreSQL isn't installed or doesn't start.
    pub fn start() -> Self {
        Self::new(false)
    }

    /// As [`Postgres::start`], but it waits for the disk at every commit: for measurements.
    ///
    /// # Panics
    /// As there.
    pub fn start_durable() -> Self {
        Self::new(true)
    }

    fn new(sync: bool) -> Self {
        let programs = Programs::find();
        let data = programs.folder();
        programs.run("initdb", |command| {
            command.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        });
        let mut server = Self { programs, data, port: free_port(), sync, running: None };
        server.start_again();
        server
    }

    /// Starts a stopped server on its files and port.
    ///
    /// # Panics
    /// When it runs, or doesn't start.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the server runs");
        self.running = Some(Watched::start(&self.programs, &self.data, self.port, self.sync));
    }

    /// Stops the server and keeps its files.
    pub fn stop(&mut self, how: Stop) {
        if let Some(running) = self.running.take() {
            running.stop(how);
        }
    }

    /// A streaming standby of this server, which serves reads.
    pub fn replica(&self) -> Self {
        let data = self.programs.folder();
        // The folder exists for its owner's sake; pg_basebackup wants it empty, which it is.
        self.programs.run("pg_basebackup", |command| {
            command.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "--checkpoint=fast"]);
            command.arg("-p").arg(self.port.to_string()).arg("-D").arg(&data).arg("--no-sync");
        });
        let mut replica =
            Self { programs: self.programs.clone(), data, port: free_port(), sync: self.sync, running: None };
        replica.start_again();
        replica
    }

    /// Where a database of the server is reached.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes a new, empty database and gives its name.
    pub fn create_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Runs one statement as the superuser and gives what it prints, rows by line.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        self.programs.run("psql", |command| {
            command.args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
            ]);
            command.args(["-p", &self.port.to_string(), "-d", database, "-c", statement]);
        })
    }

    /// Ends every session of a database whose last statement contains `text`; how many there were.
    pub fn terminate(&self, database: &str, text: &str) -> usize {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = '{database}' AND pid <> pg_backend_pid() AND query LIKE '%{text}%'"
        );
        self.sql("postgres", &statement).trim().parse().expect("a count")
    }

    /// Lets a standby fall behind.
    pub fn pause_replay(&self) {
        self.sql("postgres", "SELECT pg_wal_replay_pause()");
    }

    /// Lets it follow again.
    pub fn resume_replay(&self) {
        self.sql("postgres", "SELECT pg_wal_replay_resume()");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
        remove(&self.data);
    }
}

fn remove(folder: &Path) {
    // What is left in the temporary folder is only untidy.
    let _ = std::fs::remove_dir_all(folder);
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
