//! Many publishers through two instances, beside transactions that are held open, rolled back and killed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use highwater_testkit_postgres::Postgres;
use highwater_wire::Topic;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use sqlx::{Connection as _, PgConnection};

use crate::{
    fixture::{Client, Running, id, start_on, welcome, welcome_topic},
    follower::Follower,
};

const PUBLISHERS: usize = 50;
const TOPICS: u8 = 20;
const EACH: usize = 20;
const WHOLE: Duration = Duration::from_secs(120);

/// Takes locks and ids as a publish does, holds them for a while, and gives up or is killed.
async fn disturb(url: String, database: String, seed: u64, done: Arc<AtomicBool>) {
    let mut random = StdRng::seed_from_u64(seed);
    while !done.load(Ordering::Relaxed) {
        let Ok(mut conn) = PgConnection::connect(&url).await else { continue };
        let topic = welcome_topic(random.random_range(0..TOPICS)).to_bytes();
        for statement in ["BEGIN", "SELECT nextval('backend_ids')"] {
            let _ = sqlx::raw_sql(statement).execute(&mut conn).await;
        }
        let _ = sqlx::query("SELECT FROM backend_heads WHERE topic = $1 FOR UPDATE /* disturber */")
            .bind(topic)
            .execute(&mut conn)
            .await;
        tokio::time::sleep(Duration::from_millis(random.random_range(1..40))).await;
        if random.random_bool(0.3) {
            let database = database.clone();
            let kill = move || Postgres::shared().terminate(&database, "disturber");
            let _ = tokio::task::spawn_blocking(kill).await;
        } else {
            let _ = sqlx::raw_sql("ROLLBACK").execute(&mut conn).await;
        }
    }
}

/// Publishes to two random topics at a time; what was stored, by topic. An answer that proves nothing is
/// followed by the same envelopes again.
async fn publish(client: Client, publisher: usize) -> Vec<(Topic, u64)> {
    let mut random = StdRng::seed_from_u64(publisher as u64);
    let mut stored = Vec::new();
    for round in 0..EACH {
        let topics = [random.random_range(0..TOPICS), random.random_range(0..TOPICS)];
        let text = format!("{publisher} {round}");
        let envelopes = topics.map(|topic| welcome(topic, format!("{text} {topic}").as_bytes()));
        let metas = loop {
            match client.put(envelopes.to_vec()).await {
                Ok(metas) => break metas,
                Err(status) => {
                    let code = status.code();
                    let retryable = [tonic::Code::Unavailable, tonic::Code::DeadlineExceeded];
                    assert!(retryable.contains(&code), "{status:?}");
                }
            }
        };
        stored.extend(topics.iter().zip(&metas).map(|(topic, meta)| (welcome_topic(*topic), id(meta))));
    }
    stored
}

/// Shows: STR-004, STR-010.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reader_sees_every_committed_envelope_once_and_in_order() {
    let server = Postgres::shared();
    let database = server.create_database();
    let url = server.url(&database);
    let instances = [start_on(&url).await, start_on(&url).await];
    let clients = [instances[0].client().await, instances[1].client().await];
    let done = Arc::new(AtomicBool::new(false));
    let disturbers: Vec<_> = (0..4)
        .map(|seed| tokio::spawn(disturb(url.clone(), database.clone(), seed, Arc::clone(&done))))
        .collect();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| tokio::spawn(publish(clients[publisher % 2].clone(), publisher)))
        .collect();
    let (stop, mut stopped) = tokio::sync::watch::channel(0_usize);
    let steady = clients.clone().map(|client| {
        let mut total = stop.subscribe();
        tokio::spawn(async move {
            let mut follower = Follower::of(0..TOPICS);
            follower.connect(&client).await.expect("a stream");
            until_total(&mut follower, &mut total).await;
            follower
        })
    });
    let restless = tokio::spawn(restless(clients.clone(), stop.subscribe()));

    let mut expected: BTreeMap<Topic, Vec<u64>> = BTreeMap::new();
    for publisher in publishers {
        let stored = tokio::time::timeout(WHOLE, publisher).await.expect("in time").expect("published");
        for (topic, id) in stored {
            expected.entry(topic).or_default().push(id);
        }
    }
    for ids in expected.values_mut() {
        ids.sort_unstable();
        ids.dedup();
    }
    done.store(true, Ordering::Relaxed);
    stop.send_replace(expected.values().map(Vec::len).sum());
    stopped.mark_unchanged();
    for follower in steady {
        let follower = tokio::time::timeout(WHOLE, follower).await.expect("in time").expect("complete");
        assert_eq!(*follower.received(), expected);
    }
    let follower = tokio::time::timeout(WHOLE, restless).await.expect("in time").expect("complete");
    assert_eq!(*follower.received(), expected);
    for (topic, ids) in &expected {
        assert_eq!(clients[0].all(*topic).await, *ids);
    }
    for disturber in disturbers {
        disturber.await.expect("no panic");
    }
    for instance in instances {
        instance.stop().await;
    }
}

/// Steps until the total is known and reached.
async fn until_total(follower: &mut Follower, total: &mut tokio::sync::watch::Receiver<usize>) {
    loop {
        let known = *total.borrow_and_update();
        if known > 0 && follower.count() >= known {
            return;
        }
        tokio::select! {
            stepped = follower.step() => stepped.expect("a healthy stream"),
            changed = total.changed() => changed.expect("the test goes on"),
        }
    }
}

/// Goes from one instance to the other every few frames.
async fn restless(clients: [Client; 2], mut total: tokio::sync::watch::Receiver<usize>) -> Follower {
    let mut follower = Follower::of(0..TOPICS);
    for turn in 0.. {
        follower.connect(&clients[turn % 2]).await.expect("a stream");
        for _ in 0..3 {
            let known = *total.borrow_and_update();
            if known > 0 && follower.count() >= known {
                return follower;
            }
            tokio::select! {
                stepped = follower.step() => stepped.expect("a healthy stream"),
                changed = total.changed() => changed.expect("the test goes on"),
            }
        }
        follower.disconnect();
    }
    follower
}

/// One topic's publish hangs on a lock; another topic's is published, read and delivered meanwhile.
///
/// Shows: STR-010, STR-011.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_topic_waits_for_anothers_transaction() {
    let server = Postgres::shared();
    let url = server.url(&server.create_database());
    let instance: Running = start_on(&url).await;
    let client = instance.client().await;
    let before = client.put_one(welcome(1, b"before")).await;
    let mut conn = PgConnection::connect(&url).await.expect("connected");
    sqlx::raw_sql("BEGIN; SELECT nextval('backend_ids')").execute(&mut conn).await.expect("an id");
    sqlx::query("SELECT FROM backend_heads WHERE topic = $1 FOR UPDATE")
        .bind(welcome_topic(1).to_bytes())
        .execute(&mut conn)
        .await
        .expect("a lock");
    // More publishes than the instance has connections; all of them wait for the one topic.
    let held: Vec<_> = (0..40_u8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.put_one(welcome(1, &[number])).await })
        })
        .collect();
    let mut follower = Follower::of(1..3);
    follower.connect(&client).await.expect("a stream");
    let mut others = Vec::new();
    for round in 0..20 {
        others.push(client.put_one(welcome(2, format!("{round}").as_bytes())).await);
    }
    crate::fixture::soon("the other topic", follower.receive(async || client.clone(), 21)).await;
    assert!(held.iter().all(|held| !held.is_finished()));
    assert_eq!(client.all(welcome_topic(2)).await, others, "reads don't wait either");
    assert_eq!(follower.received()[&welcome_topic(2)], others);
    assert_eq!(follower.received()[&welcome_topic(1)], [before]);
    sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.expect("rolled back");
    let mut expected = vec![before];
    for held in held {
        expected.push(held.await.expect("published"));
    }
    expected.sort_unstable();
    crate::fixture::soon("the held ones", follower.receive(async || client.clone(), 61)).await;
    assert_eq!(follower.received()[&welcome_topic(1)], expected);
    instance.stop().await;
}
