//! What a read returned becomes admissible whole or not at all.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use highwater_wire::{
    Cursor, GroupId, IdError, InboxId, MessageHash, OrderedPrefix, PrefixCursor, PrefixError, SequenceId,
    Topic, TopicError,
    proto::backend::{
        self, ClientEnvelope, EnvelopeMeta, GroupMessage, ServerEnvelope, client_envelope::Payload,
        message_hash::Hash,
    },
    received,
};

fn topic() -> Topic {
    Topic::group(GroupId::from_bytes([7; 16]))
}

fn cursor(position: u64) -> Cursor {
    Cursor::try_from(position).unwrap()
}

fn client_envelope(data: Vec<u8>) -> ClientEnvelope {
    ClientEnvelope {
        payload: Some(Payload::GroupMessage(GroupMessage { data, sender_hmac: vec![1], should_push: true })),
    }
}

fn envelope(id: u64) -> ServerEnvelope {
    ServerEnvelope {
        meta: Some(EnvelopeMeta {
            cursor: Some(backend::Cursor { sequence_id: id }),
            server_ns: 1_000 + id % 100,
            message_hash: Some(backend::MessageHash { hash: Some(Hash::Sha256(vec![0xab; 32])) }),
            topic: Some(topic().to_proto()),
            expiry_ns: u64::MAX,
            is_commit_or_proposal: true,
        }),
        envelope: Some(client_envelope(vec![id as u8; 10])),
    }
}

fn envelope_with(id: u64, change: impl FnOnce(&mut EnvelopeMeta)) -> ServerEnvelope {
    let mut envelope = envelope(id);
    change(envelope.meta.as_mut().unwrap());
    envelope
}

fn ids(prefix: &OrderedPrefix) -> Vec<u64> {
    prefix.envelopes().iter().map(|envelope| envelope.sequence_id().get()).collect()
}

/// A good envelope, then `bad`: the batch must be refused whole, and the read must be able to go on
/// from where it was.
#[track_caller]
fn refusal_of(bad: ServerEnvelope) -> PrefixError {
    let mut read = PrefixCursor::new(topic(), cursor(4));
    let error = read.extend(vec![envelope(5), bad]).unwrap_err();
    assert_eq!(read.last(), cursor(4), "a refused batch must not move the cursor");
    let prefix = read.extend(vec![envelope(5)]).unwrap();
    assert_eq!((prefix.after(), ids(&prefix)), (cursor(4), vec![5]));
    assert!(!error.is_retryable());
    error
}

fn prefix_of(ids: impl IntoIterator<Item = u64>) -> OrderedPrefix {
    PrefixCursor::new(topic(), Cursor::ZERO).extend(ids.into_iter().map(envelope).collect()).unwrap()
}

/// Shows: STR-060, PROC-001.
#[test]
fn consecutive_batches_of_one_read_continue_each_other() {
    let mut read = PrefixCursor::new(topic(), cursor(4));

    let first = read.extend(vec![envelope(5), envelope(9)]).unwrap();
    let empty = read.extend(Vec::new()).unwrap();
    let second = read.extend(vec![envelope(10)]).unwrap();

    assert_eq!((first.after(), ids(&first), first.last()), (cursor(4), vec![5, 9], cursor(9)));
    assert!(empty.is_empty());
    assert_eq!((empty.after(), empty.last()), (cursor(9), cursor(9)));
    assert_eq!((second.after(), ids(&second)), (cursor(9), vec![10]));
    assert_eq!(read.last(), cursor(10));
}

/// Shows: STR-060, PROC-001.
#[test]
fn the_backends_hash_is_kept_though_it_is_not_the_hash_of_the_payload() {
    let prefix = prefix_of([5]);
    let received = &prefix.envelopes()[0];

    assert_eq!(received.hash(), MessageHash::from_bytes([0xab; 32]));
    assert_eq!(received.topic(), topic());
    assert_eq!(received.server_ns(), 1_005);
    assert_eq!(received.expiry_ns(), u64::MAX);
    assert!(received.is_commit_or_proposal());
    assert_eq!(received.decode_payload().unwrap(), client_envelope(vec![5; 10]));
}

/// Shows: STR-060, PROC-001.
#[test]
fn a_hash_that_is_not_32_bytes_is_refused() {
    for length in [0, 31, 33] {
        let error = refusal_of(envelope_with(6, |meta| {
            meta.message_hash = Some(backend::MessageHash { hash: Some(Hash::Sha256(vec![0; length])) });
        }));
        assert_eq!(
            error,
            PrefixError::Id(IdError::Length { what: "message hash", expected: 32, found: length })
        );
    }
}

/// Shows: STR-060, PROC-001.
#[test]
fn a_hash_of_no_known_kind_is_refused() {
    let unset = refusal_of(envelope_with(6, |meta| {
        meta.message_hash = Some(backend::MessageHash { hash: None });
    }));
    let absent = refusal_of(envelope_with(6, |meta| meta.message_hash = None));

    assert_eq!(unset, PrefixError::Id(IdError::Missing { what: "message hash" }));
    assert_eq!(absent, PrefixError::Missing { what: "message hash" });
}

/// Shows: STR-060, PROC-001.
#[test]
fn sequence_ids_outside_the_positive_i64_range_are_refused() {
    for id in [0, i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(refusal_of(envelope(id)), PrefixError::Id(IdError::SequenceId { found: i128::from(id) }));
    }
    let absent = refusal_of(envelope_with(6, |meta| meta.cursor = None));
    assert_eq!(absent, PrefixError::Missing { what: "cursor" });

    let mut read = PrefixCursor::new(topic(), cursor(4));
    let greatest = envelope_with(i64::MAX as u64, |meta| meta.server_ns = 0);
    assert_eq!(read.extend(vec![greatest]).unwrap().last(), SequenceId::MAX.into());
}

/// Shows: STR-060, PROC-001.
#[test]
fn ids_that_do_not_rise_within_a_batch_are_refused() {
    for id in [5, 4, 1] {
        assert_eq!(
            refusal_of(envelope(id)),
            PrefixError::NotIncreasing { last: cursor(5), found: SequenceId::try_from(id).unwrap() }
        );
    }
}

/// Shows: STR-060, PROC-001.
#[test]
fn ids_that_do_not_rise_across_batches_are_refused() {
    let mut read = PrefixCursor::new(topic(), Cursor::ZERO);
    read.extend(vec![envelope(5), envelope(9)]).unwrap();

    for id in [9, 7] {
        let error = read.extend(vec![envelope(id), envelope(20)]).unwrap_err();
        assert!(matches!(error, PrefixError::NotIncreasing { .. }), "{error}");
    }

    assert_eq!(read.last(), cursor(9));
    assert_eq!(ids(&read.extend(vec![envelope(10)]).unwrap()), [10]);
}

/// Shows: STR-060, PROC-001.
#[test]
fn an_envelope_at_the_exclusive_start_is_refused() {
    let mut read = PrefixCursor::new(topic(), cursor(5));
    let error = read.extend(vec![envelope(5)]).unwrap_err();
    assert!(matches!(error, PrefixError::NotIncreasing { .. }), "{error}");
}

/// Shows: STR-060, PROC-001.
#[test]
fn an_envelope_of_another_topic_is_refused() {
    // The same identifier bytes under another kind are another topic too.
    for other in [
        Topic::group(GroupId::from_bytes([8; 16])),
        Topic::commit_log(GroupId::from_bytes([7; 16])),
        Topic::identity(InboxId::from_bytes([7; 32])),
    ] {
        assert_eq!(
            refusal_of(envelope_with(6, |meta| meta.topic = Some(other.to_proto()))),
            PrefixError::WrongTopic { expected: topic(), found: other }
        );
    }
    let absent = refusal_of(envelope_with(6, |meta| meta.topic = None));
    assert_eq!(absent, PrefixError::Missing { what: "topic" });
    let malformed = refusal_of(envelope_with(6, |meta| {
        meta.topic = Some(backend::Topic { topic: vec![9, 1] });
    }));
    assert_eq!(malformed, PrefixError::Topic(TopicError::UnknownKind { found: 9 }));
}

/// Shows: STR-060, PROC-001.
#[test]
fn server_time_outside_the_i64_range_is_refused() {
    for time in [i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(
            refusal_of(envelope_with(6, |meta| meta.server_ns = time)),
            PrefixError::ServerTime { found: time }
        );
    }
    let latest = envelope_with(6, |meta| meta.server_ns = i64::MAX as u64);
    assert_eq!(received(latest).unwrap().server_ns(), i64::MAX);
}

/// Shows: STR-060, PROC-001.
#[test]
fn an_envelope_without_metadata_or_payload_is_refused() {
    let no_meta = ServerEnvelope { meta: None, ..envelope(6) };
    let no_payload = ServerEnvelope { envelope: None, ..envelope(6) };

    assert_eq!(refusal_of(no_meta), PrefixError::Missing { what: "metadata" });
    assert_eq!(refusal_of(no_payload), PrefixError::Missing { what: "payload" });
}

#[test]
fn splitting_off_the_front_leaves_the_rest_starting_where_the_front_ends() {
    let mut rest = prefix_of([2, 3, 5, 8]);

    let front = rest.split_off_front(3, u64::MAX);

    assert_eq!((front.after(), ids(&front), front.last()), (cursor(0), vec![2, 3, 5], cursor(5)));
    assert_eq!((rest.after(), ids(&rest), rest.last()), (cursor(5), vec![8], cursor(8)));
    assert_eq!(ids(&rest.split_off_front(3, u64::MAX)), [8]);
    assert!(rest.is_empty());
    assert_eq!((rest.after(), rest.last()), (cursor(8), cursor(8)));
}

#[test]
fn splitting_by_bytes_takes_whole_envelopes_only() {
    let mut rest = prefix_of([2, 3, 5]);
    let each = rest.envelopes()[0].stored_bytes();
    assert_eq!(rest.stored_bytes(), 3 * each);

    assert!(rest.split_off_front(10, each - 1).is_empty());
    assert_eq!(rest.after(), Cursor::ZERO, "an empty front must not move the start");
    assert_eq!(ids(&rest.split_off_front(10, 2 * each)), [2, 3]);
    assert!(rest.split_off_front(0, u64::MAX).is_empty());
    assert_eq!((rest.after(), ids(&rest)), (cursor(3), vec![5]));
}

/// Shows: STR-064.
#[test]
fn debug_forms_show_no_payload_and_no_full_identifier() {
    let secret = vec![0xc5; 64];
    let mut envelope = envelope(5);
    envelope.envelope = Some(client_envelope(secret.clone()));

    let shown = format!("{:?}", received(envelope).unwrap());

    assert!(shown.contains("group(07070707…)"), "{shown}");
    assert!(!shown.contains(&"07".repeat(5)), "{shown}");
    assert!(!shown.contains("197, 197"), "{shown}");
    assert!(!shown.contains("c5c5"), "{shown}");
}
