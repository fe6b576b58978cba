use highwater::{Client, Database, DatabaseKey, Error, LocalWallet};
use highwater_testkit::{Link, TestBackend, TestClient, assert_clean};

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_database_opens_without_a_signer_and_without_a_backend() {
    let mut backend = TestBackend::start().await;
    let mut alice = TestClient::new(&backend.url()).await;
    let (inbox, installation) = (alice.inbox_id(), alice.installation_id());
    backend.stop().await;
    alice.reopen().await;
    assert_eq!((alice.inbox_id(), alice.installation_id()), (inbox, installation));
    assert!(alice.groups().await.unwrap().is_empty());
    assert_clean(&alice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_database_that_was_never_made_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.db");
    let opened = Client::builder()
        .database(Database::file(&path, DatabaseKey::generate()))
        .backend("http://127.0.0.1:9")
        .open()
        .await;
    assert!(matches!(opened, Err(Error::Open(_))), "{opened:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_whose_reply_was_lost_is_finished_with_the_same_inbox() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let dir = tempfile::tempdir().unwrap();
    let (key, wallet) = (LocalWallet::generate().to_bytes(), LocalWallet::generate().to_bytes());
    let open = || {
        Client::builder()
            .database(Database::file(dir.path().join("client.db"), DatabaseKey::from_bytes(key)))
            .backend(link.url())
            .signer(LocalWallet::from_bytes(&wallet).unwrap())
            .open()
    };
    link.lose_replies();
    let cut_short = tokio::time::timeout(std::time::Duration::from_millis(500), open()).await;
    assert!(cut_short.is_err(), "nothing was answered, and yet it opened");
    link.restore();
    let client = open().await.unwrap();
    let inbox = client.inbox_id();
    assert_clean(&client).await;
    client.close().await;
    let again = open().await.unwrap();
    assert_eq!(again.inbox_id(), inbox);
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_wallet_is_refused_for_a_database_that_has_an_inbox() {
    let backend = TestBackend::start().await;
    let dir = tempfile::tempdir().unwrap();
    let key = LocalWallet::generate().to_bytes();
    let database = || Database::file(dir.path().join("client.db"), DatabaseKey::from_bytes(key));
    let first = Client::builder()
        .database(database())
        .backend("http://127.0.0.1:9")
        .signer(LocalWallet::generate())
        .open()
        .await;
    assert!(matches!(&first, Err(error) if error.is_retryable()), "{first:?}");
    // Nothing was signed yet, so the database is still free for any wallet.
    let wallet = LocalWallet::generate();
    let same = LocalWallet::from_bytes(&wallet.to_bytes()).unwrap();
    let client =
        Client::builder().database(database()).backend(backend.url()).signer(wallet).open().await.unwrap();
    let inbox = client.inbox_id();
    client.close().await;
    let client = Client::builder().database(database()).signer(same).open().await.unwrap();
    assert_eq!(client.inbox_id(), inbox);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_installations_of_one_wallet_share_its_inbox_even_when_they_register_at_once() {
    let backend = TestBackend::start().await;
    let dir = tempfile::tempdir().unwrap();
    let wallet = LocalWallet::generate().to_bytes();
    let open = |name: &str| {
        Client::builder()
            .database(Database::file(dir.path().join(name), DatabaseKey::generate()))
            .backend(backend.url())
            .signer(LocalWallet::from_bytes(&wallet).unwrap())
            .open()
    };
    let (one, two) = tokio::join!(open("one.db"), open("two.db"));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.inbox_id(), two.inbox_id());
    assert_ne!(one.installation_id(), two.installation_id());

    // Both are invited with the inbox, and both read.
    let bob = TestClient::new(&backend.url()).await;
    let group = bob.create_group([one.inbox_id()]).await.unwrap();
    group.send_text("to both").await.unwrap();
    for installation in [&one, &two] {
        installation.sync().await.unwrap();
        let page = installation.history().oldest_first().page().await.unwrap();
        assert_eq!(page.messages.last().unwrap().text().unwrap(), "to both");
        assert_clean(installation).await;
        installation.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_says_so() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let clone = Client::clone(&alice);
    clone.close().await;
    clone.close().await;
    assert!(alice.groups().await.is_err());
    assert!(matches!(alice.sync().await, Err(Error::Closed)));
}
