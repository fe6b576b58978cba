//! The demonstration: three clients talk while their links are cut and they are killed and reopened; then what each of
//! them really got is held against what was sent.

mod backend;
mod ledger;
mod participant;
mod plan;
mod progress;
mod report;
mod stage;

use crate::Ended;
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Plays the whole demonstration. Done only when nothing was lost, duplicated or reordered and every database passes
/// its audit, and somebody was told so.
pub(crate) async fn run(args: DemoArgs, output: &Output) -> Result<Ended, Failure> {
    match demonstrate(&args, output).await {
        Err(failure) if failure.is_unread() => Ok(Ended::Incomplete),
        ended => ended,
    }
}

async fn demonstrate(args: &DemoArgs, output: &Output) -> Result<Ended, Failure> {
    let mut stage = stage::Stage::set(args, output).await?;
    let played = stage.play(args.messages).await;
    let ended = match played {
        Ok(()) => stage.judge().await,
        Err(failure) => Err(failure),
    };
    stage.strike().await;
    ended
}
