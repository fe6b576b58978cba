use highwater_outbox::{ChangeRequest, IntentId, Outcome};
use highwater_tests::{Foreign, RawCommit};
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{SequenceId, Topic};
use prost::Message as _;

use super::{Codes, Scene};

fn data(envelope: &[u8]) -> Vec<u8> {
    match ClientEnvelope::decode(envelope).unwrap().payload {
        Some(client_envelope::Payload::GroupMessage(message)) => message.data,
        other => panic!("{other:?}"),
    }
}

pub(super) const CODES: Codes = &["own_without_attempt", "own_already_handled"];

/// Shows: PROC-008, PROC-011, STR-074.
#[tokio::test]
async fn an_own_message_needs_an_attempt_that_is_still_open() {
    let mut scene = Scene::new().await;
    let unknown = scene.alice.encrypt(scene.group, b"of nobody's attempt").await;
    assert_eq!(scene.judge(unknown).await, "own_without_attempt");
    let (intent, _) = scene.alice.queue(scene.group, "mine").await;
    let prepared = scene.alice.prepare(&scene.world, scene.group).await;
    assert_eq!(scene.judge(data(&prepared[0])).await, "applied");
    assert_eq!(scene.judge(data(&prepared[0])).await, "own_already_handled");
    assert!(matches!(scene.alice.outcome(intent).await, Outcome::Confirmed { .. }));
    assert_eq!(scene.alice.texts(scene.group).await, ["mine"]);
    scene.end(CODES).await;
}

pub(super) const STALE: Codes = &["own_stale", "own_already_handled"];

/// Shows: PROC-011, STR-074, STR-111.
#[tokio::test]
async fn an_own_echo_applies_two_epochs_later_and_is_stale_after_three() {
    let mut scene = Scene::new().await;
    for epochs in 0..=4 {
        let (intent, _) = scene.alice.queue(scene.group, &format!("{epochs} epochs later")).await;
        let prepared = scene.alice.prepare(&scene.world, scene.group).await;
        for _ in 0..epochs {
            let commit = scene.mallory.advance(RawCommit::default());
            assert_eq!(scene.judge(commit).await, "applied");
        }
        let expected = if epochs <= 2 { "applied" } else { "own_stale" };
        assert_eq!(scene.judge(data(&prepared[0])).await, expected, "{epochs} epochs later");
        if epochs <= 2 {
            assert!(matches!(scene.alice.outcome(intent).await, Outcome::Confirmed { .. }));
            continue;
        }
        // It is made again under the same id; the stale bytes stay refused.
        assert_eq!(scene.alice.outcome(intent).await, Outcome::Queued);
        assert_eq!(scene.judge(data(&prepared[0])).await, "own_already_handled");
        let again = scene.alice.prepare(&scene.world, scene.group).await;
        assert_eq!(scene.judge(data(&again[0])).await, "applied");
    }
    assert_eq!(scene.alice.texts(scene.group).await.len(), 5);
    scene.end(STALE).await;
}

pub(super) const COMMITS: Codes = &["own_already_handled", "identity_not_before", "policy_foreign_leaf"];

/// An own commit meets the checks of anyone's. What it was prepared from can be wrong: a replica can be behind.
///
/// Shows: PROC-011, STR-074, STR-076.
#[tokio::test]
async fn an_own_commit_is_judged_where_it_is_read_back() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    // Another's commit won the epoch, which gave up the attempt; the change is made again.
    let rename = queue(&scene, ChangeRequest::SetName("a".into())).await;
    let prepared = scene.alice.prepare(&scene.world, group).await;
    let commit = scene.mallory.advance(RawCommit::default());
    assert_eq!(scene.judge(commit).await, "applied");
    assert_eq!(scene.alice.outcome(rename).await, Outcome::Queued);
    assert_eq!(scene.judge(data(&prepared[0])).await, "own_already_handled");
    let prepared = scene.alice.prepare(&scene.world, group).await;
    assert_eq!(scene.judge(data(&prepared[0])).await, "applied");
    assert!(matches!(scene.alice.outcome(rename).await, Outcome::Confirmed { .. }));
    scene.mallory.follow(&data(&prepared[0]), &[]);

    for (named, code) in [(Some(1 << 40), "identity_not_before"), (None, "policy_foreign_leaf")] {
        let guest = Foreign::new(&mut scene.world);
        let topic = Topic::identity(guest.inbox);
        scene.alice.receive(&scene.world, topic).await;
        scene.alice.process(topic).await;
        let (_, state) = scene.alice.identity(guest.inbox).await.unwrap();
        let revoked = guest.revoke(&mut scene.world, guest.installation);
        let named = named.map_or(revoked, |id: u64| SequenceId::try_from(id).unwrap());
        let intent = queue(&scene, ChangeRequest::AddMembers([guest.inbox].into())).await;
        let believed = [(guest.inbox, (named, state))].into();
        let prepared = scene.alice.prepare_believing(&scene.world, group, &believed).await;
        assert_eq!(scene.judge(data(&prepared[0])).await, code);
        let outcome = scene.alice.outcome(intent).await;
        assert!(matches!(&outcome, Outcome::Rejected { code: found } if found == code), "{outcome:?}");
    }
    scene.end(COMMITS).await;
}

async fn queue(scene: &Scene, change: ChangeRequest) -> IntentId {
    let group = scene.group;
    scene
        .alice
        .write(move |tx| Box::pin(async move { highwater_outbox::queue_change(tx, group, change).await }))
        .await
}
