//! Bytes and altered copies of real messages, given to a real group: each is applied or rejected, and held only where
//! the table says so; nothing that was rejected leaves a trace, so that every real message still arrives, once
//! (STR-074, PROC-008, PROC-011).

#![no_main]

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use highwater_outbox::ChangeRequest;
use highwater_processing::{HoldCause, Stop, processed};
use highwater_tests::{Peer, PeerImage, World};
use highwater_wire::proto::backend::{ClientEnvelope, GroupMessage, client_envelope::Payload};
use highwater_wire::{GroupId, Topic};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use tokio::runtime::{Builder, Runtime};

/// How many envelopes an input puts before the real messages.
const ENVELOPES: usize = 8;
/// Where the ids of an input begin: above everything that the group's template received.
const FIRST: u64 = 1_000;

static SCENE: LazyLock<Scene> = LazyLock::new(Scene::new);

fuzz_target!(|data: &[u8]| {
    let mut bytes = Unstructured::new(data);
    let mut envelopes = Vec::new();
    while envelopes.len() < ENVELOPES && !bytes.is_empty() {
        envelopes.extend(SCENE.envelope(&mut bytes));
    }
    SCENE.runtime.block_on(SCENE.check(envelopes));
});

/// A group of two, and what one of them has yet to receive.
struct Scene {
    runtime: Runtime,
    group: GroupId,
    bo: PeerImage,
    /// Messages of three epochs, a commit among them, and one that Bo sent.
    real: Vec<Vec<u8>>,
    /// The texts among them.
    texts: Vec<String>,
    /// What everybody agrees on after all of them.
    agreement: (u64, Vec<u8>),
}

impl Scene {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (group, bo, real, texts, agreement) = runtime.block_on(scene());
        Self { runtime, group, bo, real, texts, agreement }
    }

    async fn check(&self, envelopes: Vec<ClientEnvelope>) {
        let topic = Topic::group(self.group);
        let bo = self.bo.open().await;
        let mut world = World::new();
        world.skip_ids(FIRST);
        let held = envelopes.iter().position(is_held);
        let count = envelopes.len() as u32;
        for envelope in envelopes {
            world.publish_on(topic, envelope);
        }
        let report = bo.catch_up(&world, self.group).await;
        match (held, &report.stop) {
            (None, Some(Stop::Drained)) => assert_eq!(report.applied + report.rejected, count),
            (Some(held), Some(Stop::Held(hold))) => {
                assert_eq!(hold.sequence_id.get(), FIRST + 1 + held as u64);
                assert!(matches!(hold.cause, HoldCause::Unsupported(_)), "{:?}", hold.cause);
                assert_eq!((report.applied + report.rejected) as usize, held);
            }
            (expected, found) => panic!("held at {expected:?} is expected, and it came to {found:?}"),
        }
        let handled = held.map_or(FIRST + u64::from(count), |held| FIRST + held as u64);
        self.passed(&bo, handled).await;
        if held.is_none() {
            self.rest(&bo, &mut world).await;
        }
        bo.audit().await;
        bo.store.close().await;
    }

    /// P is behind the last that was handled.
    async fn passed(&self, bo: &Peer, handled: u64) {
        let topic = Topic::group(self.group);
        let position = bo.write(move |tx| Box::pin(async move { processed(tx, topic).await })).await;
        let position = position.map_or(0, |position| position.cursor().get());
        assert!(position == handled || (handled == FIRST && position < FIRST), "P is {position}");
    }

    /// The real messages arrive as if nothing had been before them.
    async fn rest(&self, bo: &Peer, world: &mut World) {
        for data in &self.real {
            world.publish_on(Topic::group(self.group), message(data.clone()));
        }
        let report = bo.catch_up(world, self.group).await;
        assert_eq!(report.stop, Some(Stop::Drained));
        let mut texts = bo.texts(self.group).await;
        texts.sort_unstable();
        assert_eq!(texts, self.texts);
        assert_eq!(bo.agreement(self.group).await, self.agreement);
    }

    fn envelope(&self, bytes: &mut Unstructured<'_>) -> Result<ClientEnvelope> {
        Ok(match bytes.arbitrary::<u8>()? % 8 {
            0 => {
                let known: &[u8] = if bytes.ratio(7_u8, 8_u8)? { &[0, 1] } else { &[] };
                message([known, &some(bytes, 64)?].concat())
            }
            1 => message(self.headed(bytes)?),
            2 => ClientEnvelope::decode(some(bytes, 64)?.as_slice()).unwrap_or_default(),
            _ => message(self.altered(bytes)?),
        })
    }

    /// A whole `PrivateMessage` of this group, of which nothing is authentic.
    fn headed(&self, bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let mut data = vec![0, 1, 0, 2, 16];
        data.extend_from_slice(self.group.as_bytes());
        data.extend_from_slice(&bytes.int_in_range(0..=5_u64)?.to_be_bytes());
        data.push(bytes.int_in_range(0..=4)?);
        for _ in 0..3 {
            let part = some(bytes, 63)?;
            data.push(part.len() as u8);
            data.extend_from_slice(&part);
        }
        Ok(data)
    }

    /// A real message with a few changes, or none.
    fn altered(&self, bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let mut data = bytes.choose(&self.real)?.clone();
        for _ in 0..bytes.int_in_range(0..=3)? {
            let at = usize::from(bytes.arbitrary::<u16>()?) % data.len().max(1);
            match bytes.arbitrary::<u8>()? % 6 {
                0 => data.truncate(at),
                1 => data.insert(at, bytes.arbitrary()?),
                2 => data.extend(some(bytes, 8)?),
                3 => {
                    let other = bytes.choose(&self.real)?;
                    data.truncate(at);
                    data.extend(other.iter().skip(at));
                }
                _ => {
                    let change = bytes.arbitrary::<u8>()?;
                    data.get_mut(at).into_iter().for_each(|byte| *byte ^= change);
                }
            }
        }
        Ok(data)
    }
}

fn some(bytes: &mut Unstructured<'_>, longest: usize) -> Result<Vec<u8>> {
    let length = bytes.int_in_range(0..=longest)?.min(bytes.len());
    bytes.bytes(length).map(<[u8]>::to_vec)
}

fn message(data: Vec<u8>) -> ClientEnvelope {
    ClientEnvelope { payload: Some(Payload::GroupMessage(GroupMessage { data, ..GroupMessage::default() })) }
}

/// The one thing that bytes can claim which a later version may understand: another version of MLS.
fn is_held(envelope: &ClientEnvelope) -> bool {
    match &envelope.payload {
        Some(Payload::GroupMessage(message)) => {
            message.data.first_chunk().is_some_and(|version| *version != [0, 1])
        }
        _ => false,
    }
}

async fn scene() -> (GroupId, PeerImage, Vec<Vec<u8>>, Vec<String>, (u64, Vec<u8>)) {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let group = alice.create_group(&mut world, &[&bo]).await;
    let topic = Topic::group(group);
    bo.join(&world).await;
    alice.send(&mut world, group, "late").await;
    let late = newest(&world, topic);
    alice.change(&mut world, group, ChangeRequest::SetName("one".into())).await;
    // What Bo has when an input begins: the commit, and not the message before it.
    let mut received = World::new();
    received.skip_ids(FIRST / 2);
    received.publish_on(topic, message(newest(&world, topic)));
    let report = bo.catch_up(&received, group).await;
    assert_eq!((report.applied, report.rejected), (1, 0));
    alice.catch_up(&world, group).await;
    bo.send(&mut world, group, "own").await;
    let mut real = vec![late, newest(&world, topic)];
    for text in ["one", "two", "three"] {
        alice.send(&mut world, group, text).await;
        real.push(newest(&world, topic));
    }
    alice.change(&mut world, group, ChangeRequest::SetName("two".into())).await;
    real.push(newest(&world, topic));
    alice.catch_up(&world, group).await;
    for text in ["four", "five"] {
        alice.send(&mut world, group, text).await;
        real.push(newest(&world, topic));
    }
    alice.catch_up(&world, group).await;
    let mut texts = alice.texts(group).await;
    texts.sort_unstable();
    (group, bo.into_image().await, real, texts, alice.agreement(group).await)
}

fn newest(world: &World, topic: Topic) -> Vec<u8> {
    match world.newest(topic).and_then(|envelope| envelope.payload.clone()) {
        Some(Payload::GroupMessage(message)) => message.data,
        other => panic!("no group message: {other:?}"),
    }
}
