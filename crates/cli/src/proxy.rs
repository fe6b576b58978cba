//! A TCP link between a client and the backend that can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to one address, until told to cut them.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    /// Counts cuts: a connection ends when it changes.
    cuts: watch::Sender<u64>,
    /// Nothing is let through.
    down: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free loopback port.
    pub(crate) async fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (cuts, down) = (watch::Sender::new(0), watch::Sender::new(false));
        let task = tokio::spawn(accept(listener, target, cuts.clone(), down.clone()));
        Ok(Self { address, cuts, down, task })
    }

    /// What clients connect to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection at once, wherever it is, and lets none through for `pause`.
    pub(crate) fn cut(&self, pause: Duration) {
        self.down.send_replace(true);
        self.cuts.send_modify(|cuts| *cuts += 1);
        let down = self.down.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            down.send_replace(false);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    cuts: watch::Sender<u64>,
    down: watch::Sender<bool>,
) {
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                // Out of file descriptors, most likely: some will be free soon.
                tracing::warn!(%error, "the proxy can't accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if *down.borrow() {
            continue;
        }
        tokio::spawn(forward(client, target, cuts.subscribe()));
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut cuts: watch::Receiver<u64>) {
    let Ok(mut backend) = TcpStream::connect(target).await else {
        return;
    };
    // Small frames must not wait for more: the link stands for a direct one.
    let _ = client.set_nodelay(true);
    let _ = backend.set_nodelay(true);
    tokio::select! {
        _ = cuts.changed() => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut backend) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_cut_ends_every_connection_and_later_ones_get_through() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = echo.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let proxy = Proxy::start(target).await.unwrap();
        let mut first = TcpStream::connect(proxy.address).await.unwrap();
        first.write_all(b"x").await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'x');

        proxy.cut(Duration::ZERO);
        assert!(matches!(first.read(&mut [0]).await, Ok(0) | Err(_)));

        let through = async {
            loop {
                let mut again = TcpStream::connect(proxy.address).await.unwrap();
                if again.write_all(b"y").await.is_ok() && again.read_u8().await.is_ok() {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), through).await.unwrap();
    }
}
