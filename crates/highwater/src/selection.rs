//! What a reader of messages selects.

use std::collections::BTreeSet;

use highwater_delivery::{Consent, ConversationType, Selection};
use highwater_sync::Scope;
use highwater_wire::GroupId;

use crate::ending::{CallbackError, CloseReason, Hooks};
use crate::{Client, Error, Item, MessageStream, Subscription};

/// Describes a reader of messages. Made by [`Client::messages`]; selects everything unless told otherwise.
///
/// Scope and filters differ: a group outside the scope keeps its backlog, a message inside it that a filter excludes is
/// consumed without being handed over. Filters look at the conversation as it is at the handoff. What was deleted or has
/// disappeared before its turn is not handed over.
#[derive(Clone, Debug)]
pub struct Messages {
    client: Client,
    selection: Selection,
    hooks: Hooks,
}

impl Messages {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, selection: Selection::all(), hooks: Hooks::default() }
    }

    /// Every group, those discovered later included.
    #[must_use]
    pub fn all_groups(mut self) -> Self {
        self.selection.scope = highwater_delivery::Scope::All;
        self
    }

    /// These groups only. One that isn't known here yet is picked up when it becomes known: naming a group needs no
    /// membership (STR-021). Naming none selects nothing, and the reader waits.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = GroupId>) -> Self {
        self.selection.scope = highwater_delivery::Scope::Groups(groups.into_iter().collect());
        self
    }

    /// Only conversations with one of these consents.
    #[must_use]
    pub fn consent(mut self, consent: impl IntoIterator<Item = Consent>) -> Self {
        self.selection = self.selection.with_consent(consent);
        self
    }

    /// Only groups, no DMs.
    #[must_use]
    pub fn only_groups(mut self) -> Self {
        self.selection = self.selection.of_kinds([ConversationType::Group]);
        self
    }

    /// Only DMs.
    #[must_use]
    pub fn only_dms(mut self) -> Self {
        self.selection = self.selection.of_kinds([ConversationType::Dm]);
        self
    }

    /// Has the error told that ends the stream, if one does. The pending read gets it as well.
    #[must_use]
    pub fn on_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.hooks.error = Some(std::sync::Arc::new(hook));
        self
    }

    /// Has the stream's end told, exactly once, with its reason. A stream that is closed or dropped has the reason
    /// [`CloseReason::Closed`].
    #[must_use]
    pub fn on_close(mut self, hook: impl Fn(&CloseReason) + Send + Sync + 'static) -> Self {
        self.hooks.close = Some(std::sync::Arc::new(hook));
        self
    }

    /// Opens the one default consumer of this database. What is stored comes first and needs no network; with a backend,
    /// the selected groups are kept up to date while the stream lives.
    ///
    /// # Errors
    /// One for which [`Error::is_already_active`] holds while another default consumer of the database is alive.
    pub async fn open(self) -> Result<MessageStream, Error> {
        MessageStream::open(self.client, self.selection, self.hooks).await
    }

    /// Opens the one default consumer and hands every item to `callback`, one at a time. `Ok` acknowledges; an error or
    /// a panic ends the stream with the item unacknowledged. `closed` is called exactly once, with the reason.
    ///
    /// # Errors
    /// As [`open`](Self::open); `closed` is not called then.
    pub async fn on_message<F, R, C>(self, callback: F, closed: C) -> Result<Subscription, Error>
    where
        F: FnMut(Item) -> R + Send + 'static,
        R: Future<Output = Result<(), CallbackError>> + Send + 'static,
        C: FnOnce(CloseReason) + Send + 'static,
    {
        Ok(Subscription::start(self.open().await?, callback, closed))
    }
}

/// The same scope, as network interest.
pub(crate) fn network_scope(selection: &Selection) -> Scope {
    match &selection.scope {
        highwater_delivery::Scope::All => Scope::AllGroups,
        highwater_delivery::Scope::Groups(groups) => Scope::Groups(groups.clone()),
    }
}

/// Refuses a scope that names a group this database doesn't know, for readers that wait for nothing: a mistaken id would
/// look like an empty conversation.
pub(crate) async fn require_known(client: &Client, selection: &Selection) -> Result<(), Error> {
    let highwater_delivery::Scope::Groups(groups) = &selection.scope else {
        return Ok(());
    };
    let known: BTreeSet<_> = client.groups().await?.iter().map(crate::Group::id).collect();
    match groups.difference(&known).next() {
        Some(unknown) => Err(Error::UnknownGroup(*unknown)),
        None => Ok(()),
    }
}
