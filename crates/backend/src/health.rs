//! Health that tells the truth: what the instance can do now, not whether its process runs.
//!
//! One task decides. It hears of the tailer's outcomes and of calls that failed, asks the store itself
//! when either gives reason to, and goes on asking until everything works again.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::store::EnvelopeStore;

/// What one instance can do at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The database of publishes answers.
    pub(crate) store: bool,
    /// What becomes visible in the serving database is seen.
    pub(crate) following: bool,
    /// The server shuts down.
    pub(crate) draining: bool,
}

impl Condition {
    pub(crate) fn is_ready(self) -> bool {
        self.store && self.following && !self.draining
    }
}

/// Where the parts of a server report, and its condition is read.
#[derive(Debug, Clone)]
pub(crate) struct Vitals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    following: watch::Sender<bool>,
    suspicion: Notify,
    condition: watch::Sender<Condition>,
}

impl Default for Vitals {
    fn default() -> Self {
        let condition = Condition { store: true, following: true, draining: false };
        Self(Arc::new(Shared {
            following: watch::Sender::new(true),
            suspicion: Notify::new(),
            condition: watch::Sender::new(condition),
        }))
    }
}

impl Vitals {
    /// The tailer could read the store, or couldn't.
    pub(crate) fn followed(&self, could: bool) {
        self.0.following.send_if_modified(|was| std::mem::replace(was, could) != could);
    }

    /// A call failed in a way that may be the store's.
    pub(crate) fn suspect(&self) {
        self.0.suspicion.notify_one();
    }

    pub(crate) fn condition(&self) -> Condition {
        *self.0.condition.borrow()
    }
}

/// A service's name, and whether it works in a condition.
type Service = (&'static str, fn(Condition) -> bool);

/// Services whose health is reported, and what each needs. The empty name is the server as a whole.
pub(crate) const SERVICES: &[Service] = &[
    ("", Condition::is_ready),
    // Query reads the primary, QueryNewest the serving database.
    ("xmtp.backend.v1.QueryService", Condition::is_ready),
    ("xmtp.backend.v1.PublishService", |now| now.store && !now.draining),
    ("xmtp.backend.v1.SubscribeService", |now| now.following && !now.draining),
    ("xmtp.backend.v1.IdentityService", |now| now.store && !now.draining),
];

/// The task.
pub(crate) struct Health {
    pub(crate) store: Arc<dyn EnvelopeStore>,
    pub(crate) vitals: Vitals,
    pub(crate) reporter: HealthReporter,
    /// How often the store is asked while something doesn't work.
    pub(crate) interval: Duration,
    /// How long it may take to answer.
    pub(crate) timeout: Duration,
}

impl Health {
    /// Reports until `draining`, and that as the last.
    pub(crate) async fn run(self, draining: CancellationToken) {
        let mut following = self.vitals.0.following.subscribe();
        let mut condition = self.vitals.condition();
        loop {
            let change = tokio::select! {
                () = draining.cancelled() => Condition { draining: true, ..condition },
                now = self.observe(&mut following, condition) => now,
            };
            if change != condition {
                condition = change;
                self.report(condition).await;
            }
            if condition.draining {
                return;
            }
        }
    }

    /// Waits for a reason to look, and looks.
    async fn observe(&self, following: &mut watch::Receiver<bool>, last: Condition) -> Condition {
        tokio::select! {
            // The vitals outlive their receivers.
            Ok(()) = following.changed() => {}
            () = self.vitals.0.suspicion.notified() => {}
            () = tokio::time::sleep(self.interval), if !last.is_ready() => {}
        }
        let follows = *following.borrow();
        if follows != last.following {
            // Known already; whether the primary answers may take a while to learn.
            self.report(Condition { following: follows, ..last }).await;
        }
        let asked = tokio::time::timeout(self.timeout, self.store.probe()).await;
        let store = match asked {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the store doesn't work");
                false
            }
            Err(_) => {
                tracing::warn!(timeout = ?self.timeout, "the store doesn't answer");
                false
            }
        };
        let following = *following.borrow_and_update();
        Condition { store, following, draining: false }
    }

    /// Tells the world.
    pub(crate) async fn report(&self, now: Condition) {
        if self.vitals.0.condition.send_replace(now) != now {
            tracing::info!(
                store = now.store,
                following = now.following,
                draining = now.draining,
                "health changed"
            );
        }
        for (service, works) in SERVICES {
            let status = if works(now) { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.reporter.set_service_status(*service, status).await;
        }
    }
}
