use tokio::time::Instant;

use crate::Ended;
use crate::args::ReplayArgs;
use crate::commands::stream::until;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::{Output, counts};
use crate::signals::Interrupt;

/// Prints messages after a cursor: what is stored, and with --follow, --count or --timeout also what comes then.
pub(crate) async fn run(args: ReplayArgs, output: &Output) -> Result<Ended, Failure> {
    let mut interrupt = Interrupt::catch()?;
    with_client(&args.home, async |client| {
        for group in &args.group {
            client.group(*group).await?;
        }
        let replay = client.replay(args.from.unwrap_or_else(|| client.beginning()));
        let replay = if args.group.is_empty() { replay } else { replay.groups(args.group.iter().copied()) };
        let follow = args.follow || args.until.count.is_some() || args.until.timeout.is_some();
        let mut reader = if follow { replay.open().await? } else { replay.open_stored().await? };
        let deadline = args.until.timeout.map(|timeout| Instant::now() + timeout);
        let mut left = args.until.count;
        while left != Some(0) {
            let item = tokio::select! {
                biased;
                () = interrupt.caught() => break,
                () = until(deadline) => break,
                item = reader.next() => item,
            };
            let Some(item) = item else { break };
            let item = item?;
            output.item(&item)?;
            if counts(&item.message) {
                left = left.map(|left| left - 1);
            }
        }
        Ok(Ended::Done)
    })
    .await
}
