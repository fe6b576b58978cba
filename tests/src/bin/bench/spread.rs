//! Many groups of two with a short backlog each: what a client finds that was away for a day.

use anyhow::{Result, ensure};
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::ServerEnvelope;
use highwater_wire::{PrefixCursor, Topic};

use crate::measure::{Lap, Pair, Round};
use crate::openmls_floor::Receiver;
use crate::traffic;

const SPREAD: &str = "processing_spread";

pub(crate) const NAMES: [&str; 1] = [SPREAD];

/// Messages a group.
const BACKLOG: usize = 10;
/// How many groups have their backlog pending at a time: their messages fit into the budget of all groups.
const WAVE: usize = 500;

/// One group: what its topic brings, and the floor for as much.
struct Stream {
    topic: Topic,
    sent: Vec<ServerEnvelope>,
    reader: PrefixCursor,
    raw: Receiver,
}

/// So many groups with [`BACKLOG`] messages each.
pub(crate) async fn round(groups: usize) -> Result<Round> {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bob = Peer::new(&mut world).await;
    let plaintexts = traffic::plaintexts(BACKLOG);
    let mut times = Pair { messages: groups * BACKLOG, ..Pair::default() };
    let mut left = groups;
    while left > 0 {
        let wave = left.min(WAVE);
        left -= wave;
        let mut streams = Vec::with_capacity(wave);
        let mut created = Vec::with_capacity(wave);
        for _ in 0..wave {
            created.push(alice.create_group(&mut world, &[&bob]).await);
        }
        bob.join(&world).await;
        for group in created {
            let topic = Topic::group(group);
            streams.push(Stream {
                topic,
                sent: traffic::publish(&mut world, &alice, group, &plaintexts).await?,
                reader: traffic::reader(&bob, topic).await?,
                raw: Receiver::new(&plaintexts)?,
            });
        }
        process(&bob, streams, &mut times).await?;
    }
    bob.audit().await;
    alice.store.close().await;
    bob.store.close().await;
    Ok(Round::from([(SPREAD, times)]))
}

/// Admits every backlog, then attempts the topics as a client does: as many together as an attempt takes.
async fn process(peer: &Peer, mut streams: Vec<Stream>, times: &mut Pair) -> Result<()> {
    for stream in &mut streams {
        let sent = std::mem::take(&mut stream.sent);
        traffic::admit(peer, &mut stream.reader, sent).await?;
    }
    let mut left = streams.as_mut_slice();
    while !left.is_empty() {
        let topics = left.iter().map(|stream| stream.topic).collect();
        let lap = Lap::start();
        let applied = traffic::attempt_together(peer, topics).await?;
        lap.add_to(&mut times.ours);
        ensure!(!applied.is_empty(), "an attempt reached nothing");
        let (reached, rest) = left.split_at_mut(applied.len());
        let lap = Lap::start();
        for (stream, applied) in reached.iter_mut().zip(applied) {
            ensure!(applied == BACKLOG, "{applied} of {BACKLOG} messages were applied");
            stream.raw.decrypt(applied)?;
        }
        lap.add_to(&mut times.floor);
        left = rest;
    }
    Ok(())
}
