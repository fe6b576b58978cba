//! Content of every kind, from one client to another.

use std::io::Write as _;
use std::time::Duration;

use flate2::write::GzEncoder;
use highwater::{
    Attachment, Client, Codec, CodecError, Content, ContentError, ContentType, Database, Encoded, Reaction,
    ReactionAction, ReactionSchema, text_content,
};
use highwater_testkit::{TestBackend, TestClient, assert_clean};
use highwater_wire::proto::contents::{Compression, EncodedContent};
use prost::Message as _;

const PATIENCE: Duration = Duration::from_secs(20);

/// A poll of an app's own. Some of what comes can't be read, and one thing makes it panic.
struct Polls;

impl Codec for Polls {
    type Value = Vec<String>;

    fn content_type(&self) -> ContentType {
        ContentType { authority: "app.example".into(), name: "poll".into(), major: 1, minor: 0 }
    }

    fn decode(&self, content: &Encoded) -> Result<Self::Value, CodecError> {
        let text = std::str::from_utf8(&content.bytes)?;
        assert_ne!(text, "panic", "an app's codec panics");
        if text == "unspeakable" {
            return Err(Box::new(Unspeakable));
        }
        Ok(text.split(',').map(str::to_owned).collect())
    }

    fn encode(&self, value: &Self::Value) -> Result<Encoded, CodecError> {
        let fallback = Some("a poll".to_owned());
        Ok(Encoded { bytes: value.join(",").into_bytes(), fallback, ..Encoded::default() })
    }
}

/// The same type from an app that writes what the codec can't read.
struct Broken(&'static [u8]);

impl Codec for Broken {
    type Value = ();

    fn content_type(&self) -> ContentType {
        Polls.content_type()
    }

    fn decode(&self, _: &Encoded) -> Result<(), CodecError> {
        Ok(())
    }

    fn encode(&self, (): &()) -> Result<Encoded, CodecError> {
        Ok(Encoded { bytes: self.0.to_vec(), fallback: Some("a poll".into()), ..Encoded::default() })
    }
}

/// An error that can't be told: its `Display` panics, as an app's own may.
struct Unspeakable;

impl std::fmt::Debug for Unspeakable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unspeakable")
    }
}

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("an app's error panics")
    }
}

impl std::error::Error for Unspeakable {}

/// Shows: PROC-045, STR-024.
#[tokio::test(flavor = "multi_thread")]
async fn a_codec_that_fails_or_panics_hides_nothing_that_comes_after() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let mut bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    group.send_with(&Polls, &vec!["tea".into(), "coffee".into()]).await.unwrap();
    group.send_with(&Broken(b"\xff"), &()).await.unwrap();
    group.send_with(&Broken(b"panic"), &()).await.unwrap();
    group.send_with(&Broken(b"unspeakable"), &()).await.unwrap();
    group.send_text("after").await.unwrap();
    bob.sync().await.unwrap();
    bob.close().await;

    let bob =
        Client::builder().database(Database::file(bob.path(), bob.key())).codec(Polls).open().await.unwrap();
    let mut stream = bob.messages().open().await.unwrap();
    let mut got = Vec::new();
    while got.len() < 5 {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        match item.message.content.clone() {
            Content::Membership(_) => {}
            Content::Custom(custom) => {
                assert_eq!(item.message.text().unwrap(), "a poll");
                assert_eq!(custom.content_type, Some(Polls.content_type()));
                got.push((custom.value::<Vec<String>>().cloned(), custom.error, custom.bytes));
            }
            content => got.push((None, None, content.text().unwrap().as_bytes().to_vec())),
        }
    }
    assert_eq!(got[0], (Some(vec!["tea".into(), "coffee".into()]), None, b"tea,coffee".to_vec()));
    assert!(matches!(&got[1], (None, Some(ContentError::Codec(_)), bytes) if bytes == b"\xff"));
    assert_eq!(got[2], (None, Some(ContentError::CodecPanicked), b"panic".to_vec()));
    assert_eq!(got[3], (None, Some(ContentError::CodecPanicked), b"unspeakable".to_vec()));
    assert_eq!(got[4].2, b"after");
    stream.close().await;
    bob.close().await;
}

fn gzipped_text(bytes: usize) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![b'x'; bytes]).unwrap();
    let mut encoded = EncodedContent::decode(&*text_content("")).unwrap();
    encoded.content = gzip.finish().unwrap();
    encoded.compression = Some(Compression::Gzip.into());
    encoded.encode_to_vec()
}

/// What is small as it came may be large when it is read.
///
/// Shows: STR-066, STR-099.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_keeps_to_its_bytes_when_its_messages_came_compressed() {
    const LARGE: usize = 6 << 20;
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let group = alice.create_group([]).await.unwrap();
    for _ in 0..5 {
        group.send(gzipped_text(LARGE), None).await.unwrap();
    }
    let oldest_first = || alice.history().oldest_first();
    let (mut page, mut sizes, mut cursors) = (oldest_first().page().await.unwrap(), Vec::new(), Vec::new());
    loop {
        let lengths = page.messages.iter().filter_map(|message| message.content.text()).map(str::len);
        sizes.push(lengths.sum::<usize>() / LARGE);
        cursors.extend(page.messages.iter().map(|message| message.cursor.unwrap()));
        assert_eq!(page.cursor, *cursors.last().unwrap(), "a replay goes on where this page ends");
        let Some(more) = page.more else { break };
        page = oldest_first().from(more).page().await.unwrap();
    }
    assert_eq!(sizes, [2, 2, 1]);
    let newest = alice.history().page().await.unwrap();
    assert_eq!((newest.messages.len(), newest.cursor), (2, *cursors.last().unwrap()));
    assert_eq!(newest.more, newest.messages[1].cursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_content_arrives_as_what_it_is() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    let first = group.send_text("first").await.unwrap();
    assert_eq!(first.cursor, alice.message(first.message_id).await.unwrap().unwrap().cursor);
    assert!(first.cursor.is_some());
    let reaction = Reaction {
        reference: first.message_id,
        reference_inbox_id: Some(alice.inbox_id()),
        action: ReactionAction::Added,
        content: "🌊".into(),
        schema: ReactionSchema::Unicode,
    };
    let attachment = Attachment {
        mime_type: "image/png".into(),
        filename: Some("wave.png".into()),
        bytes: vec![7; 2_000],
    };
    group.send_markdown("*hi*").await.unwrap();
    group.send_reply(first.message_id, "an answer").await.unwrap();
    group.send_reaction(&reaction).await.unwrap();
    group.send_attachment(&attachment).await.unwrap();
    group.send_read_receipt().await.unwrap();
    group.send(text_content("last"), None).await.unwrap();
    group.send_deletion(first.message_id).await.unwrap();
    bob.sync().await.unwrap();

    let mut stream = bob.messages().open().await.unwrap();
    let mut got = Vec::new();
    while got.len() < 7 {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
        got.push(item.message.content);
    }
    assert!(
        matches!(&got[0], Content::Membership(change) if change.added.contains(&bob.inbox_id())),
        "{got:?}"
    );
    // The first text is deleted, so it isn't handed out.
    assert_eq!(got[1], Content::Markdown("*hi*".into()));
    let Content::Reply(reply) = &got[2] else { panic!("{got:?}") };
    assert_eq!((reply.reference, &*reply.content), (first.message_id, &Content::Text("an answer".into())));
    assert_eq!(got[3], Content::Reaction(reaction));
    assert_eq!(got[4], Content::Attachment(attachment));
    assert_eq!(got[5], Content::ReadReceipt);
    assert_eq!(got[6].text(), Some("last"));
    let last = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(last.message.content, Content::Deletion(first.message_id));
    stream.close().await;
    assert_clean(&bob).await;
}

/// Shows: PROC-050.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_message_has_its_cursor_or_shows_that_it_has_none() {
    let mut backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let group = alice.create_group([]).await.unwrap();
    let confirmed = group.send_text("confirmed").await.unwrap();
    let stored = alice.message(confirmed.message_id).await.unwrap().unwrap();
    assert!(stored.cursor.is_some() && stored.cursor == confirmed.cursor);
    let page = alice.history().page().await.unwrap();
    assert_eq!(page.messages.iter().find(|found| found.id == stored.id), Some(&stored));
    let mut after = alice.replay(confirmed.cursor.unwrap()).open_stored().await.unwrap();
    assert!(after.next().await.is_none(), "the cursor is the place after the message");

    backend.stop().await;
    let queued = group.queue_text("queued").await.unwrap();
    assert_eq!(alice.message(queued).await.unwrap().unwrap().cursor, None);
    assert!(group.send_text("sent").await.unwrap().cursor.is_none());
}
