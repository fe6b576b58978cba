//! Identifiers, positions and topics can't hold a value of the wrong shape.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

use highwater_wire::{
    Cursor, GroupId, IdError, InboxId, InstallationKey, MessageHash, MessageId, PayloadIdentity, SequenceId,
    Topic, TopicError, TopicKind, proto::backend,
};

const INBOX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn text_ids_round_trip_as_lowercase_hex() {
    let inbox: InboxId = INBOX.parse().unwrap();
    let group: GroupId = INBOX[..32].parse().unwrap();
    let message: MessageId = INBOX.parse().unwrap();

    assert_eq!(inbox.to_string(), INBOX);
    assert_eq!(group.to_string(), INBOX[..32]);
    assert_eq!(message.to_string(), INBOX);
}

#[test]
fn text_of_the_wrong_length_or_case_is_refused() {
    let what = "inbox id";
    let hex = Err(IdError::Hex { what });
    let length = |found| Err(IdError::Length { what, expected: 32, found });

    assert_eq!(INBOX.to_uppercase().parse::<InboxId>(), hex);
    assert_eq!(format!("0x{INBOX}").parse::<InboxId>(), hex);
    assert_eq!("é".repeat(32).parse::<InboxId>(), hex);
    assert_eq!("".parse::<InboxId>(), length(0));
    assert_eq!(INBOX[2..].parse::<InboxId>(), length(31));
    assert_eq!(format!("{INBOX}ab").parse::<InboxId>(), length(33));
    assert!(INBOX[1..].parse::<InboxId>().is_err());
}

#[test]
fn sequence_ids_are_positive_and_fit_an_i64() {
    assert_eq!(SequenceId::try_from(1_u64).unwrap(), SequenceId::MIN);
    assert_eq!(SequenceId::try_from(i64::MAX).unwrap().as_i64(), i64::MAX);
    for id in [0_u64, i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(SequenceId::try_from(id), Err(IdError::SequenceId { found: id.into() }));
    }
    for id in [0_i64, -1, i64::MIN] {
        assert_eq!(SequenceId::try_from(id), Err(IdError::SequenceId { found: id.into() }));
    }
}

#[test]
fn cursors_start_at_zero_and_cover_what_lies_at_or_below_them() {
    let id = SequenceId::try_from(5_u64).unwrap();

    assert_eq!(Cursor::try_from(0_u64).unwrap(), Cursor::ZERO);
    assert_eq!(Cursor::ZERO.sequence_id(), None);
    assert_eq!(Cursor::from(id).sequence_id(), Some(id));
    assert!(Cursor::from(id).covers(id));
    assert!(!Cursor::try_from(4_u64).unwrap().covers(id));
    assert!(Cursor::try_from(-1_i64).is_err());
    assert!(Cursor::try_from(i64::MAX as u64 + 1).is_err());
}

/// The expected value is SHA-256, by an independent implementation, of sixteen 0x01, 0x09, `key`,
/// 0x09, `content`.
#[test]
fn a_message_id_depends_on_group_key_and_content_only() {
    let group = GroupId::from_bytes([1; 16]);
    let id = MessageId::derive(group, "key", b"content");

    assert_eq!(id.to_string(), "886a17e48f009261463eef11624608193a271603728565a576445d56bc2c22bc");
    assert_eq!(id, MessageId::derive(group, "key", b"content"));
    assert_ne!(id, MessageId::derive(group, "other", b"content"));
    assert_ne!(id, MessageId::derive(group, "key", b"other"));
    assert_ne!(id, MessageId::derive(GroupId::from_bytes([2; 16]), "key", b"content"));
}

#[test]
fn a_payload_identity_is_the_sha256_of_the_mls_bytes() {
    assert_eq!(
        PayloadIdentity::of(b"abc").to_hex(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn a_message_hash_survives_the_wire() {
    let hash = MessageHash::from_bytes([3; 32]);
    assert_eq!(MessageHash::try_from(&backend::MessageHash::from(hash)).unwrap(), hash);
}

#[test]
fn every_kind_of_topic_round_trips_and_names_only_its_own_identifier() {
    let group = GroupId::from_bytes([1; 16]);
    let inbox = InboxId::from_bytes([2; 32]);
    let key = InstallationKey::from_bytes([3; 32]);
    let topics = [
        (Topic::group(group), Some(group), None, None),
        (Topic::welcome(key), None, None, Some(key)),
        (Topic::identity(inbox), None, Some(inbox), None),
        (Topic::key_package(key), None, None, Some(key)),
        (Topic::commit_log(group), Some(group), None, None),
    ];

    for ((topic, group, inbox, installation), kind) in topics.into_iter().zip(TopicKind::ALL) {
        assert_eq!(topic.kind(), kind);
        assert_eq!(TopicKind::from_byte(kind.byte()), Some(kind));
        assert_eq!(topic.to_bytes()[0], kind.byte());
        assert_eq!(topic.to_bytes().len(), 1 + kind.identifier_len());
        assert_eq!(Topic::from_bytes(&topic.to_bytes()), Ok(topic));
        assert_eq!(Topic::from_hex(&topic.to_hex()), Ok(topic));
        assert_eq!(Topic::try_from(topic.to_proto()), Ok(topic));
        assert_eq!(topic.group_id(), group);
        assert_eq!(topic.inbox_id(), inbox);
        assert_eq!(topic.installation(), installation);
    }
    assert_eq!(TopicKind::ALL.map(TopicKind::byte), [0, 1, 2, 3, 4]);
    assert_eq!(Topic::welcome_destination([3; 32]), Topic::welcome(key));
}

#[test]
fn topics_sort_as_their_bytes_do() {
    let mut topics = [
        Topic::identity(InboxId::from_bytes([0; 32])),
        Topic::group(GroupId::from_bytes([9; 16])),
        Topic::welcome_destination([1; 32]),
        Topic::group(GroupId::from_bytes([2; 16])),
    ];
    let mut bytes = topics.map(|topic| topic.to_bytes());
    topics.sort();
    bytes.sort();
    assert_eq!(topics.map(|topic| topic.to_bytes()), bytes);
}

#[test]
fn bytes_that_are_no_topic_are_refused_with_what_is_wrong() {
    assert_eq!(Topic::from_bytes(&[]), Err(TopicError::Empty));
    assert_eq!(Topic::from_bytes(&[5; 33]), Err(TopicError::UnknownKind { found: 5 }));
    assert_eq!(Topic::from_hex("zz"), Err(TopicError::Hex));
    assert_eq!(Topic::from_hex("0"), Err(TopicError::Hex));
    for kind in TopicKind::ALL {
        for found in [0, kind.identifier_len() - 1, kind.identifier_len() + 1, 48 - kind.identifier_len()] {
            let mut bytes = vec![kind.byte()];
            bytes.resize(1 + found, 0);
            assert_eq!(Topic::from_bytes(&bytes), Err(TopicError::IdentifierLength { kind, found }));
        }
    }
}

#[test]
fn only_key_packages_have_no_ordered_read() {
    let unordered: Vec<_> = TopicKind::ALL.into_iter().filter(|kind| !kind.is_ordered()).collect();
    assert_eq!(unordered, [TopicKind::KeyPackage]);
}

/// Shows: STR-064.
#[test]
fn debug_forms_show_four_bytes_of_an_identifier() {
    let key = InstallationKey::from_bytes([0xab; 32]);

    assert_eq!(format!("{key:?}"), "InstallationKey(abababab…)");
    assert_eq!(format!("{:?}", Topic::welcome(key)), "welcome(abababab…)");
    assert_eq!(format!("{:?}", MessageId::from_bytes([1; 32])), "MessageId(01010101…)");
}
