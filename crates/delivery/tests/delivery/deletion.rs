use std::io::Write as _;

use highwater_delivery::{
    Deletion, DeletionRefusal, DeliveryError, MessageKind, NewMessage, Selection, apply_deletion,
};
use highwater_store::Store;
use highwater_wire::{
    GroupId, InboxId, MessageId, SequenceId,
    proto::contents::{Compression, ContentTypeId, DeleteMessage, EncodedContent},
};
use prost::Message as _;

use crate::support::*;

const ALICE: InboxId = InboxId::from_bytes([1; 32]);
const BOB: InboxId = InboxId::from_bytes([2; 32]);

fn encoded(type_id: &str, version_major: u32, content: Vec<u8>) -> Vec<u8> {
    let content_type = ContentTypeId {
        authority_id: "xmtp.org".into(),
        type_id: type_id.into(),
        version_major,
        version_minor: 0,
    };
    EncodedContent { r#type: Some(content_type), content, ..Default::default() }.encode_to_vec()
}

fn sent(group: GroupId, sender_inbox: InboxId, name: &str, content: Vec<u8>) -> NewMessage {
    NewMessage { sender_inbox, content, ..text(group, name) }
}

fn deletion(group: GroupId, by: InboxId, of: MessageId) -> NewMessage {
    let body = DeleteMessage { message_id: of.to_hex() }.encode_to_vec();
    // All others are at the first place of their topic.
    let sequence_id = SequenceId::try_from(2_u64).ok();
    NewMessage { sequence_id, ..sent(group, by, &format!("delete {of}"), encoded("deleteMessage", 1, body)) }
}

async fn apply(store: &Store, message: NewMessage, by_super_admin: bool) -> Deletion {
    store
        .write::<_, DeliveryError, _>("delete", move |tx| {
            Box::pin(async move { apply_deletion(tx, &message, by_super_admin).await })
        })
        .await
        .unwrap()
}

/// Shows: PROC-037.
#[tokio::test]
async fn a_sender_deletes_what_it_sent_and_a_super_admin_deletes_anything() {
    let fixture = store().await;
    let store = fixture.store();
    let first = sent(A, ALICE, "1", encoded("text", 1, b"first".to_vec()));
    let second = sent(A, ALICE, "2", encoded("markdown", 1, b"second".to_vec()));
    publish(store, vec![first.clone(), second.clone()]).await;

    let foreign = apply(store, deletion(A, BOB, first.id), false).await;
    assert_eq!(foreign, Deletion::Refused(DeletionRefusal::NotAllowed));
    assert!(!stored(store, first.id).await.deleted);

    let own = apply(store, deletion(A, ALICE, first.id), false).await;
    assert_eq!(own, Deletion::Applied { target: first.id });
    assert_eq!(apply(store, deletion(A, ALICE, first.id), false).await, own);
    let admin = apply(store, deletion(A, BOB, second.id), true).await;
    assert_eq!(admin, Deletion::Applied { target: second.id });
    assert!(deliver(store, Selection::all()).await.is_empty());
    sound(store).await;
}

/// Shows: PROC-037.
#[tokio::test]
async fn a_deletion_reaches_only_deletable_content_of_its_own_group() {
    let fixture = store().await;
    let store = fixture.store();
    let kept = [
        sent(A, ALICE, "reaction", encoded("reaction", 2, vec![])),
        sent(A, ALICE, "newer text", encoded("text", 2, vec![])),
        sent(A, ALICE, "no content type", vec![0xff]),
        NewMessage {
            kind: MessageKind::MembershipChange,
            ..sent(A, ALICE, "transcript", encoded("text", 1, vec![]))
        },
    ];
    publish(store, kept.to_vec()).await;
    for target in &kept {
        let refused = apply(store, deletion(A, ALICE, target.id), true).await;
        assert_eq!(refused, Deletion::Refused(DeletionRefusal::NotDeletable));
    }
    let elsewhere = sent(B, ALICE, "b", encoded("text", 1, vec![1]));
    publish(store, vec![elsewhere.clone()]).await;
    let unknown = Deletion::Refused(DeletionRefusal::UnknownTarget);
    assert_eq!(apply(store, deletion(A, ALICE, elsewhere.id), true).await, unknown);
    let nothing = MessageId::from_bytes([9; 32]);
    assert_eq!(apply(store, deletion(A, ALICE, nothing), true).await, unknown);
    let other = sent(A, ALICE, "x", encoded("text", 1, elsewhere.id.to_hex().into_bytes()));
    assert_eq!(apply(store, other, true).await, Deletion::NotADeletion);
    for target in kept.iter().chain([&elsewhere]) {
        assert!(!stored(store, target.id).await.deleted);
    }
    sound(store).await;
}

/// The deletion of `of`, with its body as `compress` leaves it.
fn compressed_deletion(
    of: MessageId,
    compression: Compression,
    compress: impl Fn(&[u8]) -> Vec<u8>,
) -> NewMessage {
    let plain = deletion(A, ALICE, of);
    let mut content = EncodedContent::decode(plain.content.as_slice()).unwrap();
    content.content = compress(&content.content);
    content.compression = Some(compression as i32);
    NewMessage { content: content.encode_to_vec(), ..plain }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An app is shown a compressed deletion as a deletion, so it has to be one.
/// Shows: PROC-037.
#[tokio::test]
async fn a_deletion_that_came_compressed_deletes() {
    let fixture = store().await;
    let store = fixture.store();
    let first = sent(A, ALICE, "1", encoded("text", 1, b"first".to_vec()));
    let second = sent(A, ALICE, "2", encoded("text", 1, b"second".to_vec()));
    publish(store, vec![first.clone(), second.clone()]).await;
    let not_compressed = compressed_deletion(first.id, Compression::Gzip, <[u8]>::to_vec);
    assert_eq!(apply(store, not_compressed, false).await, Deletion::NotADeletion);
    let bomb = compressed_deletion(first.id, Compression::Gzip, |body| {
        // A field that a deletion doesn't have, as long as the rest of 17 MiB.
        let mut long = body.to_vec();
        prost::encoding::bytes::encode(15, &vec![0_u8; 17 * 1024 * 1024], &mut long);
        gzipped(&long)
    });
    assert_eq!(apply(store, bomb, false).await, Deletion::NotADeletion);
    assert!(!stored(store, first.id).await.deleted);
    for deletion in [
        compressed_deletion(first.id, Compression::Gzip, gzipped),
        compressed_deletion(second.id, Compression::Deflate, deflated),
    ] {
        assert!(matches!(apply(store, deletion, false).await, Deletion::Applied { .. }));
    }
    assert!(stored(store, first.id).await.deleted && stored(store, second.id).await.deleted);
    sound(store).await;
}

/// Ids can be known before there is a message, and a client stores messages in runs and its own ones before they are
/// sent. What is deleted must not depend on that, but on the topic's order alone.
///
/// Shows: PROC-037.
#[tokio::test]
async fn a_deletion_reaches_only_what_the_topic_brought_before_it() {
    let fixture = store().await;
    let store = fixture.store();
    let text = || encoded("text", 1, b"text".to_vec());
    let behind =
        NewMessage { sequence_id: SequenceId::try_from(3_u64).ok(), ..sent(A, ALICE, "behind", text()) };
    publish(store, vec![behind.clone()]).await;
    let unsent = sent(A, ALICE, "unsent", text());
    prepare(store, unsent.clone()).await;
    for target in [&behind, &unsent] {
        let refused = apply(store, deletion(A, ALICE, target.id), true).await;
        assert_eq!(refused, Deletion::Refused(DeletionRefusal::UnknownTarget));
        assert!(!stored(store, target.id).await.deleted);
    }
    sound(store).await;
}
