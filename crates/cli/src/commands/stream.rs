use std::time::Duration;

use highwater::{Client, MessageStream};
use tokio::time::Instant;

use crate::Ended;
use crate::args::StreamArgs;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::{Output, counts};
use crate::signals::Interrupt;

/// Prints messages. A line is handled when it is printed and its pause is over. It is acknowledged when the next one is
/// asked for, and the last one when the command ends by itself; killed, it repeats at most its last line.
pub(crate) async fn run(args: StreamArgs, output: &Output) -> Result<Ended, Failure> {
    let mut interrupt = Interrupt::catch()?;
    with_client(&args.home, async |client| {
        let mut stream = open(client, &args).await?;
        let printed = print(&mut stream, &args, output, &mut interrupt).await;
        // A line that nobody could read was not handled.
        let acknowledged = match &printed {
            Ok(LastLine::Handled) => stream.acknowledge().await,
            Ok(LastLine::InHand) | Err(_) => Ok(()),
        };
        stream.close().await;
        printed?;
        acknowledged?;
        Ok(Ended::Done)
    })
    .await
}

async fn open(client: &Client, args: &StreamArgs) -> Result<MessageStream, Failure> {
    // The library would wait for a group to become known; a person has mistyped its id.
    for group in &args.group {
        client.group(*group).await?;
    }
    let messages = client.messages();
    let messages = if args.group.is_empty() {
        messages.all_groups()
    } else {
        messages.groups(args.group.iter().copied())
    };
    Ok(messages.open().await?)
}

/// How the last line stands when the command ends.
enum LastLine {
    Handled,
    /// Its pause was cut short: it comes again.
    InHand,
}

async fn print(
    stream: &mut MessageStream,
    args: &StreamArgs,
    output: &Output,
    interrupt: &mut Interrupt,
) -> Result<LastLine, Failure> {
    let deadline = args.until.timeout.map(|timeout| Instant::now() + timeout);
    let mut left = args.until.count;
    while left != Some(0) {
        let item = tokio::select! {
            biased;
            () = interrupt.caught() => break,
            () = until(deadline) => break,
            item = stream.next() => match item {
                Some(item) => item?,
                None => break,
            },
        };
        output.item(&item)?;
        if !counts(&item.message) {
            continue;
        }
        left = left.map(|left| left - 1);
        if args.pace > 0 {
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_millis(args.pace)) => {}
                () = interrupt.caught() => return Ok(LastLine::InHand),
                () = until(deadline) => return Ok(LastLine::InHand),
            }
        }
    }
    Ok(LastLine::Handled)
}

/// Resolves at the deadline; never without one.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
