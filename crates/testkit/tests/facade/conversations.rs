use highwater::{ConversationKind, ConversationState, Error, InboxId, Outcome};
use highwater_testkit::{TestBackend, TestClient, assert_clean};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_has_its_members_its_name_and_its_admin() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let created = alice.new_group().name("harbour").members([bob.inbox_id()]).create().await.unwrap();
    assert!(matches!(created.outcome, Outcome::Confirmed { .. }));
    bob.sync().await.unwrap();
    let group = bob.group(created.group.id()).await.unwrap();
    assert_eq!((group.name(), group.state()), (Some("harbour"), ConversationState::Active));
    assert_eq!(group.added_by(), Some(alice.inbox_id()));
    let members = group.members().await.unwrap();
    let admins: Vec<_> = members.iter().filter(|one| one.is_super_admin).map(|one| one.inbox_id).collect();
    assert_eq!((members.len(), admins), (2, vec![alice.inbox_id()]));

    let renamed = group.set_name("port").await.unwrap();
    assert!(matches!(renamed, Outcome::Confirmed { .. }), "{renamed:?}");
    alice.sync().await.unwrap();
    assert_eq!(alice.group(group.id()).await.unwrap().name(), Some("port"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dm_knows_its_peer_on_both_sides() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let dm = alice.create_dm(bob.inbox_id()).await.unwrap();
    bob.sync().await.unwrap();
    assert_eq!(dm.kind(), ConversationKind::Dm { peer: bob.inbox_id() });
    let theirs = bob.group(dm.id()).await.unwrap();
    assert_eq!(theirs.kind(), ConversationKind::Dm { peer: alice.inbox_id() });
    let added = dm.add_members([TestClient::new(&backend.url()).await.inbox_id()]).await;
    assert!(!matches!(added, Ok(Outcome::Confirmed { .. })), "a DM took in a third: {added:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_doesnt_exist_is_refused_before_anything_is_stored() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let nobody = InboxId::from_bytes([7; 32]);
    let refused = alice.create_group([nobody]).await;
    assert!(matches!(refused, Err(Error::UnknownInbox(inbox)) if inbox == nobody), "{refused:?}");
    assert!(alice.groups().await.unwrap().is_empty());
    let group = alice.create_group([]).await.unwrap();
    assert!(matches!(group.add_members([nobody]).await, Err(Error::UnknownInbox(_))));
    assert!(matches!(group.add_members([]).await, Err(Error::NoMembers)));
    let removed = group.remove_members([nobody]).await;
    assert!(matches!(removed, Err(Error::NotAMember { .. })), "{removed:?}");
    assert_eq!(alice.unsettled().await.unwrap(), 0);
}

/// Shows: STR-086.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_taken_out_reads_no_further_and_can_be_brought_back() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    group.send_text("with bob").await.unwrap();
    bob.sync().await.unwrap();
    group.remove_members([bob.inbox_id()]).await.unwrap();
    group.send_text("without bob").await.unwrap();
    bob.sync().await.unwrap();
    let theirs = bob.group(group.id()).await.unwrap();
    assert_eq!(theirs.state(), ConversationState::Inactive);
    assert!(theirs.send_text("let me in").await.is_err());
    let back = group.add_members([bob.inbox_id()]).await.unwrap();
    assert!(matches!(back, Outcome::Confirmed { .. }), "{back:?}");
    group.send_text("bob is back").await.unwrap();
    bob.sync().await.unwrap();
    let page = bob.history().oldest_first().page().await.unwrap();
    let texts: Vec<_> = page.messages.iter().filter_map(|one| one.text().ok()).collect();
    assert_eq!(texts, ["with bob", "bob is back"]);
    assert_clean(&bob).await;
}
