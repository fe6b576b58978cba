//! A network that goes quiet: connections stay open and nothing comes through any more.

use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
};

pub(crate) struct DeafLink {
    pub(crate) url: String,
    deaf: watch::Sender<bool>,
}

impl DeafLink {
    pub(crate) async fn to(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let far = url.strip_prefix("http://").expect("a plain url").to_owned();
        let deaf = watch::Sender::new(false);
        let heard = deaf.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&far).await.expect("connected");
                tokio::spawn(carry(near, far, heard.clone()));
            }
        });
        Self { url: format!("http://{address}"), deaf }
    }

    /// From now on nothing is carried, and nobody is told.
    pub(crate) fn go_deaf(&self) {
        self.deaf.send_replace(true);
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, mut deaf: watch::Receiver<bool>) {
    let went_deaf = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
        heard = deaf.wait_for(|deaf| *deaf) => heard.is_ok(),
    };
    if went_deaf {
        // Held open until whoever made the link is gone.
        while deaf.changed().await.is_ok() {}
    }
    let _ = far.shutdown().await;
}
