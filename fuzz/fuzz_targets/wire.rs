//! Whatever a backend sends: nothing panics, what is accepted is as its types promise, and what is refused leaves the
//! read where it was (STR-060, PROC-001).

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use highwater_wire::proto::backend::{
    self, ClientEnvelope, EnvelopeMeta, GroupMessage, MessageHash, QueryNewestResponse, QueryResponse,
    ServerEnvelope, SubscribeResponse, SubscribeStaticResponse, client_envelope::Payload, message_hash::Hash,
    subscribe_response::Response, subscribe_static_response,
};
use highwater_wire::{
    Cursor, GroupId, InboxId, InstallationKey, MessageId, OrderedPrefix, PrefixCursor, SequenceId, Topic,
    TopicKind, received,
};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let Some((form, rest)) = data.split_first() else { return };
    match form % 3 {
        0 => identifiers(rest),
        1 => messages(rest),
        _ => {
            if let Ok(read) = Read::arbitrary_take_rest(Unstructured::new(rest)) {
                read.check();
            }
        }
    }
});

/// The smallest forms: what is accepted gives its own bytes and its own text back.
fn identifiers(bytes: &[u8]) {
    if let Ok(topic) = Topic::from_bytes(bytes) {
        assert_eq!(topic.to_bytes(), bytes);
        assert_eq!(Topic::from_hex(&topic.to_hex()), Ok(topic));
        assert_eq!(Topic::try_from(topic.to_proto()), Ok(topic));
        assert_eq!(TopicKind::from_byte(bytes[0]), Some(topic.kind()));
        let named = [topic.group_id().is_some(), topic.inbox_id().is_some(), topic.installation().is_some()];
        assert_eq!(named.iter().filter(|named| **named).count(), 1);
    }
    assert_eq!(GroupId::try_from(bytes).is_ok(), bytes.len() == 16);
    assert_eq!(InboxId::try_from(bytes).is_ok(), bytes.len() == 32);
    assert_eq!(InstallationKey::try_from(bytes).is_ok(), bytes.len() == 32);
    assert_eq!(MessageId::try_from(bytes).is_ok(), bytes.len() == 32);
    if let Ok(text) = std::str::from_utf8(bytes) {
        texts(text);
    }
    if let Some(number) = bytes.first_chunk().copied().map(u64::from_le_bytes) {
        let positive = i64::try_from(number).is_ok();
        assert_eq!(Cursor::try_from(number).is_ok(), positive);
        assert_eq!(SequenceId::try_from(number).is_ok(), positive && number > 0);
        assert_eq!(SequenceId::try_from(number.cast_signed()).is_ok(), positive && number > 0);
    }
}

fn texts(text: &str) {
    let lowercase = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match text.parse::<InboxId>() {
        Ok(inbox) => assert_eq!(inbox.to_string(), text),
        Err(_) => assert!(!lowercase || text.len() != 64),
    }
    match text.parse::<GroupId>() {
        Ok(group) => assert_eq!(group.to_string(), text),
        Err(_) => assert!(!lowercase || text.len() != 32),
    }
    if let Ok(topic) = Topic::from_hex(text) {
        assert_eq!(topic.to_hex(), text);
    }
}

/// Raw messages of every answer that carries envelopes.
fn messages(bytes: &[u8]) {
    if let Ok(envelope) = ClientEnvelope::decode(bytes) {
        assert!(ClientEnvelope::decode(envelope.encode_to_vec().as_slice()).as_ref() == Ok(&envelope));
    }
    if let Ok(envelope) = ServerEnvelope::decode(bytes) {
        read_of(vec![envelope]);
    }
    if let Ok(QueryResponse { envelopes, .. }) = QueryResponse::decode(bytes) {
        read_of(envelopes);
    }
    if let Ok(SubscribeResponse { response: Some(Response::Messages(frame)) }) =
        SubscribeResponse::decode(bytes)
    {
        read_of(frame.envelopes);
    }
    if let Ok(SubscribeStaticResponse {
        response: Some(subscribe_static_response::Response::Messages(frame)),
    }) = SubscribeStaticResponse::decode(bytes)
    {
        read_of(frame.envelopes);
    }
    if let Ok(newest) = QueryNewestResponse::decode(bytes) {
        for found in newest.results {
            let _ = alone(&ServerEnvelope { meta: found.meta, envelope: found.envelope });
        }
    }
}

/// As one read of the topic that the first of them names, from the beginning and from just below it.
fn read_of(envelopes: Vec<ServerEnvelope>) {
    let Some(first) = envelopes.iter().find_map(|envelope| alone(envelope)) else { return };
    for after in [0, first.1 - 1] {
        check_read(first.0, after, &[envelopes.clone()]);
    }
}

/// One envelope alone is accepted exactly when it is whole and in range.
fn alone(envelope: &ServerEnvelope) -> Option<(Topic, u64)> {
    let accepted = received(envelope.clone());
    let expected = judge(envelope);
    assert_eq!(accepted.is_ok(), expected.is_some(), "{accepted:?}");
    expected
}

/// The rules for one envelope, read from the specification: topic and id of a good one.
fn judge(envelope: &ServerEnvelope) -> Option<(Topic, u64)> {
    let meta = envelope.meta.as_ref()?;
    envelope.envelope.as_ref()?;
    let topic = Topic::from_bytes(&meta.topic.as_ref()?.topic).ok()?;
    let id = meta.cursor.as_ref()?.sequence_id;
    let Some(Hash::Sha256(hash)) = meta.message_hash.as_ref()?.hash.as_ref() else { return None };
    let whole = hash.len() == 32 && (1..=i64::MAX as u64).contains(&id) && meta.server_ns <= i64::MAX as u64;
    whole.then_some((topic, id))
}

/// Frames of one read, each taken whole or not at all.
fn check_read(topic: Topic, after: u64, frames: &[Vec<ServerEnvelope>]) {
    let Ok(after) = Cursor::try_from(after) else { return };
    let mut read = PrefixCursor::new(topic, after);
    let mut accepted = Vec::new();
    for frame in frames {
        let before = read.last();
        let outcome = read.extend(frame.clone());
        let mut last = before.get();
        let good = frame.iter().all(|envelope| {
            let next = judge(envelope).filter(|(of, id)| *of == topic && *id > last);
            last = next.map_or(last, |(_, id)| id);
            next.is_some()
        });
        match outcome {
            Ok(prefix) => {
                assert!(good, "accepted {prefix:?}");
                assert_eq!((prefix.after(), prefix.last(), read.last().get()), (before, read.last(), last));
                check_prefix(&prefix, frame);
                accepted.extend_from_slice(frame);
            }
            Err(error) => {
                assert!(!good, "{error}");
                assert!(!error.is_retryable());
                assert_eq!(read.last(), before);
            }
        }
    }
    // What came in pieces is the same prefix in one piece.
    let whole = PrefixCursor::new(topic, after).extend(accepted.clone()).expect("good frames in one");
    check_prefix(&whole, &accepted);
    check_split(&whole);
}

/// Every envelope is as it came, the hash included, whatever it is the hash of.
fn check_prefix(prefix: &OrderedPrefix, frame: &[ServerEnvelope]) {
    assert_eq!(prefix.len(), frame.len());
    let mut last = prefix.after().get();
    for (accepted, came) in prefix.envelopes().iter().zip(frame) {
        let meta = came.meta.as_ref().expect("accepted with metadata");
        assert_eq!(accepted.topic(), prefix.topic());
        assert!(accepted.sequence_id().get() > last);
        last = accepted.sequence_id().get();
        assert_eq!(meta.cursor, Some(accepted.sequence_id().into()));
        assert_eq!(meta.message_hash, Some(accepted.hash().into()));
        assert_eq!(meta.server_ns, accepted.server_ns().cast_unsigned());
        assert_eq!(meta.expiry_ns, accepted.expiry_ns());
        assert_eq!(meta.is_commit_or_proposal, accepted.is_commit_or_proposal());
        assert!(accepted.decode_payload().ok() == came.envelope);
        let again = ServerEnvelope { meta: Some(meta.clone()), envelope: accepted.decode_payload().ok() };
        assert!(received(again).as_ref() == Ok(accepted), "checked again");
    }
    assert_eq!(prefix.last().get(), last);
}

/// Wherever it is cut, nothing is lost and the rest starts where the front ends.
fn check_split(whole: &OrderedPrefix) {
    for rows in 0..=whole.len().min(8) {
        let bytes = whole.envelopes()[..rows].iter().map(|envelope| envelope.stored_bytes()).sum();
        for (rows, bytes) in [(rows, u64::MAX), (usize::MAX, bytes)] {
            let mut rest = whole.clone();
            let front = rest.split_off_front(rows, bytes);
            assert!(front.len() <= rows && front.stored_bytes() <= bytes);
            assert_eq!((front.after(), rest.after()), (whole.after(), front.last()));
            let both: Vec<_> = front.envelopes().iter().chain(rest.envelopes()).collect();
            assert!(both.into_iter().eq(whole.envelopes()));
        }
    }
}

/// A read whose frames are nearly right, which bytes by chance never are.
#[derive(Debug, Arbitrary)]
struct Read {
    kind: u8,
    after: Place,
    frames: Vec<Vec<Shape>>,
}

#[derive(Debug, Arbitrary)]
enum Place {
    Near(u8),
    Anywhere(u64),
    End,
}

/// One envelope: its distance to the one before, and what is wrong with it, mostly nothing.
#[derive(Debug, Arbitrary)]
struct Shape {
    step: u8,
    flaw: Flaw,
    payload: Option<Vec<u8>>,
}

#[derive(Debug, Arbitrary)]
enum Flaw {
    None,
    Id(u64),
    Time(u64),
    Expiry(u64),
    HashLength(u8),
    Topic(Vec<u8>),
    NoMetadata,
    NoPayload,
    NoTopic,
    NoCursor,
    NoHash,
}

impl Read {
    fn check(self) {
        let topic = match self.kind % 3 {
            0 => Topic::group(GroupId::from_bytes([self.kind; 16])),
            1 => Topic::welcome(InstallationKey::from_bytes([self.kind; 32])),
            _ => Topic::identity(InboxId::from_bytes([self.kind; 32])),
        };
        let after = match self.after {
            Place::Near(near) => u64::from(near),
            Place::Anywhere(anywhere) => anywhere >> 1,
            Place::End => i64::MAX as u64 - 3,
        };
        let mut last = after;
        let frames: Vec<Vec<_>> = self
            .frames
            .into_iter()
            .map(|frame| frame.into_iter().map(|shape| shape.envelope(topic, &mut last)).collect())
            .collect();
        for envelope in frames.iter().flatten() {
            alone(envelope);
        }
        check_read(topic, after, &frames);
    }
}

impl Shape {
    fn envelope(self, topic: Topic, last: &mut u64) -> ServerEnvelope {
        *last = last.wrapping_add(u64::from(self.step % 8));
        let data = self.payload.unwrap_or_default();
        let payload = Payload::GroupMessage(GroupMessage { data, ..GroupMessage::default() });
        let mut envelope =
            ServerEnvelope { meta: None, envelope: Some(ClientEnvelope { payload: Some(payload) }) };
        let mut meta = EnvelopeMeta {
            cursor: Some(backend::Cursor { sequence_id: *last }),
            server_ns: *last,
            message_hash: Some(MessageHash { hash: Some(Hash::Sha256(vec![self.step; 32])) }),
            topic: Some(topic.to_proto()),
            expiry_ns: 0,
            is_commit_or_proposal: self.step & 8 > 0,
        };
        match self.flaw {
            Flaw::None => {}
            Flaw::Id(sequence_id) => meta.cursor = Some(backend::Cursor { sequence_id }),
            Flaw::Time(time) => meta.server_ns = time,
            Flaw::Expiry(time) => meta.expiry_ns = time,
            Flaw::HashLength(length) => {
                meta.message_hash = Some(MessageHash { hash: Some(Hash::Sha256(vec![7; length.into()])) });
            }
            Flaw::Topic(topic) => meta.topic = Some(backend::Topic { topic }),
            Flaw::NoMetadata => return envelope,
            Flaw::NoPayload => envelope.envelope = None,
            Flaw::NoTopic => meta.topic = None,
            Flaw::NoCursor => meta.cursor = None,
            Flaw::NoHash => meta.message_hash = Some(MessageHash { hash: None }),
        }
        envelope.meta = Some(meta);
        envelope
    }
}
