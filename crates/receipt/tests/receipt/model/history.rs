//! A history of receipt, done step by step on a database and held against the model after each.

use std::collections::BTreeMap;

use highwater_receipt::{
    Admission, AdmitError, PendingTopic, ReceiptError, Room, admit, anchor, may_receive_many, pending_ids,
    pending_topics, received_many, room, settle_one, settle_through,
};
use highwater_store::Store;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{
    Cursor, OrderedPrefix, PrefixCursor, Topic, TopicKind,
    proto::backend::{self, EnvelopeMeta, ServerEnvelope, message_hash},
};

use super::{Expected, Model, Stored};
use crate::support::*;

/// What happens next. Topics and reads are counted modulo how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A registration or query starts `back` ids below F, or above it when negative. Others of its topic go on.
    Open { topic: u8, back: i16 },
    /// The next frame of a read, of so many envelopes; `fails` lets a later step of its transaction fail.
    Frame { read: u8, rows: u16, fails: bool },
    /// A frame of which one envelope is wrong.
    Bad { read: u8, rows: u16, at: u8, fault: Fault },
    /// The newest frame of a read is admitted once more, as after a pause.
    Again { read: u8 },
    /// The first `nth` pending envelopes are handled, in order.
    SettleThrough { topic: u8, nth: u16 },
    /// One is handled wherever it stands.
    SettleOne { topic: u8, nth: u16 },
    /// A join is installed so far above F, or below it.
    Anchor { topic: u8, ahead: i16, fails: bool },
    /// The process ends and starts again. Its reads end with it.
    Restart,
}

/// What can be wrong with an envelope (STR-060, PROC-001).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    OtherTopic,
    OtherKind,
    MalformedTopic,
    /// Its id again, or the last one of the frame before.
    NotRising,
    IdZero,
    IdTooLarge,
    TimeTooLarge,
    HashTooShort,
    HashTooLong,
    NoHash,
    NoMetadata,
    NoPayload,
}

/// A registration or query that is under way.
struct Read {
    topic: usize,
    cursor: PrefixCursor,
    newest: Option<(OrderedPrefix, Vec<Stored>)>,
}

/// The model, and what is under way beside it.
pub(crate) struct History {
    pub(crate) model: Model,
    reads: Vec<Read>,
}

impl History {
    pub(crate) fn new(model: Model) -> Self {
        Self { model, reads: Vec::new() }
    }

    /// Does one step, and compares.
    pub(crate) async fn take(&mut self, fixture: &mut StoreFixture, step: Step) {
        match step {
            Step::Open { topic, back } => {
                let topic = self.topic(topic);
                let after = self.model.position(topic).received.saturating_add_signed(-i64::from(back));
                self.open(topic, after);
            }
            Step::Frame { read, rows, fails } => {
                let read = self.read(read);
                let (prefix, page) = self.frame(read, usize::from(rows));
                self.reads[read].newest = Some((prefix.clone(), page.clone()));
                self.admit(fixture.store(), self.reads[read].topic, prefix, &page, fails).await;
            }
            Step::Bad { read, rows, at, fault } => self.refuse(read, usize::from(rows), at, fault),
            Step::Again { read } => {
                let read = self.read(read);
                if let Some((prefix, page)) = self.reads[read].newest.clone() {
                    self.admit(fixture.store(), self.reads[read].topic, prefix, &page, false).await;
                }
            }
            Step::SettleThrough { topic, nth } => {
                let topic = self.topic(topic);
                self.settle_through(fixture.store(), topic, nth).await;
            }
            Step::SettleOne { topic, nth } => {
                let topic = self.topic(topic);
                self.settle_one(fixture.store(), topic, nth).await;
            }
            Step::Anchor { topic, ahead, fails } => {
                let topic = self.topic(topic);
                self.anchor(fixture.store(), topic, ahead, fails).await;
            }
            Step::Restart => {
                self.reads.clear();
                fixture.reopen().await;
            }
        }
        self.agrees(fixture.store()).await;
    }

    /// Every envelope is as it was sent, and then all are handled, which leaves the budgets to the next history.
    pub(crate) async fn end(&mut self, store: &Store) {
        for at in 0..self.model.len() {
            let topic = self.model.topic(at);
            let stored = pending_of(store, topic).await;
            let expected = self.model.position(at).pending.values();
            assert_eq!(stored.len(), expected.len());
            for (stored, sent) in stored.iter().zip(expected) {
                let sent = sent.envelope(topic);
                let meta = sent.meta.expect("the model's envelopes are whole");
                assert_eq!(stored.server_ns.cast_unsigned(), meta.server_ns);
                assert_eq!(stored.expiry_ns, meta.expiry_ns);
                assert_eq!(stored.hash.as_bytes().as_slice(), hash(stored.sequence_id.get()));
                assert_eq!(stored.is_commit_or_proposal, meta.is_commit_or_proposal);
                assert!(stored.payload == prost::Message::encode_to_vec(&sent.envelope.expect("a payload")));
            }
            self.settle_through(store, at, u16::MAX).await;
        }
        self.agrees(store).await;
    }

    fn topic(&self, nth: u8) -> usize {
        usize::from(nth) % self.model.len()
    }

    /// A read that is under way; the first one starts at F, as it should.
    fn read(&mut self, nth: u8) -> usize {
        if self.reads.is_empty() {
            let topic = self.topic(nth);
            self.open(topic, self.model.position(topic).received);
        }
        usize::from(nth) % self.reads.len()
    }

    fn open(&mut self, topic: usize, after: u64) {
        let cursor = PrefixCursor::new(self.model.topic(topic), at(after));
        self.reads.push(Read { topic, cursor, newest: None });
    }

    fn frame(&mut self, read: usize, rows: usize) -> (OrderedPrefix, Vec<Stored>) {
        let Read { topic, cursor, .. } = &mut self.reads[read];
        let page = self.model.page(*topic, cursor.last().get(), rows);
        let batch = page.iter().map(|stored| stored.envelope(cursor.topic())).collect();
        let after = cursor.last();
        let prefix = cursor.extend(batch).expect("a good frame");
        assert_eq!((prefix.after(), prefix.len()), (after, rows));
        (prefix, page)
    }

    /// A frame with a fault is refused whole: nothing of it can be admitted, and the read stands where it stood.
    fn refuse(&mut self, read: u8, rows: usize, at: u8, fault: Fault) {
        let read = self.read(read);
        let Read { topic, cursor, .. } = &mut self.reads[read];
        let before = cursor.last();
        let page = self.model.page(*topic, before.get(), rows + 1);
        let mut batch: Vec<_> = page.iter().map(|stored| stored.envelope(cursor.topic())).collect();
        let at = usize::from(at) % batch.len();
        let last = at.checked_sub(1).map_or(before.get(), |before| page[before].id);
        fault.put(&mut batch[at], last);
        let error = cursor.extend(batch).expect_err("a frame with a fault");
        assert!(!error.is_retryable());
        assert_eq!(cursor.last(), before);
    }

    async fn admit(
        &mut self,
        store: &Store,
        topic: usize,
        prefix: OrderedPrefix,
        page: &[Stored],
        fails: bool,
    ) {
        let expected = self.model.expect(topic, prefix.after().get(), page);
        let outcome: Result<Admission, AdmitError> = store
            .write("model admit", move |tx| {
                Box::pin(async move { give_up(admit(tx, &prefix).await?, fails) })
            })
            .await;
        match (expected, &outcome) {
            (Expected::Gap, Err(AdmitError::Gap { received, .. })) => {
                assert_eq!(received.cursor().get(), self.model.position(topic).received);
            }
            (Expected::Capacity(budget), Err(AdmitError::Capacity { by, .. })) => assert_eq!(*by, budget),
            (_, Err(AdmitError::Receipt(ReceiptError::Damaged(_)))) if fails => {}
            (Expected::Duplicate, Ok(Admission::Duplicate { .. })) if !fails => {}
            (Expected::Admitted { rows, paused: None }, Ok(Admission::Admitted { rows: stored, .. })) => {
                assert_eq!(*stored as usize, rows);
                self.model.admitted(topic, rows);
            }
            (
                Expected::Admitted { rows, paused: Some(budget) },
                Ok(Admission::Paused { admitted_rows, by, .. }),
            ) => {
                assert_eq!((*admitted_rows as usize, *by), (rows, budget));
                self.model.admitted(topic, rows);
            }
            _ => panic!("expected {expected:?}, and it came to {outcome:?}"),
        }
        if let Ok(admission) = outcome {
            assert_eq!(admission.received().cursor().get(), self.model.position(topic).received);
        }
    }

    async fn settle_through(&mut self, store: &Store, at: usize, nth: u16) {
        let topic = self.model.topic(at);
        let pending = &self.model.position(at).pending;
        let Some(through) = pending.keys().take(usize::from(nth)).next_back().copied() else { return };
        let settled: Result<u64, ReceiptError> = store
            .write("model settle", move |tx| {
                Box::pin(async move { settle_through(tx, topic, id(through)).await })
            })
            .await;
        assert_eq!(settled.expect("settled"), self.model.settled_through(at, through));
    }

    async fn settle_one(&mut self, store: &Store, at: usize, nth: u16) {
        let topic = self.model.topic(at);
        let pending = &self.model.position(at).pending;
        // One that isn't pending when there are fewer: that settles nothing.
        let one = pending.keys().nth(usize::from(nth)).copied().unwrap_or(u64::from(nth) + 1);
        let settled: Result<bool, ReceiptError> = store
            .write("model settle one", move |tx| {
                Box::pin(async move { settle_one(tx, topic, id(one)).await })
            })
            .await;
        assert_eq!(settled.expect("settled"), self.model.settled_one(at, one));
    }

    async fn anchor(&mut self, store: &Store, at: usize, ahead: i16, fails: bool) {
        let topic = self.model.topic(at);
        let received = self.model.position(at).received;
        let to = received.saturating_add_signed(i64::from(ahead)).max(1);
        let anchored: Result<_, AdmitError> = store
            .write("model anchor", move |tx| {
                Box::pin(async move { give_up(anchor(tx, topic, id(to)).await?, fails) })
            })
            .await;
        if fails {
            anchored.expect_err("a later step fails");
            return;
        }
        self.model.anchored(at, to);
        let received = anchored.expect("anchored").cursor().get();
        assert_eq!(received, self.model.position(at).received);
    }

    /// F, pending envelopes and room are the model's, on every topic, and the audit finds nothing.
    async fn agrees(&self, store: &Store) {
        let seen = Seen::read(store, self.model.topics()).await;
        let mut holding = Vec::new();
        for at in 0..self.model.len() {
            let (topic, position) = (self.model.topic(at), self.model.position(at));
            let (received, ids) = &seen.positions[&topic];
            assert_eq!(*received, position.received, "F of {topic:?}");
            assert!(ids.iter().eq(position.pending.keys()), "pending of {topic:?}: {ids:?}");
            assert_eq!(seen.may_receive[&topic], self.model.may_receive(at), "room of {topic:?}");
            let load = self.model.load(at);
            holding.extend(position.pending.keys().next().map(|head| (topic, load.rows, load.bytes, *head)));
        }
        holding.sort_unstable();
        let found = seen.holding.iter().map(|held| (held.topic, held.rows, held.bytes, held.head.get()));
        assert_eq!(found.collect::<Vec<_>>(), holding);
        for (kind, room) in seen.rooms {
            assert_eq!((room.used, room.holding), self.model.kind(kind), "{}", kind.name());
        }
        sound(store).await;
    }
}

impl Fault {
    fn put(self, envelope: &mut ServerEnvelope, last: u64) {
        let mut meta = |change: &dyn Fn(&mut EnvelopeMeta)| change(envelope.meta.get_or_insert_default());
        let sha256 =
            |length| Some(backend::MessageHash { hash: Some(message_hash::Hash::Sha256(vec![1; length])) });
        match self {
            Self::OtherTopic => meta(&|meta| change_topic(meta, |topic| topic[1] ^= 0x80)),
            // The same identifier: a group's commit log; the identity log of a Welcome topic's bytes, and back.
            Self::OtherKind => {
                meta(&|meta| change_topic(meta, |topic| topic[0] ^= if topic[0] == 0 { 4 } else { 3 }))
            }
            Self::MalformedTopic => meta(&|meta| change_topic(meta, |topic| topic.push(0))),
            Self::NotRising => meta(&|meta| meta.cursor = Some(backend::Cursor { sequence_id: last })),
            Self::IdZero => meta(&|meta| meta.cursor = Some(backend::Cursor { sequence_id: 0 })),
            Self::IdTooLarge => {
                meta(&|meta| meta.cursor = Some(backend::Cursor { sequence_id: i64::MAX as u64 + 1 }));
            }
            Self::TimeTooLarge => meta(&|meta| meta.server_ns = i64::MAX as u64 + 1),
            Self::HashTooShort => meta(&|meta| meta.message_hash = sha256(31)),
            Self::HashTooLong => meta(&|meta| meta.message_hash = sha256(33)),
            Self::NoHash => meta(&|meta| meta.message_hash = Some(backend::MessageHash { hash: None })),
            Self::NoMetadata => envelope.meta = None,
            Self::NoPayload => envelope.envelope = None,
        }
    }
}

fn change_topic(meta: &mut EnvelopeMeta, change: impl Fn(&mut Vec<u8>)) {
    change(&mut meta.topic.get_or_insert_default().topic);
}

/// What a database shows of its receipt, on one snapshot.
struct Seen {
    positions: BTreeMap<Topic, (u64, Vec<u64>)>,
    may_receive: BTreeMap<Topic, bool>,
    holding: Vec<PendingTopic>,
    rooms: Vec<(TopicKind, Room)>,
}

impl Seen {
    async fn read(store: &Store, topics: Vec<Topic>) -> Self {
        let seen: Result<Self, ReceiptError> = store
            .read("model", |tx| {
                Box::pin(async move {
                    let mut positions = BTreeMap::new();
                    for (topic, received) in received_many(tx, &topics).await? {
                        let ids = pending_ids(tx, topic, Cursor::MAX).await?;
                        positions.insert(
                            topic,
                            (received.cursor().get(), ids.into_iter().map(|id| id.get()).collect()),
                        );
                    }
                    let mut rooms = Vec::new();
                    for kind in [TopicKind::GroupMessage, TopicKind::Welcome, TopicKind::IdentityUpdate] {
                        rooms.push((kind, room(tx, kind).await?));
                    }
                    let may_receive = may_receive_many(tx, &topics).await?;
                    Ok(Self { positions, may_receive, holding: pending_topics(tx, None).await?, rooms })
                })
            })
            .await;
        seen.expect("a snapshot")
    }
}

fn give_up<T>(done: T, fails: bool) -> Result<T, AdmitError> {
    if fails { Err(ReceiptError::Damaged("a later step").into()) } else { Ok(done) }
}
