//! The closed allocation boundary: it never passes an id that a publish can still commit, however the
//! publish and the boundary's own steps interleave.

use std::time::Duration;

use highwater_backend::{DatabaseConfig, EnvelopeStore, PostgresStore, Server, ServerConfig, Timing};
use highwater_testkit_postgres::{Postgres, Stop};
use sqlx::{Connection as _, PgConnection};

use crate::{
    fixture::{Running, SOON, soon, welcome},
    follower::Follower,
};

async fn store(url: &str) -> PostgresStore {
    let DatabaseConfig::Postgres(mut config) = url.parse().expect("a database") else {
        panic!("PostgreSQL is meant")
    };
    config.max_connections = 3;
    let timing = Timing { store_poll: Duration::from_millis(5), ..Timing::default() };
    PostgresStore::open(&config, &timing).await.expect("opened")
}

/// A publish by hand, which can be held at every point.
struct Publisher {
    conn: PgConnection,
}

impl Publisher {
    /// Has locked its topic's head, as every publish does first; so it has a transaction id.
    async fn begin(url: &str, topic: u8) -> Self {
        let mut conn = PgConnection::connect(url).await.expect("connected");
        sqlx::query("BEGIN").execute(&mut conn).await.expect("begun");
        sqlx::query("INSERT INTO backend_heads VALUES ($1, 0)")
            .bind(vec![1_u8, topic])
            .execute(&mut conn)
            .await
            .expect("a head");
        Self { conn }
    }

    async fn take_id(&mut self) -> i64 {
        let id = sqlx::query_scalar("SELECT nextval('backend_ids')");
        id.fetch_one(&mut self.conn).await.expect("an id")
    }

    async fn end(mut self, how: &str) {
        match how {
            "killed" => {
                let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
                    .fetch_one(&mut self.conn)
                    .await
                    .expect("a process");
                Postgres::shared().sql("postgres", &format!("SELECT pg_terminate_backend({pid})"));
            }
            statement => {
                sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut self.conn).await.expect("ended");
            }
        }
    }
}

async fn closed(conn: &mut PgConnection) -> i64 {
    let closed = sqlx::query_scalar("SELECT closed FROM backend_boundary");
    closed.fetch_one(conn).await.expect("the boundary")
}

async fn closes(conn: &mut PgConnection, id: i64) {
    soon("the boundary", async {
        while closed(conn).await < id {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Long enough for the boundary task to do several rounds.
async fn many_rounds() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// The newest transaction to have ended is older than any that runs, so a snapshot's xmax is no bound: the
/// second publisher's transaction is above it all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_id_of_a_running_publish_is_closed() {
    for how in ["COMMIT", "ROLLBACK", "killed"] {
        let server = Postgres::shared();
        let url = server.url(&server.create_database());
        let store = store(&url).await;
        let mut look = PgConnection::connect(&url).await.expect("connected");
        let mut first = Publisher::begin(&url, 1).await;
        let mut second = Publisher::begin(&url, 2).await;
        let (a, b) = (second.take_id().await, first.take_id().await);
        many_rounds().await;
        assert!(closed(&mut look).await < a, "{how}: both run");
        first.end(how).await;
        many_rounds().await;
        // The one that ended had the greater id and the smaller transaction id.
        assert!(closed(&mut look).await < a, "{how}: {a} is still open");
        second.end(how).await;
        closes(&mut look, b).await;
        store.close().await;
    }
}

/// A publisher that begins, takes its id and ends at every point between the boundary's looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_boundary_follows_publishers_that_come_and_go() {
    let server = Postgres::shared();
    let url = server.url(&server.create_database());
    // Two instances move the same boundary.
    let (one, two) = tokio::join!(store(&url), store(&url));
    let mut look = PgConnection::connect(&url).await.expect("connected");
    let (mut open, mut last, mut highest) = (Vec::new(), 0, 0);
    for round in 0..60_u8 {
        let mut publisher = Publisher::begin(&url, round).await;
        if round % 4 != 3 {
            last = publisher.take_id().await;
            open.push((last, publisher));
        } else {
            publisher.end("ROLLBACK").await;
        }
        tokio::time::sleep(Duration::from_millis(u64::from(round % 7))).await;
        let lowest = open.first().map_or(i64::MAX, |(id, _)| *id);
        let now = closed(&mut look).await;
        assert!(now < lowest, "{now} passes {lowest}, which is open");
        assert!(now >= highest, "it falls from {highest} to {now}");
        highest = now;
        if round % 3 == 2 {
            let (_, publisher) = open.remove(usize::from(round) % open.len());
            publisher.end(["COMMIT", "ROLLBACK", "killed"][usize::from(round / 3) % 3]).await;
        }
    }
    for (_, publisher) in open {
        publisher.end("COMMIT").await;
    }
    closes(&mut look, last).await;
    one.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_boundary_never_falls_over_a_restart() {
    let mut server = Postgres::start();
    let url = server.url(&server.create_database());
    let mut highest = 0;
    for how in [Stop::Fast, Stop::Immediate, Stop::Fast] {
        let store = store(&url).await;
        let mut look = PgConnection::connect(&url).await.expect("connected");
        let found = closed(&mut look).await;
        assert!(found >= highest, "it fell from {highest} to {found}");
        let mut publisher = Publisher::begin(&url, u8::try_from(highest % 250).expect("small")).await;
        let id = publisher.take_id().await;
        assert!(id > highest);
        publisher.end("COMMIT").await;
        closes(&mut look, id).await;
        highest = closed(&mut look).await;
        tokio::time::timeout(SOON, store.close()).await.expect("closed");
        drop(look);
        server.stop(how);
        server.start_again();
    }
}

/// A lock on the boundary delays it; a boundary that can't be moved at all ends streams.
///
/// Shows: STR-035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_boundary_waits_and_a_broken_one_ends_streams() {
    let server = Postgres::shared();
    let database = server.create_database();
    let url = server.url(&database);
    let mut config = ServerConfig::new(url.parse().expect("a database"));
    config.timing.statement_timeout = Duration::from_millis(300);
    let instance = Running::serve(Server::bind(config).await.expect("the server starts"));
    let client = instance.client().await;
    let mut follower = Follower::of(1..2);
    follower.connect(&client).await.expect("a stream");
    let mut lock = PgConnection::connect(&url).await.expect("connected");
    sqlx::raw_sql("BEGIN; SELECT FROM backend_boundary FOR UPDATE").execute(&mut lock).await.expect("locked");
    let mut last = 0;
    for number in 0..5_u8 {
        last = client.put_one(welcome(1, &[number])).await;
        // Longer than a statement may wait, over all rounds.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    while follower.count() < 5 {
        soon("the messages", follower.step()).await.expect("a healthy stream");
    }
    let mut look = PgConnection::connect(&url).await.expect("connected");
    assert_eq!(closed(&mut look).await, 0);
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.expect("unlocked");
    closes(&mut look, i64::try_from(last).expect("an id")).await;

    server.sql(&database, "ALTER SEQUENCE backend_ids RENAME TO elsewhere");
    let ended = soon("the end of the stream", follower.step()).await.expect_err("ended");
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    server.sql(&database, "ALTER SEQUENCE elsewhere RENAME TO backend_ids");
    soon("a stream that stays", async {
        while follower.count() < 6 {
            if follower.connect(&client).await.is_ok() && client.put(vec![welcome(1, b"after")]).await.is_ok()
            {
                while follower.count() < 6 && follower.step().await.is_ok() {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    instance.stop().await;
}
