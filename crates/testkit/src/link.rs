//! A TCP link that fails as networks do.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to one address.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Connections made before the last change of this number are dead.
    generation: u64,
    down: bool,
    delay: Duration,
    lose_replies: bool,
    /// How many connections were let through.
    connections: u64,
    /// How many of them have not ended.
    open: u64,
}

impl Link {
    /// A link to `target` on a free loopback port.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let state = watch::Sender::new(State {
            generation: 0,
            down: false,
            delay: Duration::ZERO,
            lose_replies: false,
            connections: 0,
            open: 0,
        });
        let task = tokio::spawn(accept(listener, target, state.clone()));
        Self { address, state, task }
    }

    /// What clients connect to.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection, wherever it is. New ones get through.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Cuts every connection and lets none through until [`restore`](Self::restore).
    pub fn go_down(&self) {
        self.state.send_modify(|state| {
            state.generation += 1;
            state.down = true;
        });
    }

    /// Requests reach the backend from now on, and nothing that it answers comes back: whoever waits can't know what
    /// became of what it asked for. Until [`restore`](Self::restore).
    pub fn lose_replies(&self) {
        self.state.send_modify(|state| state.lose_replies = true);
    }

    /// Holds up everything in both directions by `delay`.
    pub fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Ends every fault. Connections that lost replies end: what comes after a gap in them has no meaning.
    pub fn restore(&self) {
        self.state.send_modify(|state| {
            state.generation += u64::from(state.lose_replies);
            state.down = false;
            state.lose_replies = false;
            state.delay = Duration::ZERO;
        });
    }

    /// How many connections were let through so far.
    pub fn connections(&self) -> u64 {
        self.state.borrow().connections
    }

    /// How many connections there are now.
    pub fn open_connections(&self) -> u64 {
        self.state.borrow().open
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: watch::Sender<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if state.borrow().down {
            continue;
        }
        state.send_modify(|state| {
            state.connections += 1;
            state.open += 1;
        });
        let ends = state.clone();
        let connection = connection(client, target, state.subscribe());
        tokio::spawn(async move {
            connection.await;
            ends.send_modify(|state| state.open -= 1);
        });
    }
}

async fn connection(client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let born = state.borrow_and_update().generation;
    let Ok(backend) = TcpStream::connect(target).await else {
        return;
    };
    // Small frames must not wait for more: the link stands for a direct one.
    let _ = client.set_nodelay(true);
    let _ = backend.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_backend, to_backend) = backend.into_split();
    let view = state.clone();
    tokio::select! {
        _ = state.wait_for(|state| state.generation != born) => {}
        () = pump(from_client, to_backend, view.clone(), false) => {}
        () = pump(from_backend, to_client, view, true) => {}
    }
}

/// Carries one direction until either end closes.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: watch::Receiver<State>, replies: bool) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else {
            return;
        };
        let State { delay, lose_replies, .. } = *state.borrow();
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        if replies && lose_replies {
            continue;
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}
