//! What every stream has: wakes to look again, and interest in the network while it lives.

use highwater_sync::{CatchUp, ConnectionState, Interest, InterestEnd, Scope};
use tokio::sync::watch;

use crate::{CatchUpChanges, Client, Error};

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) scope: Scope,
    /// Keeps the selected topics registered. Absent without a backend, and once the stream has ended.
    interest: Option<Interest>,
    wakes: watch::Receiver<u64>,
}

impl Live {
    /// Watches the database alone.
    pub(crate) fn local(client: Client, scope: Scope) -> Self {
        let wakes = client.store().wakes();
        Self { client, scope, interest: None, wakes }
    }

    /// Has the scope's topics registered from now on, where there is a backend.
    pub(crate) async fn attach(&mut self) -> Result<(), Error> {
        if self.client.has_backend() {
            self.interest = Some(self.client.engine().await?.interest(self.scope.clone()));
        }
        Ok(())
    }

    /// Gives the interest up; another's in the same topics stays (PROC-049).
    pub(crate) fn detach(&mut self) {
        self.interest = None;
    }

    /// The database is about to be looked at: only what is committed from now on wakes.
    pub(crate) fn looking(&mut self) {
        self.wakes.mark_unchanged();
    }

    /// Waits until there may be something new.
    ///
    /// # Errors
    /// When the client is closed, the recovery budget is spent, or the deployment refuses this client.
    pub(crate) async fn changed(&mut self) -> Result<(), Error> {
        tokio::select! {
            changed = self.wakes.changed() => changed.map_err(|_| Error::Closed),
            end = ended(&mut self.interest) => Err(match end {
                InterestEnd::Exhausted => Error::RecoveryExhausted,
                InterestEnd::Refused(refusal) => Error::Transport(refusal),
            }),
        }
    }

    pub(crate) async fn catch_up(&self) -> Result<CatchUp, Error> {
        Ok(self.client.engine().await?.catch_up(&self.scope).await?)
    }

    pub(crate) async fn catch_up_changes(
        &self,
        ended: watch::Receiver<bool>,
    ) -> Result<CatchUpChanges, Error> {
        let changes = self.client.engine().await?.catch_up_changes(self.scope.clone());
        Ok(CatchUpChanges::new(changes, ended))
    }

    pub(crate) async fn connection_state(&self) -> Result<watch::Receiver<ConnectionState>, Error> {
        Ok(self.client.engine().await?.connection_state())
    }
}

/// Resolves when nothing more comes from the network; never without a backend.
async fn ended(interest: &mut Option<Interest>) -> InterestEnd {
    match interest {
        Some(interest) => interest.ended().await,
        None => std::future::pending().await,
    }
}
