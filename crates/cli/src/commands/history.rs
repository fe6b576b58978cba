use std::collections::VecDeque;

use highwater::{Client, DeliveryCursor, HistoryPage, Message};

use crate::Ended;
use crate::args::HistoryArgs;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::Output;

/// Prints what is stored, the oldest first.
pub(crate) async fn run(args: HistoryArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.home, async |client| {
        match args.limit {
            Some(limit) => {
                for message in last(client, &args, limit).await? {
                    print(&message, output)?;
                }
            }
            None => {
                let mut from = None;
                loop {
                    let page = page(client, &args, from, true, u32::MAX).await?;
                    for message in &page.messages {
                        print(message, output)?;
                    }
                    from = page.more;
                    if from.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(Ended::Done)
    })
    .await
}

/// The newest `limit` messages, in the order they were delivered in.
async fn last(client: &Client, args: &HistoryArgs, limit: u64) -> Result<VecDeque<Message>, Failure> {
    let mut found = VecDeque::new();
    let mut from = None;
    loop {
        let left = limit - found.len() as u64;
        let page = page(client, args, from, false, u32::try_from(left).unwrap_or(u32::MAX)).await?;
        for message in page.messages {
            found.push_front(message);
        }
        from = page.more;
        if from.is_none() || found.len() as u64 >= limit {
            return Ok(found);
        }
    }
}

async fn page(
    client: &Client,
    args: &HistoryArgs,
    from: Option<DeliveryCursor>,
    oldest_first: bool,
    limit: u32,
) -> Result<HistoryPage, Failure> {
    let mut history = client.history().limit(limit);
    if oldest_first {
        history = history.oldest_first();
    }
    if !args.group.is_empty() {
        history = history.groups(args.group.iter().copied());
    }
    if let Some(from) = from {
        history = history.from(from);
    }
    Ok(history.page().await?)
}

fn print(message: &Message, output: &Output) -> Result<(), Failure> {
    let cursor = message.cursor.map(|cursor| cursor.to_string()).unwrap_or_default();
    output.message(message, &cursor)
}
