//! Conversations as they become known: live notifications, kept nowhere and never replayed.

use std::collections::{BTreeSet, VecDeque};

use highwater_delivery::{
    Consent, ConversationState, ConversationType, ConversationsRevision, DeliveryError, conversations,
    conversations_revision,
};
use highwater_store::ReadTx;
use highwater_sync::{ConnectionState, Scope};
use highwater_wire::GroupId;
use tokio::sync::watch;

use crate::ending::{CallbackError, CloseReason, Ending, Hooks};
use crate::live::Live;
use crate::{Client, Error, Group, Subscription};

/// Describes a reader of conversations that become known from its opening on. Made by [`Client::conversations`].
///
/// What is known before is listed by [`Client::groups`]: open the stream first and list then, and none is missed.
#[derive(Clone, Debug)]
pub struct Conversations {
    client: Client,
    consent: Option<BTreeSet<Consent>>,
    kind: Option<ConversationType>,
    hooks: Hooks,
}

impl Conversations {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, consent: None, kind: None, hooks: Hooks::default() }
    }

    /// Only conversations with one of these consents, at the moment they are handed out.
    #[must_use]
    pub fn consent(mut self, consent: impl IntoIterator<Item = Consent>) -> Self {
        self.consent = Some(consent.into_iter().collect());
        self
    }

    /// Only groups, no DMs.
    #[must_use]
    pub fn only_groups(mut self) -> Self {
        self.kind = Some(ConversationType::Group);
        self
    }

    /// Only DMs.
    #[must_use]
    pub fn only_dms(mut self) -> Self {
        self.kind = Some(ConversationType::Dm);
        self
    }

    /// Has the error told that ends the stream, if one does. The pending read gets it as well.
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(std::sync::Arc::new(hook));
        self
    }

    /// Has the stream's end told, exactly once, with its reason.
    #[must_use]
    pub fn on_close(mut self, hook: impl Fn(&CloseReason) + Send + Sync + 'static) -> Self {
        self.hooks.close = Some(std::sync::Arc::new(hook));
        self
    }

    /// Opens the stream. With a backend, invitations are received while it lives.
    pub async fn open(self) -> Result<ConversationStream, Error> {
        // Interest in no group at all is interest in invitations.
        let mut live = Live::local(self.client, Scope::Groups(BTreeSet::new()));
        let mut known = Known::default();
        known.unseen(&live.client).await?;
        live.attach().await?;
        let ending = Ending::new(self.hooks);
        let (consent, kind) = (self.consent, self.kind);
        Ok(ConversationStream { live, consent, kind, known, found: VecDeque::new(), ending })
    }

    /// Opens the stream and hands every conversation to `callback`, one at a time. An error or a panic ends it. `closed`
    /// is called exactly once, with the reason.
    ///
    /// # Errors
    /// As [`open`](Self::open); `closed` is not called then.
    pub async fn on_conversation<F, R, C>(self, callback: F, closed: C) -> Result<Subscription, Error>
    where
        F: FnMut(Group) -> R + Send + 'static,
        R: Future<Output = Result<(), CallbackError>> + Send + 'static,
        C: FnOnce(CloseReason) + Send + 'static,
    {
        Ok(Subscription::start(self.open().await?, callback, closed))
    }
}

/// Hands out conversations that became known since it was opened: by an invitation, by being created here or in another
/// process, or because an invitation activated one that an import had brought. One that was left and is joined again was
/// known all the time, and is not told anew.
#[derive(Debug)]
pub struct ConversationStream {
    live: Live,
    consent: Option<BTreeSet<Consent>>,
    kind: Option<ConversationType>,
    known: Known,
    /// Seen, and not handed out yet.
    found: VecDeque<GroupId>,
    ending: Ending,
}

impl ConversationStream {
    /// Waits for the next conversation. `None` after an error.
    ///
    /// Cancel-safe: a call that is dropped hands out nothing, and the next one finds the same conversation.
    ///
    /// # Errors
    /// Once, and the stream is over then: the database failed, the backend could not be reached for too long
    /// ([`Error::RecoveryExhausted`]), or refuses this client ([`Error::is_refused`]).
    pub async fn next(&mut self) -> Option<Result<Group, Error>> {
        if self.ending.has_come() {
            return None;
        }
        let next = self.try_next().await;
        Some(next.map_err(|error| {
            self.live.detach();
            self.ending.fail(error)
        }))
    }

    async fn try_next(&mut self) -> Result<Group, Error> {
        loop {
            while let Some(id) = self.found.front() {
                // Its record of this moment is what the filters judge and the app gets.
                let group = self.live.client.group(*id).await?;
                self.found.pop_front();
                if self.passes(&group) {
                    return Ok(group);
                }
            }
            self.live.looking();
            self.found.extend(self.known.unseen(&self.live.client).await?);
            if self.found.is_empty() {
                self.live.changed().await?;
            }
        }
    }

    fn passes(&self, group: &Group) -> bool {
        self.consent.as_ref().is_none_or(|wanted| wanted.contains(&group.consent()))
            && self.kind.is_none_or(|wanted| wanted == group.kind().conversation_type())
    }

    /// The connection's state, now and after each change (PROC-044).
    ///
    /// # Errors
    /// [`Error::NoBackend`] for a client without one.
    pub async fn connection_state(&self) -> Result<watch::Receiver<ConnectionState>, Error> {
        self.live.connection_state().await
    }

    /// Ends the stream.
    pub fn close(self) {
        self.end(&CloseReason::Closed);
    }

    pub(crate) fn end(mut self, reason: &CloseReason) {
        self.live.detach();
        self.ending.come(reason);
    }
}

/// The conversations that were seen. One that is only what an import left is not seen until an invitation activates it.
#[derive(Debug, Default)]
struct Known {
    groups: BTreeSet<GroupId>,
    as_of: Option<ConversationsRevision>,
}

impl Known {
    /// Those that were not seen before, the oldest first.
    async fn unseen(&mut self, client: &Client) -> Result<Vec<GroupId>, Error> {
        let before = self.as_of;
        let (as_of, mut found) = client
            .store()
            .read("conversations", move |tx: &mut ReadTx| {
                Box::pin(async move {
                    let now = conversations_revision(tx).await?;
                    let found = if before == Some(now) { Vec::new() } else { conversations(tx).await? };
                    Ok::<_, DeliveryError>((now, found))
                })
            })
            .await?;
        found.retain(|found| {
            found.state != ConversationState::Restored && !self.groups.contains(&found.group)
        });
        found.sort_by_key(|found| found.created_ns);
        let new: Vec<_> = found.into_iter().map(|found| found.group).collect();
        self.groups.extend(&new);
        self.as_of = Some(as_of);
        Ok(new)
    }
}
