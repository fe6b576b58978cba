use std::io::Write as _;

use highwater_wire::proto::contents::{Compression, GroupUpdated};

use super::*;

fn read(bytes: &[u8]) -> Content {
    Content::sent(bytes, &Codecs::default()).0
}

fn custom(bytes: &[u8], codecs: &Codecs) -> Custom {
    match Content::sent(bytes, codecs).0 {
        Content::Custom(custom) => custom,
        other => panic!("{other:?}"),
    }
}

fn encoded(change: impl FnOnce(&mut EncodedContent)) -> Vec<u8> {
    changed(&text_content("hello"), change)
}

fn changed(bytes: &[u8], change: impl FnOnce(&mut EncodedContent)) -> Vec<u8> {
    let mut content = EncodedContent::decode(bytes).unwrap();
    change(&mut content);
    content.encode_to_vec()
}

fn of_type(name: &str, major: u32) -> Vec<u8> {
    encoded(|content| {
        let named = content.r#type.as_mut().unwrap();
        (named.type_id, named.version_major) = (name.into(), major);
    })
}

const TARGET: MessageId = MessageId::from_bytes([7; 32]);

#[test]
fn what_is_made_is_read_back_as_it_was() {
    assert_eq!(read(&text_content("grüße 🌊")), Content::Text("grüße 🌊".into()));
    assert_eq!(read(&markdown_content("**hi**")), Content::Markdown("**hi**".into()));
    assert_eq!(read(&read_receipt_content()), Content::ReadReceipt);
    assert_eq!(read(&deletion_content(TARGET)), Content::Deletion(TARGET));
    assert_eq!(read(&of_type("leave_request", 1)), Content::LeaveRequest);
    let attachment =
        Attachment { filename: Some("a.png".into()), mime_type: "image/png".into(), bytes: vec![0, 255] };
    assert_eq!(read(&attachment_content(&attachment)), Content::Attachment(attachment));
    for action in [ReactionAction::Added, ReactionAction::Removed] {
        let reaction = Reaction {
            reference: TARGET,
            reference_inbox_id: Some(InboxId::from_bytes([1; 32])),
            action,
            content: "👍".into(),
            schema: ReactionSchema::Unicode,
        };
        assert_eq!(read(&reaction_content(&reaction)), Content::Reaction(reaction));
    }
    for made in [text_content("x"), read_receipt_content(), deletion_content(TARGET)] {
        assert_eq!(check(&made), Ok(()));
    }
}

/// A message's id is made of its bytes, and its idempotency key holds for them alone.
#[test]
fn the_same_content_is_the_same_bytes_each_time() {
    let file = Attachment { filename: Some("a".into()), mime_type: "image/png".into(), bytes: vec![1] };
    let make = || {
        let of = MessageId::from_bytes([1; 32]);
        (reply_content(of, &text_content("yes")).unwrap(), attachment_content(&file))
    };
    let first = make();
    assert!((0..64).all(|_| make() == first));
}

/// The bytes of these types, so that they can't change unnoticed.
#[test]
fn what_is_made_has_the_form_that_others_read() {
    let made = EncodedContent::decode(&*reply_content(TARGET, &text_content("yes")).unwrap()).unwrap();
    assert_eq!(made.r#type.as_ref().unwrap().type_id, "reply");
    assert_eq!(made.parameters["reference"], "07".repeat(32));
    assert_eq!(made.parameters["contentType"], "xmtp.org/text:1.0");
    assert_eq!(made.content, text_content("yes"));
    let reaction = Reaction {
        reference: TARGET,
        reference_inbox_id: None,
        action: ReactionAction::Removed,
        content: "x".into(),
        schema: ReactionSchema::Custom,
    };
    let made = EncodedContent::decode(&*reaction_content(&reaction)).unwrap();
    assert_eq!(made.r#type.unwrap().version_major, 2);
    let mut wire = vec![0x0a, 64];
    wire.extend("07".repeat(32).bytes());
    wire.extend([0x18, 2, 0x22, 1, b'x', 0x28, 3]);
    assert_eq!(made.content, wire);
}

#[test]
fn a_reply_has_any_content_but_not_without_end() {
    let reply = reply_content(TARGET, &markdown_content("*yes*")).unwrap();
    let Content::Reply(read_back) = read(&reply) else { panic!("no reply") };
    assert_eq!((read_back.reference, read_back.content.text()), (TARGET, Some("*yes*")));
    assert!(reply_content(TARGET, b"noise").is_err());

    let mut deep = text_content("bottom");
    for _ in 0..10_000 {
        deep = changed(&reply, |content| content.content = deep);
        if deep.len() > 100_000 {
            break;
        }
    }
    let mut content = read(&deep);
    let mut depth = 0;
    while let Content::Reply(inner) = content {
        content = *inner.content;
        depth += 1;
    }
    assert_eq!(depth, 4);
    assert!(matches!(content, Content::Custom(Custom { error: Some(_), .. })), "{content:?}");
}

#[test]
fn types_that_are_not_read_here_come_raw_and_without_an_error() {
    for name in
        ["remoteStaticAttachment", "multiRemoteStaticAttachment", "transactionReference", "walletSendCalls"]
    {
        let custom = custom(&of_type(name, 1), &Codecs::default());
        assert_eq!(custom.bytes, b"hello");
        assert_eq!((custom.name(), custom.error), (format!("xmtp.org/{name}:1.0"), None));
    }
    // The first version of reactions is another type.
    assert_eq!(custom(&of_type("reaction", 1), &Codecs::default()).error, None);
}

#[test]
fn another_major_version_is_another_type() {
    let bytes = encoded(|content| {
        content.r#type.as_mut().unwrap().version_major = 2;
        content.fallback = Some("update your app".into());
    });
    let custom = custom(&bytes, &Codecs::default());
    assert_eq!((custom.error, custom.fallback.as_deref()), (None, Some("update your app")));
}

/// Shows: PROC-045.
#[test]
fn content_whose_codec_fails_is_kept_with_its_error_and_its_bytes() {
    let not_text = custom(&encoded(|content| content.content = vec![0xff]), &Codecs::default());
    assert_eq!(not_text.bytes, [0xff]);
    assert!(matches!(not_text.error, Some(ContentError::Malformed(_))));
    let noise = custom(&[0xff, 0xff], &Codecs::default());
    assert_eq!(noise.bytes, [0xff, 0xff]);
    for name in ["reply", "attachment", "deleteMessage"] {
        assert!(custom(&of_type(name, 1), &Codecs::default()).error.is_some(), "{name}");
    }
    assert!(custom(&of_type("reaction", 2), &Codecs::default()).error.is_some());
}

/// A member who sends a transcript says nothing about the group.
#[test]
fn a_transcript_is_believed_only_where_it_was_made() {
    let inbox = group_updated_inbox();
    let forged = changed(&of_type("group_updated", 1), |content| {
        content.content =
            GroupUpdated { removed_inboxes: vec![inbox], ..GroupUpdated::default() }.encode_to_vec();
    });
    assert!(custom(&forged, &Codecs::default()).error.is_some());
    let Content::Membership(change) = Content::transcript(&forged) else { panic!("no transcript") };
    assert_eq!(change.removed.len(), 1);
}

fn group_updated_inbox() -> highwater_wire::proto::contents::group_updated::Inbox {
    let inbox_id = InboxId::from_bytes([9; 32]).to_string();
    highwater_wire::proto::contents::group_updated::Inbox { inbox_id }
}

#[test]
fn compressed_text_is_read_and_a_bomb_is_not_unpacked() {
    let deflated = |bytes: &[u8]| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let compressed = |bytes: Vec<u8>| {
        encoded(|content| {
            content.content = bytes;
            content.compression = Some(Compression::Deflate as i32);
        })
    };
    assert_eq!(read(&compressed(deflated(b"short"))), Content::Text("short".into()));
    let bomb = custom(&compressed(deflated(&vec![b'x'; 17 * 1024 * 1024])), &Codecs::default());
    assert_eq!(bomb.error, Some(ContentError::TooLong));
    assert_eq!(bomb.uncompressed(), Err(ContentError::TooLong));
    let unknown = custom(&encoded(|content| content.compression = Some(77)), &Codecs::default());
    assert_eq!(unknown.error, Some(ContentError::Malformed("unknown compression 77".into())));
}

#[test]
fn bytes_without_a_type_are_not_sent() {
    assert!(check(b"hello").is_err());
    assert!(check(&encoded(|content| content.r#type = None)).is_err());
}

/// An app's type: a place on a map.
struct Places;

impl Codec for Places {
    type Value = (i8, i8);

    fn content_type(&self) -> ContentType {
        ContentType { authority: "app.example".into(), name: "place".into(), major: 1, minor: 3 }
    }

    fn decode(&self, content: &Encoded) -> Result<(i8, i8), CodecError> {
        match content.bytes[..] {
            [x, y] => Ok((x as i8, y as i8)),
            [] => panic!("a codec of a test panics"),
            _ => Err("that is no place".into()),
        }
    }

    fn encode(&self, value: &(i8, i8)) -> Result<Encoded, CodecError> {
        Ok(Encoded {
            fallback: Some("a place".into()),
            bytes: vec![value.0 as u8, value.1 as u8],
            ..Encoded::default()
        })
    }
}

/// Shows: PROC-045.
#[test]
fn an_apps_codec_gives_its_own_type_or_its_error() {
    let codecs = Codecs::of(vec![Box::new(Places)]).unwrap();
    let made = codec_content(&Places, &(1, -2)).unwrap();
    assert_eq!(custom(&made, &codecs).value::<(i8, i8)>(), Some(&(1, -2)));
    assert_eq!(custom(&made, &codecs).value::<String>(), None);
    assert_eq!(custom(&made, &Codecs::default()).value::<(i8, i8)>(), None);
    let failed = custom(&changed(&made, |content| content.content = vec![1]), &codecs);
    assert_eq!(failed.error, Some(ContentError::Codec("that is no place".into())));
    assert_eq!((failed.bytes.as_slice(), failed.fallback.as_deref()), (&[1][..], Some("a place")));
    let panicked = custom(&changed(&made, |content| content.content = vec![]), &codecs);
    assert_eq!(panicked.error, Some(ContentError::CodecPanicked));
    let newer = changed(&made, |content| content.r#type.as_mut().unwrap().version_minor = 9);
    assert!(custom(&newer, &codecs).value::<(i8, i8)>().is_some());
    let other = changed(&made, |content| content.r#type.as_mut().unwrap().version_major = 2);
    assert!(custom(&other, &codecs).value::<(i8, i8)>().is_none());
}

#[test]
fn a_type_has_one_codec() {
    assert!(Codecs::of(vec![Box::new(Places), Box::new(Places)]).is_err());
    struct Text;
    impl Codec for Text {
        type Value = ();
        fn content_type(&self) -> ContentType {
            ContentType { authority: "xmtp.org".into(), name: "text".into(), major: 1, minor: 0 }
        }
        fn decode(&self, _: &Encoded) -> Result<(), CodecError> {
            Ok(())
        }
        fn encode(&self, (): &()) -> Result<Encoded, CodecError> {
            Ok(Encoded::default())
        }
    }
    assert_eq!(Codecs::of(vec![Box::new(Text)]).err().unwrap().name, "text");
}
