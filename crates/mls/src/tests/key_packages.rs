use std::time::Duration;

use super::support::*;
use crate::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn owed(client: &Client) -> bool {
    write(client.fixture.store(), |tx| Box::pin(key_package_owed(tx))).await.unwrap()
}

async fn prepare(client: &Client) -> PreparedKeyPackage {
    write(client.fixture.store(), |tx| Box::pin(prepare_key_package(tx))).await.unwrap()
}

async fn confirm(client: &Client, id: KeyPackageId) {
    write(client.fixture.store(), move |tx| Box::pin(key_package_published(tx, id))).await.unwrap();
}

async fn retire(client: &Client, welcomes_unresolved: bool) -> u64 {
    write(client.fixture.store(), move |tx| Box::pin(retire_key_packages(tx, welcomes_unresolved)))
        .await
        .unwrap()
}

#[tokio::test]
async fn the_same_bytes_are_offered_until_their_publish_is_confirmed() {
    let mut world = World::new();
    let mut client = Person::new().client(&mut world).await;
    assert!(owed(&client).await);
    let first = prepare(&client).await;
    client.fixture.reopen().await;
    let again = prepare(&client).await;
    assert_eq!((first.id, &first.envelope), (again.id, &again.envelope));
    assert!(owed(&client).await);
    confirm(&client, first.id).await;
    assert!(!owed(&client).await);
    let recipient = read_key_package(&key_package_bytes(&first.envelope), client.key, client.inbox).unwrap();
    assert!(recipient.pointers);
    client.audit().await;
}

#[tokio::test]
async fn a_package_is_replaced_at_half_its_life() {
    let mut world = World::new();
    let client = Person::new().client(&mut world).await;
    let first = prepare(&client).await;
    confirm(&client, first.id).await;
    client.fixture.clock().advance(DAY * 41);
    assert!(!owed(&client).await);
    client.fixture.clock().advance(DAY * 2);
    assert!(owed(&client).await);
    assert_ne!(prepare(&client).await.id, first.id);
}

#[tokio::test]
async fn superseded_keys_live_a_day_longer_and_as_long_as_welcomes_wait() {
    let mut world = World::new();
    let client = Person::new().client(&mut world).await;
    let first = prepare(&client).await;
    confirm(&client, first.id).await;
    client.fixture.clock().advance(DAY * 43);
    let second = prepare(&client).await;
    client.fixture.clock().advance(DAY * 2);
    assert_eq!(retire(&client, false).await, 0, "the replacement isn't confirmed");
    confirm(&client, second.id).await;
    confirm(&client, second.id).await;
    client.fixture.clock().advance(DAY - Duration::from_secs(1));
    assert_eq!(retire(&client, false).await, 0);
    client.fixture.clock().advance(Duration::from_secs(1));
    assert_eq!(retire(&client, true).await, 0);
    client.audit().await;
    assert_eq!(retire(&client, false).await, 1);
    assert_eq!(retire(&client, false).await, 0);
    assert!(!owed(&client).await);
    client.audit().await;
}

/// A failed or a finished join uses up no key: the package is last-resort, and its successor is owed.
#[tokio::test]
async fn a_join_makes_a_new_package_owed_and_leaves_the_old_one_working() {
    let mut pair = Pair::new().await;
    assert!(owed(&pair.b).await);
    // Alice may have looked up Bob's package before it was replaced.
    let second = group_id(2);
    pair.a.create(second, group_of(pair.alice.inbox)).await;
    let reused = write(pair.b.fixture.store(), |tx| {
        Box::pin(async move {
            use sqlx::Row as _;
            let row = sqlx::query("SELECT envelope FROM mls_key_packages").fetch_one(tx.conn()).await?;
            Ok(key_package_bytes(row.get(0)))
        })
    });
    let reused = reused.await.unwrap();
    let change = Change::Membership {
        upsert: [(pair.alice.inbox, pair.alice.entry()), (pair.bob.inbox, pair.bob.entry())].into(),
        remove: Default::default(),
        add_leaves: vec![reused],
        remove_leaves: Default::default(),
    };
    let (at, prepared) = pair.a.change(&mut pair.world, second, change).await;
    pair.b.join(&mut pair.world, &prepared, at).await;
    pair.b.audit().await;
}

#[tokio::test]
async fn what_is_no_usable_key_package_of_the_installation_is_refused() {
    let mut pair = Pair::new().await;
    let package = pair.b.key_package().await;
    read_key_package(&package, pair.b.key, pair.b.inbox).unwrap();
    for (bytes, key, inbox) in [
        (&package[..], pair.a.key, pair.b.inbox),
        (&package[..], pair.b.key, pair.a.inbox),
        (&package[..package.len() - 1], pair.b.key, pair.b.inbox),
        (&[][..], pair.b.key, pair.b.inbox),
    ] {
        let refused = read_key_package(bytes, key, inbox);
        assert!(matches!(refused, Err(MlsError::KeyPackage(_))), "{refused:?}");
    }
    let mut forged = package.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(read_key_package(&forged, pair.b.key, pair.b.inbox).is_err());
    // One that ended long ago, by the clock it was made with.
    let old = pair.bob.client(&mut pair.world).await;
    let long_ago = old.fixture.store().now_ns() - i64::try_from((DAY * 85).as_nanos()).unwrap();
    old.fixture.clock().set(long_ago);
    let expired = old.key_package().await;
    assert!(read_key_package(&expired, old.key, old.inbox).is_err());
}

#[tokio::test]
async fn an_installation_is_made_once_and_belongs_to_one_inbox() {
    let mut world = World::new();
    let client = Person::new().client(&mut world).await;
    let again = write(client.fixture.store(), |tx| Box::pin(create_installation(tx))).await.unwrap();
    assert_eq!(again.key, client.key);
    assert_eq!(again.inbox, Some(client.inbox));
    assert_eq!(again.registration.as_deref(), Some(&b"exact bytes"[..]));
    assert!(again.registered);
    let stranger = Person::new().inbox;
    let moved = write(client.fixture.store(), move |tx| {
        Box::pin(set_registration(tx, stranger, bytes::Bytes::new()))
    });
    assert!(matches!(moved.await, Err(MlsError::InvalidChange(_))));
    let fixture = highwater_testkit_base::StoreFixture::new(vec![MIGRATIONS]).await;
    let early = write(fixture.store(), |tx| Box::pin(prepare_key_package(tx))).await;
    assert!(matches!(early, Err(MlsError::NoInstallation)));
    write(fixture.store(), |tx| Box::pin(create_installation(tx))).await.unwrap();
    let early = write(fixture.store(), |tx| Box::pin(prepare_key_package(tx))).await;
    assert!(matches!(early, Err(MlsError::NoInbox)));
    let early = write(fixture.store(), |tx| Box::pin(registered(tx))).await;
    assert!(matches!(early, Err(MlsError::NoInbox)));
}
