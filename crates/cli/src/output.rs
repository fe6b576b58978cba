//! Standard output: for people, or one JSON object per line.

use std::io::{self, IsTerminal as _, Write as _};

use highwater::{Content, Item, MembershipChange, Message, Outcome, ReactionAction};
use serde_json::{Value, json};

use crate::failure::Failure;

#[derive(Clone, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether somebody watches: progress may be drawn over itself on standard error.
    pub(crate) fn is_watched(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// Prints what came of a command. It came of it whether or not somebody reads it.
    pub(crate) fn say(&self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.line(value, text) {
            Err(failure) if failure.is_unread() => Ok(()),
            said => said,
        }
    }

    /// Prints one line of several and flushes it. `text` may have several lines for people; empty, it prints nothing.
    ///
    /// # Errors
    /// When nobody reads any more. Whoever was to be told is gone, so the line doesn't count as handled, and no other
    /// needs to be made.
    pub(crate) fn line(&self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let line = if self.json { value.to_string() } else { text() };
        if line.is_empty() {
            return Ok(());
        }
        write(line.as_bytes()).map_err(|error| Failure::unprinted(&error))
    }

    /// Prints a message, or the transcript of a change.
    pub(crate) fn item(&self, item: &Item) -> Result<(), Failure> {
        self.message(&item.message, &item.cursor.to_string())
    }

    /// Prints a message with the cursor that resumes after it.
    pub(crate) fn message(&self, message: &Message, cursor: &str) -> Result<(), Failure> {
        self.line(&for_programs(message, cursor), || for_people(message))
    }
}

fn write(line: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

fn for_programs(message: &Message, cursor: &str) -> Value {
    let mut value = json!({
        "event": "message",
        "cursor": cursor,
        "message_id": message.id.to_string(),
        "group_id": message.group_id.to_string(),
        "sender_inbox_id": message.sender_inbox_id.to_string(),
        "sent_ns": message.sent_ns,
        "sequence_id": message.sequence_id.map(highwater::SequenceId::get),
    });
    match &message.content {
        Content::Membership(change) => {
            value["event"] = "membership".into();
            value["added"] = inboxes(&change.added);
            value["removed"] = inboxes(&change.removed);
            value["left"] = inboxes(&change.left);
            value["fields"] = fields(change);
        }
        content => {
            value["kind"] = content.kind().into();
            value["text"] = message.text().ok().into();
            add_content(&mut value, content);
        }
    }
    value
}

/// What a program needs of content beside its text.
fn add_content(value: &mut Value, content: &Content) {
    match content {
        Content::Reply(reply) => value["reference"] = reply.reference.to_string().into(),
        Content::Reaction(reaction) => {
            value["reference"] = reaction.reference.to_string().into();
            value["reaction"] = reaction.content.clone().into();
            value["action"] = match reaction.action {
                ReactionAction::Added => "added",
                ReactionAction::Removed => "removed",
            }
            .into();
        }
        Content::Attachment(attachment) => {
            value["filename"] = attachment.filename.clone().into();
            value["mime_type"] = attachment.mime_type.clone().into();
            value["bytes"] = attachment.bytes.len().into();
        }
        Content::Deletion(target) => value["reference"] = target.to_string().into(),
        Content::Custom(custom) => {
            value["content_type"] = custom.content_type.as_ref().map(ToString::to_string).into();
            value["error"] = custom.error.as_ref().map(ToString::to_string).into();
        }
        _ => {}
    }
}

/// Whether a message counts as one to the person, and not as news about the group.
pub(crate) fn counts(message: &Message) -> bool {
    !matches!(message.content, Content::Membership(_))
}

fn inboxes(inboxes: &std::collections::BTreeSet<highwater::InboxId>) -> Value {
    inboxes.iter().map(ToString::to_string).collect()
}

fn fields(change: &MembershipChange) -> Value {
    change.fields.iter().map(|(name, old, new)| json!({"field": name, "old": old, "new": new})).collect()
}

fn for_people(message: &Message) -> String {
    let group = short(&message.group_id.to_string());
    let sender = short(&message.sender_inbox_id.to_string());
    match &message.content {
        Content::Membership(change) => {
            let mut said = Vec::new();
            let named = |inboxes: &std::collections::BTreeSet<highwater::InboxId>| {
                inboxes.iter().map(|inbox| short(&inbox.to_string())).collect::<Vec<_>>().join(", ")
            };
            if !change.added.is_empty() {
                said.push(format!("added {}", named(&change.added)));
            }
            if !change.removed.is_empty() {
                said.push(format!("removed {}", named(&change.removed)));
            }
            for (name, _, new) in &change.fields {
                said.push(format!("set {name} to {}", new.as_deref().unwrap_or("nothing")));
            }
            if said.is_empty() {
                said.push("changed the group".into());
            }
            format!("[{group}] * {sender} {}", said.join(", "))
        }
        content => match (message.text(), content) {
            (Ok(text), _) => format!("[{group}] {sender}: {text}"),
            (Err(_), Content::ReadReceipt) => format!("[{group}] * {sender} has read up to here"),
            (Err(_), Content::Deletion(target)) => {
                format!("[{group}] * {sender} asks to delete message {}", short(&target.to_string()))
            }
            (Err(_), Content::LeaveRequest) => format!("[{group}] * {sender} asks to leave"),
            (Err(error), _) => format!("[{group}] {sender}: ({error})"),
        },
    }
}

/// Enough of an id for people to follow it.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// An outcome's name, where the message or change got, and why it ended if it did.
pub(crate) fn outcome(outcome: &Outcome) -> (&'static str, Option<u64>, Option<String>) {
    match outcome {
        Outcome::Queued => ("queued", None, None),
        Outcome::PublishedUnconfirmed { sequence_id } => {
            ("published_unconfirmed", sequence_id.map(highwater::SequenceId::get), None)
        }
        Outcome::Confirmed { sequence_id } => {
            ("confirmed", sequence_id.map(highwater::SequenceId::get), None)
        }
        Outcome::InactiveGroup => {
            ("inactive_group", None, Some("this installation was removed from the group".into()))
        }
        Outcome::Refused { detail } => ("refused", None, Some(detail.clone())),
        Outcome::Rejected { code } => ("rejected", None, Some(code.clone())),
        _ => ("unknown", None, None),
    }
}
