//! The floor under streams: a tonic service that pushes given frames to whoever subscribes, and the floor
//! under publishes: rows in a table with the server's indexes, many in a transaction.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::Stream;
use highwater_testkit_postgres::Postgres;
use highwater_wire::proto::backend::{
    SubscribeRequest, SubscribeResponse, SubscribeStaticRequest, SubscribeStaticResponse,
    subscribe_service_server::{SubscribeService, SubscribeServiceServer},
    subscribe_static_response::{Response as Form, Started},
};
use sqlx::{
    Connection as _, PgConnection, QueryBuilder, Sqlite, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tonic::{Request, Response, Status, Streaming};

/// Pushes `frames` to every stream once `go` is set.
pub(crate) struct Pusher {
    pub(crate) frames: Arc<Vec<SubscribeStaticResponse>>,
    pub(crate) go: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl SubscribeService for Pusher {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;
    type SubscribeStaticStream = Pin<Box<dyn Stream<Item = Result<SubscribeStaticResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        _: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        Err(Status::unimplemented("the floor pushes only"))
    }

    async fn subscribe_static(
        &self,
        _: Request<SubscribeStaticRequest>,
    ) -> Result<Response<Self::SubscribeStaticStream>, Status> {
        let (frames, mut go) = (Arc::clone(&self.frames), self.go.clone());
        Ok(Response::new(Box::pin(async_stream::stream! {
            let started = Started { keepalive_interval_ms: 1, targets: Vec::new() };
            yield Ok(SubscribeStaticResponse { response: Some(Form::Started(started)) });
            if go.wait_for(|go| *go).await.is_ok() {
                for frame in frames.iter() {
                    yield Ok(frame.clone());
                }
            }
        })))
    }
}

impl Pusher {
    pub(crate) async fn serve(self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let service = SubscribeServiceServer::new(self).max_encoding_message_size(usize::MAX);
        let serving = tokio::spawn(async move {
            let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(service);
            server.serve_with_incoming(incoming).await.expect("served");
        });
        (address, serving)
    }
}

/// A table as the server's, written without asking anything.
pub(crate) struct Rows {
    conn: SqliteConnection,
    last: i64,
    _folder: TempDir,
}

impl Rows {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("rows.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let mut conn = SqliteConnection::connect_with(&options).await.expect("a database");
        for statement in [
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, topic BLOB NOT NULL, hash BLOB NOT NULL,
             payload BLOB NOT NULL, UNIQUE (topic, hash))",
            "CREATE INDEX rows_in_order ON rows (topic, id)",
        ] {
            sqlx::query(statement).execute(&mut conn).await.expect("a table");
        }
        Self { conn, last: 0, _folder: folder }
    }

    /// Inserts rows of so many payload bytes in one transaction, on topics `serial % topics`.
    pub(crate) async fn insert(&mut self, rows: usize, topics: i64, bytes: usize) {
        let mut tx = self.conn.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO rows (id, topic, hash, payload) ");
        let first = self.last + 1;
        query.push_values(first..first + rows as i64, |mut row, id| {
            // Hashes are spread as SHA-256 spreads them; a mixed counter does.
            let spread = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash: Vec<u8> = spread.to_be_bytes().repeat(4);
            let mut topic = vec![1; 33];
            topic[1..9].copy_from_slice(&(id % topics).to_be_bytes());
            row.push_bind(id).push_bind(topic).push_bind(hash).push_bind(vec![5; bytes]);
        });
        query.build().execute(&mut *tx).await.expect("inserted");
        tx.commit().await.expect("committed");
        self.last += rows as i64;
    }
}

/// What one row costs the disk, committed by itself: the median of a few.
pub(crate) async fn one_commit(rows: &mut Rows, bytes: usize) -> Duration {
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        rows.insert(1, 1, bytes).await;
        times.push(start.elapsed());
    }
    median(times)
}

/// The same in PostgreSQL, round trip included.
pub(crate) async fn one_postgres_commit(server: &Postgres, bytes: usize) -> Duration {
    let url = server.url(&server.create_database());
    let mut conn = PgConnection::connect(&url).await.expect("connected");
    let table = "CREATE TABLE rows (id bigint PRIMARY KEY, payload bytea NOT NULL)";
    sqlx::query(table).execute(&mut conn).await.expect("a table");
    let mut times = Vec::new();
    for id in 0..50_i64 {
        let start = Instant::now();
        let insert = sqlx::query("INSERT INTO rows VALUES ($1, $2)").bind(id).bind(vec![5_u8; bytes]);
        insert.execute(&mut conn).await.expect("inserted");
        times.push(start.elapsed());
    }
    median(times)
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
