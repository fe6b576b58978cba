//! Lost wakes, lost connections, a database that goes and comes back.

use std::time::Duration;

use highwater_backend::{DatabaseConfig, Server, ServerConfig};
use highwater_testkit_postgres::{Postgres, Stop};

use crate::{
    fixture::{Client, Running, soon, start_on, welcome, welcome_topic},
    follower::Follower,
};

async fn followers(instances: &[Running; 2]) -> Vec<Follower> {
    let mut followers = Vec::new();
    for number in 0..5 {
        let mut follower = Follower::of(1..2);
        follower.connect(&instances[number % 2].client().await).await.expect("a stream");
        followers.push(follower);
    }
    followers
}

/// Every follower receives so many envelopes, without another publish.
async fn all_receive(followers: &mut [Follower], client: &Client, count: usize) {
    for follower in followers {
        soon("the messages", follower.receive(async || client.clone(), count)).await;
    }
}

/// Case: the connection on which wakes arrive is lost, and messages are published before another listens.
///
/// Shows: STR-010.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_published_while_nobody_listens_are_delivered() {
    let server = Postgres::shared();
    let database = server.create_database();
    let url = server.url(&database);
    let instances = [start_on(&url).await, start_on(&url).await];
    let client = instances[0].client().await;
    let mut followers = followers(&instances).await;
    let mut count = 0;
    for round in 0..5 {
        soon("somebody to listen", async {
            while Postgres::shared().terminate(&database, "LISTEN") == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        // At once, and a little later: into the hole, and around the next LISTEN.
        tokio::time::sleep(Duration::from_millis(120 * round)).await;
        for message in 0..3 {
            client.put_one(welcome(1, format!("{round} {message}").as_bytes())).await;
        }
        count += 3;
        all_receive(&mut followers, &client, count).await;
    }
    for instance in instances {
        instance.stop().await;
    }
}

/// The same, on two instances whose streams are served from a standby that falls behind.
///
/// Shows: STR-010, STR-012.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_published_while_nobody_listens_reach_a_lagging_standby() {
    let primary = Postgres::start();
    let database = primary.create_database();
    let replica = primary.replica();
    let instance = async || {
        let config: DatabaseConfig = primary.url(&database).parse().expect("a database");
        let config = ServerConfig::new(config.with_replica(&replica.url(&database)).expect("a replica"));
        Running::serve(Server::bind(config).await.expect("the server starts"))
    };
    let instances = [instance().await, instance().await];
    let client = instances[0].client().await;
    let mut followers = followers(&instances).await;
    let mut count = 0;
    for round in 0..3 {
        replica.pause_replay();
        primary.terminate(&database, "LISTEN");
        for message in 0..3 {
            client.put_one(welcome(1, format!("{round} {message}").as_bytes())).await;
        }
        count += 3;
        assert!(followers.iter().all(|follower| follower.count() < count));
        replica.resume_replay();
        all_receive(&mut followers, &client, count).await;
    }
    for instance in instances {
        instance.stop().await;
    }
}

/// Shows: STR-035, STR-036.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_restarts_ends_streams_and_loses_nothing() {
    let mut server = Postgres::start();
    let url = server.url(&server.create_database());
    let instances = [start_on(&url).await, start_on(&url).await];
    let clients = [instances[0].client().await, instances[1].client().await];
    let mut followers = followers(&instances).await;
    let mut stored = Vec::new();
    for (round, how) in [Stop::Fast, Stop::Immediate].into_iter().enumerate() {
        stored.push(clients[0].put_one(welcome(1, format!("{round} before").as_bytes())).await);
        server.stop(how);
        for follower in &mut followers {
            soon("the end of the stream", async {
                loop {
                    if let Err(status) = follower.step().await {
                        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
                        return;
                    }
                }
            })
            .await;
        }
        let refused = clients[0].put(vec![welcome(1, b"meanwhile")]).await.expect_err("no database");
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
        server.start_again();
        let after = format!("{round} after");
        stored.push(
            soon("a publish", async {
                loop {
                    match clients[1].put(vec![welcome(1, after.as_bytes())]).await {
                        Ok(metas) => return crate::fixture::id(&metas[0]),
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            })
            .await,
        );
        all_receive(&mut followers, &clients[round % 2], stored.len()).await;
    }
    for follower in &followers {
        assert_eq!(follower.received()[&welcome_topic(1)], stored);
    }
    for instance in instances {
        instance.stop().await;
    }
}

/// The database is swapped for an older copy under a running instance: its boundary falls. What streams were
/// shown can't be relied on, so all end; following starts anew and misses nothing that comes.
///
/// Shows: STR-035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_back_ends_streams_and_is_followed_anew() {
    let server = Postgres::shared();
    let database = server.create_database();
    let instance = start_on(&server.url(&database)).await;
    let client = instance.client().await;
    let mut follower = Follower::of(1..2);
    follower.connect(&client).await.expect("a stream");
    for number in 0..3_u8 {
        client.put_one(welcome(1, &[number])).await;
    }
    soon("the messages", follower.receive(async || client.clone(), 3)).await;
    // The instance moves the boundary on, and again after each fall; should it be quicker than its own next
    // look, the database falls once more.
    let ended = soon("the end of the stream", async {
        loop {
            let closed = || server.sql(&database, "SELECT closed FROM backend_boundary");
            while closed().trim() != "3" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Several looks, so that it has been seen.
            tokio::time::sleep(Duration::from_millis(500)).await;
            server.sql(&database, "UPDATE backend_boundary SET closed = 0");
            if let Ok(stepped) = tokio::time::timeout(Duration::from_secs(1), follower.step()).await {
                return stepped.expect_err("ended");
            }
        }
    })
    .await;
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended:?}");
    soon("a stream that stays", async {
        while follower.connect(&client).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    client.put_one(welcome(1, b"after")).await;
    soon("the next message", follower.receive(async || client.clone(), 4)).await;
    instance.stop().await;
}
