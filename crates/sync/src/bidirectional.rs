//! One session over a stream in both directions: topics come and go on it.

use highwater_transport::{Receiver, ReceiverEnd, ReceiverEvent};
use highwater_wire::OrderedPrefix;

use crate::admission::{Admitted, admit};
use crate::desired::Desired;
use crate::engine::Shared;
use crate::interests::Registrations;
use crate::receiver::{Ended, Health, from_received, has_room, ticks};
use crate::{Backoff, ConnectionState};

pub(crate) async fn session(shared: &Shared, backoff: &mut Backoff) -> Ended {
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
        desired: Desired::default(),
        registrations: Registrations::default(),
        started: false,
        health: Health::default(),
    };
    match session.run(backoff).await {
        Ok(()) => Ended::Unneeded,
        Err(ended) => ended,
    }
}

struct Session<'a> {
    shared: &'a Shared,
    receiver: Receiver,
    desired: Desired,
    registrations: Registrations,
    started: bool,
    health: Health,
}

impl Session<'_> {
    async fn run(&mut self, backoff: &mut Backoff) -> Result<(), Ended> {
        let mut tick = ticks();
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
                    let all_active = self.started && self.registrations.all_active();
                    self.health.observe(self.shared, all_active, backoff);
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
                self.publish();
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
            self.publish();
        }
        Ok(())
    }

    /// Makes the session's topics those that are desired now, each added at its durable F (STR-036).
    async fn reconcile(&mut self) -> Result<(), Ended> {
        for topic in self.registrations.paused() {
            if has_room(self.shared, topic).await? {
                self.registrations.resume(topic);
            }
        }
        let changes = self.registrations.reconcile(self.desired.now(self.shared).await?);
        if changes.adds.is_empty() && changes.removes.is_empty() {
            return Ok(());
        }
        let adds = from_received(self.shared, changes.adds).await?;
        self.receiver.update(adds, changes.removes)?;
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        self.shared.set_registrations(self.registrations.topics().clone());
    }
}
