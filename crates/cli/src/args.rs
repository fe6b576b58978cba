//! The command line's grammar.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use highwater::{DeliveryCursor, GroupId, InboxId};
use highwater_backend::DatabaseConfig;

/// End-to-end encrypted messaging with durable receipt, processing and delivery.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, arg_required_else_help = false)]
pub(crate) struct Arguments {
    /// Print one JSON object per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it all at work: a backend, three clients, cut links, killed and reopened clients, and what arrived.
    Demo(DemoArgs),
    /// Run the backend.
    Serve(ServeArgs),
    /// Make a client's home and register it. Cut short at any point, the same command finishes it.
    Init(InitArgs),
    /// Show who a home is.
    Whoami(HomeArgs),
    /// Create, change and show conversations.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Send text. While the backend is down it is queued, and goes out with the next `send` or `sync`.
    Send(SendArgs),
    /// Print messages as they come, remembering which were handled.
    ///
    /// A printed line is handled, with --pace once its pause is over. It is acknowledged when the next line is asked for,
    /// and the last one when the command ends by --count, --timeout, Ctrl-C or SIGTERM. A line that is not handled by then
    /// is the first that the next `stream` prints; so is the last line of one that was killed.
    ///
    /// A reader who goes away ends the command, and the line that it could not get comes again. What a pipe has taken in
    /// counts as printed, read or not: to get so many messages and no more, say --count.
    Stream(StreamArgs),
    /// Print messages after a cursor, without touching what `stream` remembers.
    Replay(ReplayArgs),
    /// Print what is stored.
    History(HistoryArgs),
    /// Send what is queued, and fetch and process everything up to now.
    Sync(SyncArgs),
    /// Show the positions of every topic and group.
    Status(HomeArgs),
    /// Check every invariant of the database.
    Audit(HomeArgs),
}

/// Whose command it is.
#[derive(Clone, Debug, Args)]
pub(crate) struct HomeArgs {
    /// The client's home: a folder with its database and its keys.
    #[arg(long, value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The backend, instead of the one that `init` stored.
    #[arg(long, value_name = "URL", value_parser = backend_url)]
    pub(crate) backend: Option<String>,
    /// Receive over streams from the backend alone, where one in both directions doesn't get through a proxy.
    #[arg(long = "static")]
    pub(crate) static_streams: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5050", conflicts_with = "config")]
    pub(crate) listen: SocketAddr,
    /// Where to store: `sqlite:PATH`, or `postgres://HOST/DATABASE` for several instances.
    #[arg(long, value_name = "DATABASE", required_unless_present = "config", conflicts_with = "config")]
    pub(crate) database: Option<DatabaseConfig>,
    /// A configuration file, which says everything else; docs/backend.example.toml shows one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Only say whether the configuration file is good.
    #[arg(long, requires = "config")]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The client's home: a folder that is made if it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) home: PathBuf,
    /// The backend. Needed the first time.
    #[arg(long, value_name = "URL", value_parser = backend_url)]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Create a group, or with --dm a conversation of two.
    Create(CreateArgs),
    /// Bring members in.
    Add(MemberArgs),
    /// Take members out.
    Remove(MemberArgs),
    /// Set a group's name.
    Rename(RenameArgs),
    /// Show every conversation.
    List(HomeArgs),
    /// Show a conversation's members.
    Members(GroupArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Who else is in it.
    #[arg(long, value_name = "INBOX", num_args = 1.., required_unless_present = "dm")]
    pub(crate) member: Vec<InboxId>,
    /// The one other inbox of a conversation of two.
    #[arg(long, value_name = "INBOX", conflicts_with_all = ["member", "name"])]
    pub(crate) dm: Option<InboxId>,
    /// Its name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// The group.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: GroupId,
}

#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    #[command(flatten)]
    pub(crate) of: GroupArgs,
    /// Whom.
    #[arg(long, value_name = "INBOX", num_args = 1.., required = true)]
    pub(crate) member: Vec<InboxId>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    #[command(flatten)]
    pub(crate) of: GroupArgs,
    /// The new name.
    #[arg(long)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

/// How long a command that changes something waits for what becomes of it.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The longest wait for the change to be confirmed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) of: GroupArgs,
    /// The text.
    pub(crate) text: String,
    /// The same key and text in a group are one message, however often the command is run.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Only these groups.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<GroupId>,
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    /// Wait so long after each message, as an app that takes its time to handle it. One whose wait is cut short was not
    /// handled, and comes again.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub(crate) pace: u64,
}

/// When a command that goes on by itself ends.
#[derive(Debug, Args)]
pub(crate) struct UntilArgs {
    /// End after so many messages.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after so long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Print what comes after this cursor; everything without one.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) from: Option<DeliveryCursor>,
    /// Only these groups.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<GroupId>,
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    /// Go on with what comes after what is stored. --count and --timeout do so too.
    #[arg(long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// Only these groups.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<GroupId>,
    /// Only the last so many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(crate) home: HomeArgs,
    /// The longest the sync may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many messages are sent.
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) messages: u32,
    /// Leave the clients' homes and the backend's database in this folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

fn backend_url(text: &str) -> Result<String, String> {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .ok_or("write it as http://HOST:PORT")?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let is_authority = !authority.is_empty()
        && !authority.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '@'));
    let port_is_number = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => !host.is_empty() && port.parse::<u16>().is_ok(),
        _ => true,
    };
    if is_authority && port_is_number {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("write it as http://HOST:PORT".into())
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds, as 2.5")?;
    // A year: longer waits overflow timers and mean the same.
    if seconds.is_finite() && (0.0..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("write a number of seconds from 0 to 31536000".into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_backend_is_a_scheme_a_host_and_a_port() {
        for good in ["http://127.0.0.1:5050", "https://example.org", "http://[::1]:80/"] {
            assert!(backend_url(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:5050", "ftp://x", "http://", "http://x:port", "http://a b", "http://x/y"] {
            assert!(backend_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_finite() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        for bad in ["-1", "NaN", "inf", "soon", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
