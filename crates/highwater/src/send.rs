//! Sending.

use highwater_delivery::DeliveryCursor;
use highwater_outbox::Outcome;
use highwater_wire::MessageId;

use crate::content::codec_content;
use crate::{
    Attachment, Codec, Error, Group, Reaction, attachment_content, deletion_content, markdown_content,
    reaction_content, read_receipt_content, reply_content, text_content,
};

/// A message that was handed to the outbox, and what became of it by the time the call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message, the same on every client.
    pub message_id: MessageId,
    /// What became of it. [`Outcome::Queued`] means that it is durable and goes out with the next connection; while the
    /// deployment refuses this client ([`Error::is_refused`], told by its streams and by a sync) that is one of a client
    /// opened anew. One that was refused or rejected for good is no error of the call: this says so.
    pub outcome: Outcome,
    /// Its place in this database's delivery order. Absent while it isn't confirmed (PROC-050).
    pub cursor: Option<DeliveryCursor>,
}

/// Each waits for what becomes of the message, as [`Group::send`] does, and fails as it does.
impl Group {
    /// Sends text and waits for what becomes of it.
    ///
    /// # Errors
    /// [`Error::Outbox`] for a group this installation is not in any more. Nothing is stored then.
    pub async fn send_text(&self, text: &str) -> Result<Sent, Error> {
        self.send(text_content(text), None).await
    }

    /// Sends text with Markdown in it.
    pub async fn send_markdown(&self, text: &str) -> Result<Sent, Error> {
        self.send(markdown_content(text), None).await
    }

    /// Sends text as an answer to a message. [`reply_content`] makes answers of other content.
    pub async fn send_reply(&self, reference: MessageId, text: &str) -> Result<Sent, Error> {
        self.send(reply_content(reference, &text_content(text))?, None).await
    }

    /// Sends a reaction to a message.
    pub async fn send_reaction(&self, reaction: &Reaction) -> Result<Sent, Error> {
        self.send(reaction_content(reaction), None).await
    }

    /// Sends a small file. What an envelope has no room for, about a megabyte, ends as [`Outcome::Refused`].
    pub async fn send_attachment(&self, attachment: &Attachment) -> Result<Sent, Error> {
        self.send(attachment_content(attachment), None).await
    }

    /// Tells the others that the conversation was read up to here.
    pub async fn send_read_receipt(&self) -> Result<Sent, Error> {
        self.send(read_receipt_content(), None).await
    }

    /// Asks every client to delete a message of this group. They do if it comes from the message's own sender or from a
    /// super admin, and keep it otherwise; this client is one of them.
    pub async fn send_deletion(&self, target: MessageId) -> Result<Sent, Error> {
        self.send(deletion_content(target), None).await
    }

    /// Sends a value of the app's own.
    ///
    /// # Errors
    /// [`Error::Content`] when the codec fails.
    pub async fn send_with<C: Codec>(&self, codec: &C, value: &C::Value) -> Result<Sent, Error> {
        self.send(codec_content(codec, value)?, None).await
    }
}
