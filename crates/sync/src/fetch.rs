//! Query pages after durable F, through shared admission.

use std::collections::BTreeMap;

use highwater_store::Store;
use highwater_transport::Connection;
use highwater_wire::limits::{MAX_QUERY_LIMIT, MAX_QUERY_TOPICS};
use highwater_wire::{Cursor, Topic};

use crate::SyncError;
use crate::admission::{Admitted, admit};

/// How far a fetch got on one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// F has reached the target, or the backend has nothing more.
    Done,
    /// No room for more.
    Paused,
}

/// Queries each topic after its F until F reaches its target, or until the backend has nothing more above F. A stored
/// prefix is never fetched again.
pub(crate) async fn fetch(
    store: &Store,
    connection: &Connection,
    targets: &BTreeMap<Topic, Cursor>,
) -> Result<BTreeMap<Topic, Fetched>, SyncError> {
    let mut done = BTreeMap::new();
    loop {
        let topics: Vec<_> = targets.keys().copied().filter(|topic| !done.contains_key(topic)).collect();
        let wanted = unfinished(store, &topics, targets).await?;
        for topic in topics {
            if !wanted.iter().any(|(of, _)| *of == topic) {
                done.insert(topic, Fetched::Done);
            }
        }
        if wanted.is_empty() {
            return Ok(done);
        }
        for chunk in wanted.chunks(MAX_QUERY_TOPICS) {
            page(store, connection, chunk, &mut done).await?;
        }
    }
}

async fn unfinished(
    store: &Store,
    topics: &[Topic],
    targets: &BTreeMap<Topic, Cursor>,
) -> Result<Vec<(Topic, Cursor)>, SyncError> {
    let asked = topics.to_vec();
    let received = store
        .read("received", move |tx| {
            Box::pin(async move { highwater_receipt::received_many(tx, &asked).await })
        })
        .await?;
    Ok(topics
        .iter()
        .map(|topic| (*topic, received.get(topic).copied().unwrap_or_default().cursor()))
        .filter(|(topic, received)| targets.get(topic).is_some_and(|target| received < target))
        .collect())
}

/// One query. Topics that it leaves without anything more are done.
async fn page(
    store: &Store,
    connection: &Connection,
    queries: &[(Topic, Cursor)],
    done: &mut BTreeMap<Topic, Fetched>,
) -> Result<(), SyncError> {
    let page = connection.query(queries, MAX_QUERY_LIMIT).await?;
    let supplied: Vec<_> = page.prefixes.iter().map(|prefix| prefix.topic()).collect();
    for prefix in page.prefixes {
        let topic = prefix.topic();
        match admit(store, prefix).await? {
            // A gap means that F was read before somebody else's join moved it; the next round reads it again.
            Admitted::All(_) | Admitted::Gap(_) => {}
            Admitted::Paused(_) => {
                done.insert(topic, Fetched::Paused);
            }
        }
    }
    if !page.has_more {
        for (topic, _) in queries {
            done.entry(*topic).or_insert(Fetched::Done);
        }
    } else if supplied.is_empty() {
        // `has_more` without a single envelope would make this loop spin.
        return Err(SyncError::Transport(highwater_transport::TransportError::Protocol(
            "the backend said there is more, and sent nothing".into(),
        )));
    }
    Ok(())
}
