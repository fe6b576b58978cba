//! Ten groups of two: processing alone, with a backlog each, and with little at a time.

use anyhow::{Result, ensure};
use highwater_receipt::budgets::ADMISSION_BATCH;
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::ServerEnvelope;
use highwater_wire::{PrefixCursor, Topic};

use crate::measure::{Lap, Pair, Round};
use crate::openmls_floor::Receiver;
use crate::traffic;

/// Every group has its whole backlog pending.
const BACKLOG: &str = "processing_spread";
/// Every group has a few messages pending at a time.
const TRICKLE: &str = "processing_spread_8";

pub(crate) const NAMES: [&str; 2] = [BACKLOG, TRICKLE];

const GROUPS: usize = 10;
const FEW: usize = 8;

/// One group: what its topic brings, and the floor for as much.
struct Stream {
    topic: Topic,
    sent: Vec<ServerEnvelope>,
    reader: PrefixCursor,
    raw: Receiver,
}

/// Both benchmarks, with so many messages a group in each.
pub(crate) async fn round(messages: usize) -> Result<Round> {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bob = Peer::new(&mut world).await;
    let plaintexts = traffic::plaintexts(2 * messages);
    let mut groups = Vec::new();
    for _ in 0..GROUPS {
        groups.push(alice.create_group(&mut world, &[&bob]).await);
    }
    bob.join(&world).await;
    let mut streams = Vec::new();
    for group in groups {
        let topic = Topic::group(group);
        streams.push(Stream {
            topic,
            sent: traffic::publish(&mut world, &alice, group, &plaintexts).await?,
            reader: traffic::reader(&bob, topic).await?,
            raw: Receiver::new(&plaintexts)?,
        });
    }
    let backlog = take_turns(&bob, &mut streams, messages, messages).await?;
    let trickle = take_turns(&bob, &mut streams, messages, FEW).await?;
    bob.audit().await;
    alice.store.close().await;
    bob.store.close().await;
    Ok(Round::from([(BACKLOG, backlog), (TRICKLE, trickle)]))
}

/// Gives every group `portion` messages at a time until each had `messages`.
async fn take_turns(peer: &Peer, streams: &mut [Stream], messages: usize, portion: usize) -> Result<Pair> {
    let mut times = Pair { messages: messages * streams.len(), ..Pair::default() };
    let mut left = messages;
    while left > 0 {
        let count = portion.min(left);
        left -= count;
        for stream in &mut *streams {
            let next: Vec<_> = stream.sent.drain(..count).collect();
            for batch in next.chunks(ADMISSION_BATCH.rows as usize) {
                traffic::admit(peer, &mut stream.reader, batch.to_vec()).await?;
            }
        }
        let mut pending: Vec<_> = streams.iter().map(|_| count).collect();
        while pending.iter().any(|count| *count > 0) {
            for (stream, left) in streams.iter_mut().zip(&mut pending).filter(|(_, left)| **left > 0) {
                let lap = Lap::start();
                let applied = traffic::attempt(peer, stream.topic).await?;
                lap.add_to(&mut times.ours);
                ensure!((1..=*left).contains(&applied), "{applied} of {left} messages were applied");
                *left -= applied;
                let lap = Lap::start();
                stream.raw.decrypt(applied)?;
                lap.add_to(&mut times.floor);
            }
        }
    }
    Ok(times)
}
