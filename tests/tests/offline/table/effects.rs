use highwater_mls::Change;
use highwater_tests::{Peer, deletion_of, text_content};
use highwater_wire::MessageId;

use super::Scene;

async fn deleted(peer: &Peer, id: MessageId) -> bool {
    let stored =
        peer.write(move |tx| Box::pin(async move { highwater_delivery::message(tx, id).await })).await;
    stored.unwrap().deleted
}

/// An id follows from what is said, so a deletion can name a message that isn't there yet. Two clients that process the
/// same topic in other runs show the same history.
///
/// Shows: PROC-037.
#[tokio::test]
async fn a_deletion_does_what_the_order_says_however_the_topic_is_cut() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    scene.carol.join(&scene.world).await;
    let id = |text: &str| MessageId::derive(group, text, &text_content(text));
    let early = scene.mallory.say_content("early deletion", deletion_of(id("behind")));
    let said = ["behind", "before", "alice's to delete"].map(|text| scene.mallory.say(text));
    let deletion = scene.mallory.say_content("deletion", deletion_of(id("before")));
    let mut ids = vec![scene.world.publish_data(group, early)];
    for data in said.into_iter().chain([deletion]) {
        ids.push(scene.world.publish_data(group, data));
    }
    // Alice's own deletion, of a message that her client has not read yet, takes effect with its echo.
    let content = deletion_of(id("alice's to delete"));
    scene
        .alice
        .write(move |tx| {
            Box::pin(async move { highwater_outbox::queue_message(tx, group, content, None).await })
        })
        .await;
    scene.alice.drain(&mut scene.world, group).await;
    // Alice in one run, Carol one envelope at a time.
    let report = scene.alice.catch_up(&scene.world, group).await;
    assert_eq!(report.applied, 6);
    for at in ids {
        scene.carol.receive_through(&scene.world, scene.topic(), at.into()).await;
        assert_eq!(scene.carol.process(scene.topic()).await.applied, 1);
    }
    assert!(!deleted(&scene.carol, id("alice's to delete")).await, "not before the deletion is processed");
    scene.carol.catch_up(&scene.world, group).await;
    for peer in [&scene.alice, &scene.carol] {
        assert!(!deleted(peer, id("behind")).await);
        assert!(deleted(peer, id("before")).await);
        assert!(deleted(peer, id("alice's to delete")).await);
        peer.audit().await;
    }
}

/// The settings in force where a message is processed decide when it disappears: in the run that changes them, and for
/// an own message where its echo stands.
///
/// Shows: PROC-008.
#[tokio::test]
async fn a_message_gets_its_deadline_from_the_settings_at_its_place() {
    const WITHIN: i64 = 1_000_000_000_000_000_000;
    let mut scene = Scene::new().await;
    let group = scene.group;
    scene.carol.join(&scene.world).await;
    scene.carol.queue(group, "carol's").await;
    let own = scene.carol.prepare(&scene.world, group).await;
    let before = scene.mallory.say("before");
    scene.world.publish_data(group, before);
    let on = Change::Disappearing { from: Some(0), within: Some(WITHIN) };
    let commit = scene.alice_commits(on).await;
    scene.mallory.follow(&commit, &[]);
    let during = scene.mallory.say("during");
    scene.world.publish_data(group, during);
    scene.world.publish(&own[0]);
    let off = Change::Disappearing { from: Some(0), within: Some(0) };
    let commit = scene.alice_commits(off).await;
    scene.mallory.follow(&commit, &[]);
    let after = scene.mallory.say("after");
    scene.world.publish_data(group, after);
    scene.carol.catch_up(&scene.world, group).await;
    assert_eq!(scene.carol.texts(group).await, ["before", "during", "carol's", "after"]);
    let messages = scene.carol.messages(group).await;
    let lives: Vec<_> = messages
        .iter()
        .filter(|message| message.kind == highwater_delivery::MessageKind::Application)
        .map(|message| message.expires_ns.map(|at| at - message.sent_ns))
        .collect();
    assert_eq!(lives, [None, Some(WITHIN), Some(WITHIN), None]);
    scene.carol.audit().await;
}
