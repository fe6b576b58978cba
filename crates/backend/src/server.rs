//! The server: one listener, one store, one tailer, and an orderly end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures::Stream;
use highwater_wire::proto::backend::{
    identity_service_server::IdentityServiceServer, publish_service_server::PublishServiceServer,
    query_service_server::QueryServiceServer, subscribe_service_server::SubscribeServiceServer,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tonic::transport::server::Router;
use tonic_health::server::HealthReporter;
use tonic_web::GrpcWebLayer;

use crate::{
    config::{ConfigError, DatabaseConfig, ServerConfig},
    connection::Connection,
    counted::Counted,
    health::{Health, SERVICES, Vitals},
    metrics::Metrics,
    monitor::Monitor,
    postgres::PostgresStore,
    publish::Publisher,
    query::Reader,
    registry::{Activity, Registry},
    sqlite::SqliteStore,
    store::{EnvelopeStore, StoreError, Tail},
    subscribe::Subscriptions,
    tailer::Tailer,
    wallets::ContractWallets,
    web::{self, Layers},
};

/// Flow control windows for what peers send. HTTP/2's default of 64 KiB would make a large publish or
/// update wait for a round trip again and again.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// The server can't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration can't work.
    #[error("the configuration can't work: {0}")]
    Config(#[from] ConfigError),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The store can't be opened.
    #[error("can't open the store: {0}")]
    Store(#[from] StoreError),
}

impl StartError {
    /// Whether the same start may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(error) => error.is_retryable(),
            Self::Listen { .. } => true,
            Self::Store(error) => error.is_retryable(),
        }
    }
}

/// Serving failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl ServeError {
    /// A new server on the same database may do better.
    pub fn is_retryable(&self) -> bool {
        true
    }
}

/// A server that listens and has opened its store, but doesn't answer yet.
pub struct Server {
    config: ServerConfig,
    listener: TcpListener,
    local_addr: SocketAddr,
    store: Arc<dyn EnvelopeStore>,
    tail: Box<dyn Tail>,
    registry: Arc<Registry>,
    metrics: Metrics,
    metrics_listener: Option<TcpListener>,
    wallets: ContractWallets,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl Server {
    /// Checks the configuration, opens the store and listens.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn bind(config: ServerConfig) -> Result<Self, StartError> {
        config.validate()?;
        let store: Arc<dyn EnvelopeStore> = match &config.database {
            DatabaseConfig::Sqlite(path) => {
                Arc::new(SqliteStore::open(path, config.timing.statement_timeout).await?)
            }
            DatabaseConfig::Postgres(postgres) => {
                Arc::new(PostgresStore::open(postgres, &config.timing).await?)
            }
        };
        Self::bind_with(config, store).await
    }

    /// As [`Server::bind`], over a store that is open already; `config.database` is not looked at.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub async fn bind_with(config: ServerConfig, store: Arc<dyn EnvelopeStore>) -> Result<Self, StartError> {
        config.validate()?;
        // Half a publish's lifetime: a node that hangs is told from a publish that is slow.
        let wallets = ContractWallets::new(&config.wallets, config.timing.publish_lifetime / 2)?;
        let (listener, local_addr) = listen(config.listen).await?;
        let metrics_listener = match config.metrics_listen {
            Some(address) => Some(listen(address).await?.0),
            None => None,
        };
        // Before any stream exists: whatever comes later is an arrival to every stream.
        let tail = store.tail().await?;
        let metrics = Metrics::default();
        let registry = Arc::new(Registry::new(metrics.clone()));
        Ok(Self { config, listener, local_addr, store, tail, registry, metrics, metrics_listener, wallets })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address of metrics, liveness and readiness, if there is one.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// A view of its streams, for metrics.
    pub fn activity(&self) -> Activity {
        Activity::of(&self.registry)
    }

    /// Answers until `shutdown` completes. Then health says NOT_SERVING, streams end UNAVAILABLE,
    /// requests in flight finish, and after at most `timing.drain` connections are cut and the store
    /// is closed. Dropping the future cuts everything at once.
    ///
    /// # Errors
    /// [`ServeError`] when the transport fails.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let metrics_addr = self.metrics_addr();
        let Self { config, listener, store, tail, local_addr, registry, metrics, metrics_listener, wallets } =
            self;
        let vitals = Vitals::default();
        let cut = CancellationToken::new();
        let _cut_when_dropped: DropGuard = cut.clone().drop_guard();
        // A child of `cut`: whatever cuts the connections also ends the streams and the tailer.
        let stop = cut.child_token();
        let tasks = TaskTracker::new();
        let tailer = Tailer {
            store: Arc::clone(&store),
            registry: Arc::clone(&registry),
            poll: config.timing.store_poll,
            metrics: metrics.clone(),
            vitals: vitals.clone(),
        };
        tasks.spawn(tailer.run(tail, stop.clone()));
        if let Some(listener) = metrics_listener {
            let monitor =
                Monitor { metrics: metrics.clone(), vitals: vitals.clone(), store: Arc::clone(&store) };
            tasks.spawn(monitor.run(listener, cut.clone()));
        }
        let calls = Calls { store: &store, metrics: &metrics, vitals: &vitals, wallets: &wallets };
        let (mut reporter, router) = routes(&config, calls, &registry, &stop, &tasks);
        let health = Health {
            store: Arc::clone(&store),
            vitals: vitals.clone(),
            reporter: reporter.clone(),
            interval: config.timing.store_poll.max(PROBE_INTERVAL),
            timeout: config.timing.statement_timeout * 2,
        };
        health.report(vitals.condition()).await;
        let draining = cut.child_token();
        let health = tasks.spawn(health.run(draining.clone()));
        tracing::info!(%local_addr, ?metrics_addr, "listening");

        let closing = CancellationToken::new();
        let graceful = router.serve_with_incoming_shutdown(
            connections(listener, config.timing.tcp_user_timeout, cut.clone()),
            closing.clone().cancelled_owned(),
        );
        tokio::pin!(graceful);
        let served = tokio::select! {
            served = &mut graceful => served,
            () = shutdown => {
                tracing::info!("shutting down");
                draining.cancel();
                // Health speaks first: who is sent away by a stream's end must not be sent back here.
                if let Err(error) = health.await {
                    tracing::error!(%error, "the health task failed");
                }
                stop.cancel();
                closing.cancel();
                // Whoever watches has been told, and must not hold up the end.
                for (service, _) in SERVICES {
                    reporter.clear_service_status(service).await;
                }
                let drained = tokio::time::timeout(config.timing.drain, &mut graceful).await;
                drained.unwrap_or(Ok(()))
            }
        };
        cut.cancel();
        tasks.close();
        tasks.wait().await;
        store.close().await;
        Ok(served?)
    }
}

/// How often a store that doesn't work is asked whether it does again, at most.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local_addr = listener.local_addr().map_err(failed)?;
    Ok((listener, local_addr))
}

/// What every service is made of.
#[derive(Clone, Copy)]
struct Calls<'a> {
    store: &'a Arc<dyn EnvelopeStore>,
    metrics: &'a Metrics,
    vitals: &'a Vitals,
    wallets: &'a ContractWallets,
}

impl Calls<'_> {
    fn counted<S>(self, service: S) -> Counted<S> {
        Counted { service: Arc::new(service), metrics: self.metrics.clone(), vitals: self.vitals.clone() }
    }
}

fn routes(
    config: &ServerConfig,
    calls: Calls<'_>,
    registry: &Arc<Registry>,
    stop: &CancellationToken,
    sessions: &TaskTracker,
) -> (HealthReporter, Router<Layers>) {
    let limits = Arc::new(config.limits.clone());
    let timing = Arc::new(config.timing.clone());
    let store = calls.store;
    let (max_in, max_out) = (limits.max_request_bytes, limits.max_response_bytes);
    let wallets = calls.wallets.clone();
    let reader = Reader { store: Arc::clone(store), limits: Arc::clone(&limits), wallets: wallets.clone() };
    let publisher = Publisher {
        store: Arc::clone(store),
        limits: Arc::clone(&limits),
        timing: Arc::clone(&timing),
        wallets,
    };
    let subscriptions = Subscriptions {
        store: Arc::clone(store),
        registry: Arc::clone(registry),
        limits: Arc::clone(&limits),
        timing,
        stop: stop.clone(),
        sessions: sessions.clone(),
        metrics: calls.metrics.clone(),
    };
    let (health, health_service) = tonic_health::server::health_reporter();
    macro_rules! sized {
        ($service:expr) => {
            $service.max_decoding_message_size(max_in).max_encoding_message_size(max_out)
        };
    }
    let router = tonic::transport::Server::builder()
        .max_concurrent_streams(limits.max_http2_streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(config.timing.http2_ping_interval))
        .http2_keepalive_timeout(Some(config.timing.http2_ping_timeout))
        // Also ends requests whose body never comes to an end.
        .timeout(config.timing.request_timeout)
        .accept_http1(true)
        .layer(web::cors(&config.cors))
        .layer(GrpcWebLayer::new())
        .add_service(health_service)
        .add_service(sized!(QueryServiceServer::new(calls.counted(reader.clone()))))
        .add_service(sized!(IdentityServiceServer::new(calls.counted(reader))))
        .add_service(sized!(PublishServiceServer::new(calls.counted(publisher))))
        .add_service(sized!(SubscribeServiceServer::new(subscriptions)));
    (health, router)
}

fn connections(
    listener: TcpListener,
    user_timeout: Duration,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Connection>> {
    async_stream::stream! {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    prepare(&stream, user_timeout);
                    yield Ok(Connection::new(stream, cut.clone()));
                }
                Err(error) => {
                    // Out of descriptors, most likely: give the rest a moment to end.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Small frames leave at once; a peer that vanished without a word is found by what it leaves
/// unacknowledged, the keepalive's probes included. Each option stands for itself.
fn prepare(stream: &TcpStream, user_timeout: Duration) {
    let socket = SockRef::from(stream);
    // Whole seconds, as systems count them.
    let probe = Duration::from_secs(user_timeout.as_secs().clamp(1, 32_767));
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe);
    let set = [
        ("nodelay", stream.set_nodelay(true)),
        ("keepalive", socket.set_tcp_keepalive(&keepalive)),
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        ("user timeout", socket.set_tcp_user_timeout(Some(user_timeout))),
    ];
    for (option, set) in set {
        if let Err(error) = set {
            tracing::warn!(option, %error, "a socket option was refused");
        }
    }
}
