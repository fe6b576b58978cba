//! The receiver driver: one bidirectional session at a time, reopened with backoff while anybody is interested.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_delivery::ConversationState;
use highwater_transport::{Receiver, ReceiverEnd, ReceiverEvent};
use highwater_wire::{Cursor, OrderedPrefix, Topic};

use crate::admission::{Admitted, admit};
use crate::engine::Shared;
use crate::interests::{Registrations, desired};
use crate::{Backoff, ConnectionState, SyncError};

/// How often interests, paused topics and budgets are looked at again. Activated groups must be selected within 250 ms.
const RECONCILE_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn run(shared: Shared) {
    let mut backoff = Backoff::new();
    let mut interested = shared.interests.watch();
    let mut first = true;
    while !shared.cancel.is_cancelled() {
        if shared.interests.scopes().is_empty() {
            tokio::select! {
                _ = shared.cancel.cancelled() => break,
                _ = interested.changed() => continue,
            }
        }
        shared.connection_state(if first {
            ConnectionState::Connecting
        } else {
            ConnectionState::Reconnecting
        });
        first = false;
        let ended = session(&shared, &mut backoff).await;
        shared.set_registrations(&Registrations::default());
        match ended {
            Ended::Unneeded => {
                first = true;
                shared.connection_state(ConnectionState::Closed);
            }
            Ended::Failed { error } => {
                shared.reference_waits.disconnected();
                let now = shared.now();
                shared.interests.failed(now);
                shared.interests.observe(now, false);
                let wait = backoff.failed(error.as_ref().and_then(SyncError::retry_after), rand::random());
                tracing::info!(
                    wait_ms = wait.as_millis() as u64,
                    error = error.as_ref().map(tracing::field::display),
                    "receiver ended"
                );
                let refused = error.as_ref().is_some_and(|error| !error.is_retryable());
                shared.connection_state(if refused {
                    ConnectionState::Failed
                } else {
                    ConnectionState::Reconnecting
                });
                wait_observing(&shared, wait).await;
            }
        }
    }
    shared.connection_state(ConnectionState::Closed);
}

/// Waits, while budgets go on being spent.
async fn wait_observing(shared: &Shared, wait: Duration) {
    let deadline = tokio::time::Instant::now() + wait;
    while tokio::time::Instant::now() < deadline && !shared.interests.scopes().is_empty() {
        let step = deadline.min(tokio::time::Instant::now() + Duration::from_secs(1));
        tokio::select! {
            _ = shared.cancel.cancelled() => return,
            _ = tokio::time::sleep_until(step) => shared.interests.observe(shared.now(), false),
        }
    }
}

enum Ended {
    /// Nobody is interested any more, or the engine ends.
    Unneeded,
    Failed {
        /// Absent when the session was merely silent or closed.
        error: Option<SyncError>,
    },
}

impl<E: Into<SyncError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed { error: Some(error.into()) }
    }
}

async fn session(shared: &Shared, backoff: &mut Backoff) -> Ended {
    let opened = tokio::select! {
        _ = shared.cancel.cancelled() => return Ended::Unneeded,
        opened = shared.connection.open_receiver() => opened,
    };
    let receiver = match opened {
        Ok(receiver) => receiver,
        Err(error) => return error.into(),
    };
    let mut session = Session {
        shared,
        receiver,
        registrations: Registrations::default(),
        started: false,
        active_since: None,
    };
    match session.run(backoff).await {
        Ok(()) => Ended::Unneeded,
        Err(ended) => ended,
    }
}

struct Session<'a> {
    shared: &'a Shared,
    receiver: Receiver,
    registrations: Registrations,
    started: bool,
    active_since: Option<Duration>,
}

impl Session<'_> {
    async fn run(&mut self, backoff: &mut Backoff) -> Result<(), Ended> {
        let mut tick = tokio::time::interval(RECONCILE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = self.shared.cancel.cancelled() => return Ok(()),
                event = self.receiver.next() => self.on(event).await?,
                _ = tick.tick() => {
                    if self.shared.interests.scopes().is_empty() {
                        return Ok(());
                    }
                    if self.started {
                        self.reconcile().await?;
                    }
                    self.observe(backoff);
                }
            }
        }
    }

    async fn on(&mut self, event: ReceiverEvent) -> Result<(), Ended> {
        match event {
            ReceiverEvent::Started { .. } => {
                self.started = true;
                self.shared.connection_state(ConnectionState::Connected);
                self.reconcile().await
            }
            ReceiverEvent::Applied { targets, .. } => {
                for (topic, target) in targets {
                    self.registrations.acknowledged(topic, target);
                }
                self.shared.set_registrations(&self.registrations);
                Ok(())
            }
            ReceiverEvent::Received(prefixes) => {
                for prefix in prefixes {
                    self.admit(prefix).await?;
                }
                Ok(())
            }
            ReceiverEvent::Ended(ReceiverEnd::Failed(error)) => Err(error.into()),
            ReceiverEvent::Ended(_) => Err(Ended::Failed { error: None }),
            // An event of a later transport that this driver has no use for.
            _ => Ok(()),
        }
    }

    async fn admit(&mut self, prefix: OrderedPrefix) -> Result<(), Ended> {
        let topic = prefix.topic();
        let leave = match admit(&self.shared.store, prefix).await? {
            Admitted::All(_) => false,
            Admitted::Paused(_) => self.registrations.pause(topic),
            Admitted::Gap(_) => self.registrations.restart(topic),
        };
        if leave {
            self.receiver.update(Vec::new(), vec![topic])?;
            self.shared.set_registrations(&self.registrations);
        }
        Ok(())
    }

    /// Makes the session's topics those that are desired now, each added at its durable F (STR-036).
    async fn reconcile(&mut self) -> Result<(), Ended> {
        let desired = self.desired().await?;
        self.resume_paused().await?;
        let changes = self.registrations.reconcile(&desired);
        if changes.adds.is_empty() && changes.removes.is_empty() {
            return Ok(());
        }
        let topics = changes.adds;
        let adds = self
            .shared
            .store
            .read("received", move |tx| {
                Box::pin(async move {
                    let received = highwater_receipt::received_many(tx, &topics).await?;
                    let from =
                        |topic: Topic| (topic, received.get(&topic).map_or(Cursor::ZERO, |f| f.cursor()));
                    Ok::<_, SyncError>(topics.into_iter().map(from).collect())
                })
            })
            .await?;
        self.receiver.update(adds, changes.removes)?;
        self.shared.set_registrations(&self.registrations);
        Ok(())
    }

    async fn desired(&self) -> Result<BTreeSet<Topic>, SyncError> {
        let (active, welcome) = self
            .shared
            .store
            .read("interests", |tx| {
                Box::pin(async move {
                    let active = highwater_delivery::conversations(tx)
                        .await?
                        .into_iter()
                        .filter(|found| found.state == ConversationState::Active)
                        .map(|found| found.group)
                        .collect();
                    let welcome = highwater_mls::installation(tx)
                        .await?
                        .map(|installation| Topic::welcome(installation.key));
                    Ok::<_, SyncError>((active, welcome))
                })
            })
            .await?;
        Ok(desired(&self.shared.interests.scopes(), &active, welcome))
    }

    async fn resume_paused(&mut self) -> Result<(), SyncError> {
        for topic in self.registrations.paused() {
            let room = self
                .shared
                .store
                .read("room", move |tx| {
                    Box::pin(async move { highwater_receipt::may_receive(tx, topic).await })
                })
                .await?;
            if room {
                self.registrations.resume(topic);
            }
        }
        Ok(())
    }

    /// Recovery counts as sustained only after all registrations stayed active for long enough (PROC-038).
    fn observe(&mut self, backoff: &mut Backoff) {
        let now = self.shared.now();
        let all_active = self.started && self.registrations.all_active();
        self.shared.interests.observe(now, all_active);
        self.active_since = if all_active { self.active_since.or(Some(now)) } else { None };
        if self.active_since.is_some_and(|since| now - since >= crate::SUSTAINED_RECOVERY) {
            backoff.sustained();
        }
    }
}
