use std::collections::BTreeSet;

use highwater_outbox::ChangeRequest;
use highwater_tests::{Peer, RawCommit};
use highwater_wire::Topic;

use super::{Codes, Scene, verdict};

pub(super) const CODES: Codes = &["secrets_discarded", "future_epoch", "past_epoch"];

/// Shows: PROC-011, STR-074, REVIEW-FUTURE-EPOCH.
#[tokio::test]
async fn a_message_lives_three_epochs_longer_than_its_own_and_a_commit_not_at_all() {
    let mut scene = Scene::new().await;
    let texts: Vec<_> = (0..5).map(|n| scene.mallory.say(&format!("{n} epochs later"))).collect();
    for (epochs, text) in texts.into_iter().enumerate() {
        if epochs > 0 {
            let commit = scene.mallory.advance(RawCommit::default());
            assert_eq!(scene.judge(commit).await, "applied");
        }
        let expected = if epochs <= 3 { "applied" } else { "secrets_discarded" };
        assert_eq!(scene.judge(text).await, expected, "{epochs} epochs later");
    }
    assert_eq!(scene.alice.texts(scene.group).await.len(), 4);

    // Two commits of one epoch: the second is too late, whoever made it.
    let loser = scene.mallory.commit(RawCommit::default());
    let winner = scene.mallory.advance(RawCommit::default());
    assert_eq!(scene.judge(winner.clone()).await, "applied");
    assert_eq!(scene.judge(loser).await, "past_epoch");
    assert_eq!(scene.judge(winner).await, "past_epoch");

    // An epoch that the prefix doesn't lead to, until its commit arrives after all.
    let missing = scene.mallory.advance(RawCommit::default());
    let ahead = scene.mallory.say("ahead");
    assert_eq!(scene.judge(ahead.clone()).await, "future_epoch");
    let commit_ahead = scene.mallory.commit(RawCommit::default());
    assert_eq!(scene.judge(commit_ahead).await, "future_epoch");
    assert_eq!(scene.judge(missing).await, "applied");
    assert_eq!(scene.judge(ahead).await, "applied");
    scene.end(CODES).await;
}

pub(super) const BEFORE_JOIN: Codes = &["before_join"];

/// Shows: PROC-011, STR-074.
#[tokio::test]
async fn what_precedes_the_join_is_not_for_the_joiner() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    let early = [scene.mallory.say("early"), scene.mallory.commit(RawCommit::default())];
    let bo = Peer::new(&mut scene.world).await;
    let add = ChangeRequest::AddMembers(BTreeSet::from([bo.inbox]));
    scene.alice.change(&mut scene.world, group, add).await;
    scene.alice.catch_up(&scene.world, group).await;
    scene.alice.publish_welcomes(&mut scene.world).await;
    assert_eq!(bo.join(&scene.world).await.len(), 1);
    let mut codes = BTreeSet::new();
    for data in early {
        let at = scene.world.publish_data(group, data);
        let report = bo.catch_up(&scene.world, group).await;
        codes.insert(verdict(&bo, Topic::group(group), at, report).await);
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), BEFORE_JOIN);
    bo.audit().await;
}
