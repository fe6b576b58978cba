//! What an app sent, as the command line shows it to programs and to people.

use std::path::Path;

use highwater::{
    Attachment, Client, Codec, CodecError, ContentType, Database, DatabaseKey, Encoded, LocalWallet,
    MessageId, Reaction, ReactionAction, ReactionSchema,
};
use serde_json::{Value, json};

use crate::support::{Backend, Home, binary};

/// A type that no command knows.
struct Poll;

impl Codec for Poll {
    type Value = String;

    fn content_type(&self) -> ContentType {
        ContentType { authority: "app.example".into(), name: "poll".into(), major: 1, minor: 2 }
    }

    fn decode(&self, content: &Encoded) -> Result<String, CodecError> {
        Ok(String::from_utf8(content.bytes.clone())?)
    }

    fn encode(&self, value: &String) -> Result<Encoded, CodecError> {
        Ok(Encoded { bytes: value.clone().into_bytes(), ..Encoded::default() })
    }
}

/// Sends one message of each kind to a new group. Gives the id of the first, which the others are about.
async fn send_each_kind(dir: &Path, backend: &str, to: &str) -> MessageId {
    let alice = Client::builder()
        .database(Database::file(dir.join("alice.db"), DatabaseKey::generate()))
        .backend(backend)
        .signer(LocalWallet::generate())
        .open()
        .await
        .unwrap();
    let group = alice.create_group([to.parse().unwrap()]).await.unwrap();
    let first = group.send_text("first").await.unwrap().message_id;
    let reaction = Reaction {
        reference: first,
        reference_inbox_id: None,
        action: ReactionAction::Removed,
        content: "🌊".into(),
        schema: ReactionSchema::Unicode,
    };
    let attachment =
        Attachment { mime_type: "image/png".into(), filename: Some("wave.png".into()), bytes: vec![7; 20] };
    group.send_reply(first, "an answer").await.unwrap();
    group.send_reaction(&reaction).await.unwrap();
    group.send_attachment(&attachment).await.unwrap();
    group.send_read_receipt().await.unwrap();
    group.send_with(&Poll, &"tea?".to_owned()).await.unwrap();
    group.send_deletion(first).await.unwrap();
    alice.close().await;
    first
}

#[test]
fn content_of_every_kind_has_its_documented_fields_and_a_line_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::start(dir.path());
    let bob = Home::init(dir.path().join("bob"), &backend);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let first = runtime.block_on(send_each_kind(dir.path(), &backend.url, &bob.inbox));
    bob.run("sync", &[]).one();

    let history = bob.run("history", &[]);
    let shown: Vec<Value> = history
        .all()
        .iter()
        .filter(|line| line["event"] == "message")
        .map(|line| {
            let mut line = line.as_object().unwrap().clone();
            let common =
                ["event", "cursor", "message_id", "group_id", "sender_inbox_id", "sent_ns", "sequence_id"];
            for name in common {
                assert!(line.remove(name).is_some_and(|value| !value.is_null()), "{name}: {line:?}");
            }
            line.into()
        })
        .collect();
    let of_first = first.to_string();
    assert_eq!(
        shown,
        [
            json!({"kind": "reply", "text": "an answer", "reference": of_first}),
            json!({"kind": "reaction", "text": "Removed a reaction from an earlier message", "reference": of_first, "reaction": "🌊", "action": "removed"}),
            json!({"kind": "attachment", "text": "Can’t display wave.png: this app doesn’t support attachments", "filename": "wave.png", "mime_type": "image/png", "bytes": 20}),
            json!({"kind": "read_receipt", "text": null}),
            json!({"kind": "custom", "text": null, "content_type": "app.example/poll:1.2", "error": null}),
            json!({"kind": "deletion", "text": null, "reference": of_first}),
        ]
    );

    let out = binary().args(["history", "--home", bob.path()]).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<_> = out.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    let said = |part: &str| lines.iter().any(|line| line.ends_with(part));
    assert!(said(": an answer") && said("has read up to here"), "{out}");
    assert!(said(&format!("asks to delete message {}", &of_first[..8])), "{out}");
}
