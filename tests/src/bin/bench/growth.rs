//! How the cost of processing a message grows: with the length of the history, and with the size of the group.
//!
//! The floor of these is ours, too: the same work with a short history, or in a group of two.

use std::time::Duration;

use anyhow::{Result, ensure};
use highwater_receipt::budgets::{ADMISSION_BATCH, PER_TOPIC};
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::ServerEnvelope;
use highwater_wire::{GroupId, PrefixCursor, Topic};

use crate::measure::{Lap, Pair, Round};
use crate::traffic;

pub(crate) const HISTORY: [&str; 1] = ["processing_after_10x_history"];
pub(crate) const MEMBERS: [&str; 2] = ["processing_in_group_of_50", "processing_in_group_of_500"];

/// One member's side of a group.
struct Reader<'p> {
    peer: &'p Peer,
    topic: Topic,
    cursor: PrefixCursor,
}

impl<'p> Reader<'p> {
    async fn new(peer: &'p Peer, group: GroupId) -> Result<Self> {
        let topic = Topic::group(group);
        Ok(Self { peer, topic, cursor: traffic::reader(peer, topic).await? })
    }

    /// Receives and processes what was sent; the time is that of processing.
    async fn process(&mut self, sent: &[ServerEnvelope]) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for turn in sent.chunks(PER_TOPIC.rows as usize) {
            for batch in turn.chunks(ADMISSION_BATCH.rows as usize) {
                traffic::admit(self.peer, &mut self.cursor, batch.to_vec()).await?;
            }
            let mut left = turn.len();
            while left > 0 {
                let lap = Lap::start();
                let applied = traffic::attempt(self.peer, self.topic).await?;
                lap.add_to(&mut time);
                ensure!((1..=left).contains(&applied), "{applied} of {left} messages were applied");
                left -= applied;
            }
        }
        Ok(time)
    }
}

/// Gives both readers a turn after the other, until each had its messages.
async fn take_turns(
    (few, floor): (&mut Reader<'_>, &[ServerEnvelope]),
    (many, ours): (&mut Reader<'_>, &[ServerEnvelope]),
) -> Result<Pair> {
    let mut times = Pair { messages: ours.len(), ..Pair::default() };
    let turn = PER_TOPIC.rows as usize;
    for (floor, ours) in floor.chunks(turn).zip(ours.chunks(turn)) {
        times.floor += few.process(floor).await?;
        times.ours += many.process(ours).await?;
    }
    Ok(times)
}

/// `messages` messages after as many, and after ten times as many.
pub(crate) async fn history(messages: usize) -> Result<Round> {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let peers = [Peer::new(&mut world).await, Peer::new(&mut world).await];
    let mut sides = Vec::new();
    for (peer, times) in peers.iter().zip([1, 10]) {
        let group = alice.create_group(&mut world, &[peer]).await;
        peer.join(&world).await;
        let mut reader = Reader::new(peer, group).await?;
        let past = traffic::plaintexts(messages * times);
        reader.process(&traffic::publish(&mut world, &alice, group, &past).await?).await?;
        let next: Vec<_> = traffic::plaintexts(messages * (times + 1)).split_off(messages * times);
        sides.push((reader, traffic::publish(&mut world, &alice, group, &next).await?));
    }
    let [(young, short), (old, long)] = sides.as_mut_slice() else { unreachable!("two were made") };
    let times = take_turns((young, short), (old, long)).await?;
    drop(sides);
    close([alice].into_iter().chain(peers)).await;
    Ok(Round::from([(HISTORY[0], times)]))
}

/// `messages` messages in a group of many, and in one of two.
pub(crate) async fn members(messages: usize) -> Result<Round> {
    let mut round = Round::new();
    for (name, size) in MEMBERS.into_iter().zip([50, 500]) {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let mut others = Vec::new();
        for _ in 1..size {
            others.push(Peer::new(&mut world).await);
        }
        let bob = &others[0];
        let pair = alice.create_group(&mut world, &[bob]).await;
        let crowd = alice.create_group(&mut world, &others.iter().collect::<Vec<_>>()).await;
        bob.join(&world).await;
        let plaintexts = traffic::plaintexts(messages);
        let few = traffic::publish(&mut world, &alice, pair, &plaintexts).await?;
        let many = traffic::publish(&mut world, &alice, crowd, &plaintexts).await?;
        let (mut small, mut large) = (Reader::new(bob, pair).await?, Reader::new(bob, crowd).await?);
        round.insert(name, take_turns((&mut small, &few), (&mut large, &many)).await?);
        close([alice].into_iter().chain(others)).await;
    }
    Ok(round)
}

async fn close(peers: impl IntoIterator<Item = Peer>) {
    for peer in peers {
        peer.store.close().await;
    }
}
