//! The engine, started by the first operation that needs the network.

use std::time::Duration;

use highwater_store::Store;
use highwater_sync::{Engine, EngineOptions, ReceiverKind};
use highwater_transport::{ConnectOptions, Connection};
use tokio::sync::Mutex;

use crate::Error;

/// An app that sends while the backend is unreachable learns within a few seconds that it was queued.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) struct Network {
    store: Store,
    backend: Option<String>,
    receiver: ReceiverKind,
    state: Mutex<State>,
}

enum State {
    NotStarted,
    Running(Engine),
    Closed,
}

impl Network {
    pub(crate) fn new(store: Store, backend: Option<String>, receiver: ReceiverKind) -> Self {
        Self { store, backend, receiver, state: Mutex::new(State::NotStarted) }
    }

    /// Whether there is a backend to talk to at all.
    pub(crate) fn has_backend(&self) -> bool {
        self.backend.is_some()
    }

    /// The running engine. Starting it waits for nothing on the network.
    pub(crate) async fn engine(&self) -> Result<Engine, Error> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Running(engine) => Ok(engine.clone()),
            State::Closed => Err(Error::Closed),
            State::NotStarted => {
                let backend = self.backend.as_deref().ok_or(Error::NoBackend)?;
                let options =
                    ConnectOptions { connect_timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
                let connection = Connection::connect(backend, options)?;
                let options = EngineOptions::default().receiver(self.receiver);
                let engine = Engine::start(self.store.clone(), connection, options);
                *state = State::Running(engine.clone());
                Ok(engine)
            }
        }
    }

    /// Ends every driver. Later calls of [`engine`](Self::engine) fail.
    pub(crate) async fn shutdown(&self) {
        let mut state = self.state.lock().await;
        if let State::Running(engine) = std::mem::replace(&mut *state, State::Closed) {
            engine.shutdown().await;
        }
    }
}
