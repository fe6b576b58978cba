//! Reading without acknowledging: a replay message by message, a history page by page, each against a bare `SELECT`.

use anyhow::{Context as _, Result, ensure};
use highwater_delivery::{
    DeliveryCursor, HistoryQuery, MAX_LOCAL_READ_ROWS, Order, ReplayReader, Selection, history,
};
use highwater_store::{Store, StoreError};
use sqlx::Row as _;

use crate::measure::{Lap, Pair};

/// How many messages are replayed before the floor has its turn.
const PORTION: usize = 512;

/// Every stored message, one at a time, each judged at its handoff; the floor is one `SELECT` by delivery number for each.
pub(crate) async fn replay(store: &Store, messages: usize) -> Result<Pair> {
    let mut pair = Pair { messages, ..Pair::default() };
    let beginning = DeliveryCursor::beginning(store.database_id());
    let mut reader = ReplayReader::new(store.clone(), beginning, Selection::all()).await?;
    let mut floor_at = 0;
    for start in (0..messages).step_by(PORTION) {
        let portion = PORTION.min(messages - start);
        let lap = Lap::start();
        for _ in 0..portion {
            let item = reader.next().await?.context("a stored message was not replayed")?;
            ensure!(!item.message.content.is_empty(), "a message lost its content");
        }
        lap.add_to(&mut pair.ours);
        let lap = Lap::start();
        for _ in 0..portion {
            floor_at = select(store, floor_at, 1).await?;
        }
        lap.add_to(&mut pair.floor);
    }
    Ok(pair)
}

/// Every stored message in pages of a whole local read; the floor is one `SELECT` for each page.
pub(crate) async fn pages(store: &Store, messages: usize) -> Result<Pair> {
    let mut pair = Pair { messages, ..Pair::default() };
    let database = store.database_id();
    let mut from = Some(DeliveryCursor::beginning(database));
    let (mut read, mut floor_at) = (0, 0);
    while from.is_some() {
        let query = HistoryQuery { from, order: Order::OldestFirst, ..HistoryQuery::default() };
        let lap = Lap::start();
        let page = store
            .read("bench", move |tx| Box::pin(async move { history(tx, database, &query).await }))
            .await?;
        lap.add_to(&mut pair.ours);
        read += page.messages.len();
        from = page.more;
        let lap = Lap::start();
        floor_at = select(store, floor_at, MAX_LOCAL_READ_ROWS).await?;
        lap.add_to(&mut pair.floor);
    }
    ensure!(read >= messages, "{read} of {messages} messages were read");
    Ok(pair)
}

/// The bare statement: all columns of the next messages by delivery number. Says where they end.
async fn select(store: &Store, after: i64, limit: u32) -> Result<i64> {
    let rows = store
        .read("floor", move |tx| {
            Box::pin(async move {
                let rows = sqlx::query(
                    "SELECT * FROM delivery_messages WHERE delivery_number > ? ORDER BY delivery_number LIMIT ?",
                )
                .bind(after)
                .bind(limit)
                .fetch_all(tx.conn())
                .await?;
                Ok::<_, StoreError>(rows)
            })
        })
        .await?;
    let mut end = after;
    for row in rows {
        let content: Vec<u8> = row.try_get("content")?;
        ensure!(!content.is_empty(), "a message lost its content");
        end = row.try_get("delivery_number")?;
    }
    Ok(end)
}
