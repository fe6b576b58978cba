use std::collections::BTreeMap;
use std::time::Duration;

use highwater_mls::Resolutions;
use highwater_processing::{Action, Event, Scheduler};
use highwater_tests::{Peer, World};
use highwater_wire::proto::backend::ClientEnvelope;
use highwater_wire::{InboxId, SequenceId, Topic};

/// Carries out attempts until the scheduler has nothing to do now. Returns which topics got a turn.
async fn turns(peer: &Peer, scheduler: &mut Scheduler, event: Event, now: Duration) -> Vec<Topic> {
    let mut turns = Vec::new();
    let mut actions = scheduler.on(now, event);
    loop {
        let attempts: Vec<_> = actions
            .into_iter()
            .filter_map(|action| match action {
                Action::Attempt(topics) => Some(topics),
                Action::Resolve(..) => None,
            })
            .collect();
        let [topics] = &attempts[..] else {
            assert!(attempts.is_empty(), "one attempt at a time");
            return turns;
        };
        turns.extend_from_slice(topics);
        let attempt =
            highwater_processing::attempt_together(&peer.store, topics.clone(), Resolutions::default());
        let reports = attempt.await.unwrap().into_iter();
        let stops = reports.map(|(topic, report)| (topic, report.stop)).collect();
        actions = scheduler.on(now, Event::Attempted(stops));
    }
}

/// Two hundred topics whose heads can't be settled cost a ready one nothing.
///
/// Shows: PROC-013, STR-072.
#[tokio::test]
async fn held_topics_do_not_keep_a_ready_one_from_its_turn() {
    let mut world = World::new();
    let alice = Peer::new(&mut world).await;
    let bo = Peer::new(&mut world).await;
    let groups = [alice.create_group(&mut world, &[&bo]).await, alice.create_group(&mut world, &[&bo]).await];
    bo.join(&world).await;
    let mut heads = BTreeMap::new();
    for n in 0..200 {
        let topic = Topic::identity(InboxId::from_bytes([n; 32]));
        let at = world.publish_on(topic, ClientEnvelope::default());
        bo.receive(&world, topic).await;
        heads.insert(topic, at);
    }
    let mut scheduler = Scheduler::default();
    let now = Duration::from_secs(1);
    let pending = |heads: &BTreeMap<Topic, SequenceId>| {
        Event::Pending(heads.iter().map(|(topic, head)| (*topic, *head)).collect())
    };
    assert_eq!(turns(&bo, &mut scheduler, pending(&heads), now).await.len(), 200, "each gets one turn");
    for round in 0..3 {
        for group in groups {
            let text = format!("{round}");
            let (_, _) = alice.send(&mut world, group, &text).await;
            bo.receive(&world, Topic::group(group)).await;
            let head = bo.pending(Topic::group(group)).await[0];
            heads.insert(Topic::group(group), head);
        }
        // The held ones are in the news too, as a look at the database finds them.
        let given = turns(&bo, &mut scheduler, pending(&heads), now).await;
        assert_eq!(given.len(), 2, "no turn is spent on a held topic");
        for group in groups {
            assert_eq!(bo.texts(group).await.len(), round + 1);
            heads.remove(&Topic::group(group));
        }
    }
    bo.audit().await;
}
