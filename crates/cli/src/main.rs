//! The `highwater` command: a client's home on the command line, the backend, and the demonstration.
//!
//! Every command prints for people, or one JSON object per line with `--json`; a failure is one line on standard error
//! that says what to do. Exit status: 0 done, 1 failed, 2 wrong usage, 3 incomplete.

mod args;
mod commands;
mod demo;
mod failure;
mod home;
mod logs;
mod output;
mod proxy;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;
use highwater_backend::LogSettings;

use crate::args::{Arguments, Command, GroupCommand};
use crate::commands::serve::Serve;
use crate::failure::{Failure, usage};
use crate::output::Output;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    /// What was asked for was found wrong: an unclean audit, a refused message.
    Failed,
    /// There is work left.
    Incomplete,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let output = Output::new(arguments.json);
    let task = match Task::prepare(arguments.command) {
        Ok(task) => task,
        Err(failure) => return failure.report(),
    };
    if let Err(failure) = logs::start(task.logs()) {
        return failure.report();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::from(error).report(),
    };
    let ended = runtime.block_on(task.run(&output));
    // Whatever is still on its way has nobody to wait for it; a client that was used was closed.
    runtime.shutdown_background();
    match ended {
        Ok(Ended::Done) => ExitCode::SUCCESS,
        Ok(Ended::Failed) => ExitCode::from(1),
        Ok(Ended::Incomplete) => ExitCode::from(3),
        Err(failure) => failure.report(),
    }
}

/// A command whose arguments were understood.
enum Task {
    Serve(Box<Serve>),
    Other(Command),
}

impl Task {
    fn prepare(command: Command) -> Result<Self, Failure> {
        match command {
            Command::Serve(serve) => Serve::prepare(serve).map(|serve| Self::Serve(Box::new(serve))),
            other => Ok(Self::Other(other)),
        }
    }

    fn logs(&self) -> Option<&LogSettings> {
        match self {
            Self::Serve(serve) => serve.logs.as_ref(),
            Self::Other(_) => None,
        }
    }

    async fn run(self, output: &Output) -> Result<Ended, Failure> {
        match self {
            Self::Serve(serve) => serve.run(output).await,
            Self::Other(command) => run(command, output).await,
        }
    }
}

async fn run(command: Command, output: &Output) -> Result<Ended, Failure> {
    match command {
        Command::Demo(demo) => demo::run(demo, output).await,
        Command::Serve(serve) => Serve::prepare(serve)?.run(output).await,
        Command::Init(init) => commands::init::init(init, output).await,
        Command::Whoami(home) => commands::init::whoami(home, output).await,
        Command::Group(group) => match group {
            GroupCommand::Create(create) => commands::group::create(create, output).await,
            GroupCommand::Add(change) => commands::group::add(change, output).await,
            GroupCommand::Remove(change) => commands::group::remove(change, output).await,
            GroupCommand::Rename(rename) => commands::group::rename(rename, output).await,
            GroupCommand::List(home) => commands::group::list(home, output).await,
            GroupCommand::Members(members) => commands::group::members(members, output).await,
        },
        Command::Send(send) => commands::send::run(send, output).await,
        Command::Stream(stream) => commands::stream::run(stream, output).await,
        Command::Replay(replay) => commands::replay::run(replay, output).await,
        Command::History(history) => commands::history::run(history, output).await,
        Command::Sync(sync) => commands::sync::run(sync, output).await,
        Command::Status(home) => commands::status::run(home, output).await,
        Command::Audit(home) => commands::audit::run(home, output).await,
    }
}
