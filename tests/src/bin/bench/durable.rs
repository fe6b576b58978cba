//! One group of two, many messages: admitted, processed, handed out and acknowledged one by one, read again.

use anyhow::{Context as _, Result, ensure};
use highwater_delivery::{DefaultConsumer, Selection};
use highwater_receipt::budgets::{ADMISSION_BATCH, PER_TOPIC};
use highwater_tests::{Peer, World};
use highwater_wire::Topic;

use crate::measure::{Lap, Pair, Round};
use crate::openmls_floor::Receiver;
use crate::sqlcipher_floor::Floor;
use crate::{reading, traffic};

const WHOLE: &str = "durable_delivery_10k";
const ADMISSION: &str = "admission_10k";
const PROCESSING: &str = "processing_10k";
const DELIVERY: &str = "delivery_10k";

const REPLAY: &str = "replay_10k";
const HISTORY: &str = "history_10k";

pub(crate) const NAMES: [&str; 6] = [WHOLE, ADMISSION, PROCESSING, DELIVERY, REPLAY, HISTORY];

/// How many messages are handed out before the floor has its turn. Each is acknowledged by asking for the next one, the
/// last by itself.
const HANDOUTS: usize = 64;

/// Everything once, in turns of as many messages as a topic may hold pending.
pub(crate) async fn round(messages: usize) -> Result<Round> {
    let plaintexts = traffic::plaintexts(messages);
    let mut raw = Receiver::new(&plaintexts)?;
    let floor = Floor::new().await?;

    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bob = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bob]).await;
    bob.join(&world).await;
    let topic = Topic::group(group);
    let sent = traffic::publish(&mut world, &alice, group, &plaintexts).await?;
    let mut reader = traffic::reader(&bob, topic).await?;
    let mut consumer = DefaultConsumer::acquire(bob.store.clone(), Selection::all()).await?;
    while consumer.next().await?.is_some() {}

    let (mut admission, mut processing) = (Pair::default(), Pair::default());
    let mut delivery = Pair::default();
    for turn in sent.chunks(PER_TOPIC.rows as usize) {
        for batch in turn.chunks(ADMISSION_BATCH.rows as usize) {
            let (ours, theirs) = (batch.to_vec(), batch.to_vec());
            let lap = Lap::start();
            floor.insert(topic, theirs).await?;
            lap.add_to(&mut admission.floor);
            let lap = Lap::start();
            traffic::admit(&bob, &mut reader, ours).await?;
            lap.add_to(&mut admission.ours);
        }
        let mut left = turn.len();
        while left > 0 {
            let lap = Lap::start();
            let applied = traffic::attempt(&bob, topic).await?;
            lap.add_to(&mut processing.ours);
            ensure!((1..=left).contains(&applied), "{applied} of {left} messages were applied");
            left -= applied;
            let lap = Lap::start();
            raw.decrypt(applied)?;
            lap.add_to(&mut processing.floor);
        }
        for portion in turn.chunks(HANDOUTS) {
            let lap = Lap::start();
            for _ in portion {
                consumer.next().await?.context("a message was not handed out")?;
            }
            consumer.acknowledge().await?;
            lap.add_to(&mut delivery.ours);
            let lap = Lap::start();
            floor.advance(portion.len() + 1).await?;
            lap.add_to(&mut delivery.floor);
        }
    }
    ensure!(consumer.next().await?.is_none(), "more was handed out than was sent");
    consumer.release().await?;
    let replay = reading::replay(&bob.store, messages).await?;
    let history = reading::pages(&bob.store, messages).await?;
    bob.audit().await;
    floor.store.close().await;
    alice.store.close().await;
    bob.store.close().await;

    let ours = admission.ours + processing.ours + delivery.ours;
    let whole = Pair { floor: processing.floor, ours, messages };
    let of_all = |pair: Pair| Pair { messages, ..pair };
    Ok(Round::from([
        (WHOLE, whole),
        (ADMISSION, of_all(admission)),
        (PROCESSING, of_all(processing)),
        (DELIVERY, of_all(delivery)),
        (REPLAY, replay),
        (HISTORY, history),
    ]))
}
