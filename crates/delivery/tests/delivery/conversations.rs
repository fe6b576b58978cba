use highwater_delivery::{
    Consent, Conversation, ConversationKind, ConversationState, DeliveryError, conversations,
    discovered_through, dms_with, set_name, set_state,
};
use highwater_wire::{Cursor, GroupId, InboxId, SequenceId};

use crate::support::*;

/// A rejoin, or the activation of a restored conversation, keeps what the person said.
#[tokio::test]
async fn storing_a_conversation_again_keeps_consent_and_beginning() {
    let fixture = store().await;
    let store = fixture.store();
    consent(store, A, Consent::Denied).await;
    let again = Conversation {
        name: Some("new".into()),
        state: ConversationState::Inactive,
        created_ns: 999,
        discovered_by: SequenceId::try_from(5_u64).ok(),
        ..conversation(A)
    };
    put(store, again.clone()).await;
    put(store, Conversation { discovered_by: None, ..again.clone() }).await;
    let all: Vec<_> = store
        .read::<_, DeliveryError, _>("all", |tx| Box::pin(async move { conversations(tx).await }))
        .await
        .unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0], Conversation { consent: Consent::Denied, created_ns: 1, ..again });
}

#[tokio::test]
async fn changing_a_conversation_that_is_not_there_is_an_error() {
    let fixture = store().await;
    let unknown = GroupId::from_bytes([0xee; 16]);
    let store = fixture.store();
    let state: Result<(), DeliveryError> = store
        .write("state", move |tx| {
            Box::pin(async move { set_state(tx, unknown, ConversationState::Active).await })
        })
        .await;
    assert!(matches!(state, Err(DeliveryError::UnknownConversation(group)) if group == unknown));
    let name: Result<(), DeliveryError> =
        store.write("name", move |tx| Box::pin(async move { set_name(tx, unknown, None).await })).await;
    assert!(matches!(name, Err(DeliveryError::UnknownConversation(_))));
}

/// Both people may have started one: all are kept, the one in use comes first.
#[tokio::test]
async fn the_most_recently_active_dm_with_a_peer_comes_first() {
    let fixture = store().await;
    let store = fixture.store();
    let peer = InboxId::from_bytes([9; 32]);
    let second = GroupId::from_bytes([0xdd; 16]);
    let kind = ConversationKind::Dm { peer };
    put(store, Conversation { kind, ..conversation(second) }).await;
    let order = async || -> Vec<GroupId> {
        let found: Result<Vec<_>, DeliveryError> =
            store.read("dms", move |tx| Box::pin(async move { dms_with(tx, peer).await })).await;
        found.unwrap().iter().map(|found| found.group).collect()
    };
    arrive(store, &[(D, "d")]).await;
    assert_eq!(order().await, [D, second]);
    arrive(store, &[(second, "s")]).await;
    assert_eq!(order().await, [second, D]);
}

#[tokio::test]
async fn discovery_is_found_by_the_welcomes_that_made_it() {
    let fixture = store().await;
    let store = fixture.store();
    for (group, welcome) in [(A, 30_u64), (B, 10), (C, 20)] {
        let discovered_by = SequenceId::try_from(welcome).ok();
        put(store, Conversation { discovered_by, ..conversation(group) }).await;
    }
    let through = Cursor::try_from(20_u64).unwrap();
    let found: Result<Vec<_>, DeliveryError> =
        store.read("found", move |tx| Box::pin(async move { discovered_through(tx, through).await })).await;
    let groups: Vec<_> = found.unwrap().into_iter().map(|(group, id)| (group, id.get())).collect();
    assert_eq!(groups, [(B, 10), (C, 20)]);
}
