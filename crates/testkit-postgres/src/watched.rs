//! A running server and the shell that watches this process for it.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Stop, programs::Programs};

const START: Duration = Duration::from_secs(60);

/// `$1` is the server, `$2` its folder, `$3` its port, `$4` whether it waits for the disk. A line names the signal to stop with; no line but
/// the end of the pipe means that whoever started the server is gone, and wants its files gone too.
const WATCH: &str = r#"
"$1" -D "$2" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$2" -c fsync="$4" \
    -c max_connections=300 -c logging_collector=off -c log_min_messages=fatal >"$2/server.log" 2>&1 </dev/null &
server=$!
if read -r signal; then
    kill "-$signal" "$server"; wait "$server"
else
    kill -QUIT "$server"; wait "$server"; rm -rf "$2"
fi
"#;

#[derive(Debug)]
pub(crate) struct Watched {
    shell: Child,
    pipe: ChildStdin,
}

impl Watched {
    pub(crate) fn start(programs: &Programs, data: &Path, port: u16, sync: bool) -> Self {
        let mut command = programs.command("sh");
        command.args(["-c", WATCH, "watch"]).arg(programs.path("postgres")).arg(data);
        command.arg(port.to_string()).arg(if sync { "on" } else { "off" });
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn().expect("a shell starts");
        let pipe = shell.stdin.take().expect("its input is a pipe");
        let mut watched = Self { shell, pipe };
        watched.wait_until_ready(programs, data, port);
        watched
    }

    fn wait_until_ready(&mut self, programs: &Programs, data: &Path, port: u16) {
        let deadline = Instant::now() + START;
        loop {
            let mut ready = Command::new(programs.path("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
            if ready.status().expect("pg_isready runs").success() {
                return;
            }
            assert!(Instant::now() < deadline, "PostgreSQL doesn't get ready: {}", log(data));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn stop(mut self, how: Stop) {
        let signal = match how {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
        };
        // A server that died by itself has left nobody to read this.
        let _ = writeln!(self.pipe, "{signal}");
        let _ = self.shell.wait();
    }
}

fn log(data: &Path) -> String {
    std::fs::read_to_string(data.join("server.log")).unwrap_or_default()
}
