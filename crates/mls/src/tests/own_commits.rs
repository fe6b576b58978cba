use super::support::*;
use crate::*;

#[tokio::test]
async fn an_own_commit_waits_through_reloads_and_is_applied_by_its_echo() {
    let mut pair = Pair::new().await;
    let prepared = pair.a.commit(pair.group, Change::Name("ours".into())).await.unwrap();
    pair.a.fixture.reopen().await;
    assert_eq!(pair.a.view(pair.group, Trial::epoch).await, 1);
    pair.a.audit().await;
    let echo = pair.world.next_id();
    assert_eq!(pair.a.read(&pair.world, pair.group, echo, &prepared.data).await, Got::Own);
    let facts = pair.a.echo(&pair.world, pair.group, echo).await.unwrap();
    assert_eq!((facts.before.name.as_str(), facts.after.name.as_str()), ("", "ours"));
    assert_eq!(facts.committer, pair.a.member());
    assert_eq!(pair.b.read(&pair.world, pair.group, echo, &prepared.data).await, Got::Merged);
    pair.agree().await;
}

/// A message can be sent while a commit waits.
#[tokio::test]
async fn messages_flow_in_the_old_epoch_while_a_commit_waits() {
    let mut pair = Pair::new().await;
    let prepared = pair.a.commit(pair.group, Change::Update).await.unwrap();
    let text = pair.a.encrypt(pair.group, "meanwhile").await;
    assert_eq!(pair.bob_reads(&text).await, Got::Text(pair.a.member(), "meanwhile".into()));
    let echo = pair.world.next_id();
    pair.a.echo(&pair.world, pair.group, echo).await.unwrap();
    assert_eq!(pair.bob_reads(&prepared.data).await, Got::Merged);
    pair.agree().await;
}

#[tokio::test]
async fn the_commit_of_another_wins_the_epoch_and_clears_ours() {
    let mut pair = Pair::new().await;
    let loser = pair.a.commit(pair.group, Change::Name("loser".into())).await.unwrap();
    let (at, winner) = pair.b.change(&mut pair.world, pair.group, Change::Name("winner".into())).await;
    assert_eq!(pair.a.read(&pair.world, pair.group, at, &winner.data).await, Got::Merged);
    let pending = pair.a.view(pair.group, |trial| trial.own_pending_commit().unwrap().is_some());
    assert!(!pending.await);
    assert_eq!(pair.bob_reads(&loser.data).await, Got::Failed(InputFailure::PastEpoch));
    pair.agree().await;
    pair.a.change(&mut pair.world, pair.group, Change::Name("again".into())).await;
}

#[tokio::test]
async fn a_second_commit_waits_for_the_first_or_its_end() {
    let pair = Pair::new().await;
    pair.a.commit(pair.group, Change::Name("one".into())).await.unwrap();
    let second = pair.a.commit(pair.group, Change::Name("two".into())).await;
    assert!(matches!(&second, Err(error @ MlsError::CommitPending) if error.is_retryable()));
    pair.a.attempt(pair.group, Trial::clear_pending_commit).await.unwrap();
    pair.a.commit(pair.group, Change::Name("two".into())).await.unwrap();
}

/// An own commit meets the same rules as anyone's when it is read back.
#[tokio::test]
async fn an_own_commit_can_be_refused_at_its_place() {
    let mut pair = Pair::new().await;
    let (mut carol, mut world) = (Person::new(), World::new());
    let c = carol.client(&mut world).await;
    let change = adding(&[&carol], &[&c]).await;
    pair.a.commit(pair.group, change).await.unwrap();
    // Nobody knows Carol's identity here, and her entry isn't before a commit at this place.
    let first = highwater_wire::SequenceId::MIN;
    let refused = pair.a.echo(&pair.world, pair.group, first).await.unwrap_err();
    assert_eq!(refused, PolicyViolation::EntryNotBefore.into());
    let pending = pair.a.view(pair.group, |trial| trial.own_pending_commit().unwrap().is_some());
    assert!(!pending.await);
    pair.a.change(&mut pair.world, pair.group, Change::Update).await;
}

#[tokio::test]
async fn a_change_the_rules_forbid_is_refused_before_it_is_made() {
    let pair = Pair::new().await;
    let before = pair.b.rows().await;
    let mut admins = std::collections::BTreeSet::new();
    admins.insert(pair.bob.inbox);
    let changes = [
        Change::Admins { admins: admins.clone(), super_admins: admins },
        Change::Name("n".repeat(MAX_NAME_BYTES + 1)),
        Change::Description("d".repeat(MAX_DESCRIPTION_BYTES + 1)),
        removing(&pair.alice, &[&pair.a]),
        Change::Disappearing { from: Some(1), within: Some(1) },
        Change::MinimumVersion("not a version".into()),
    ];
    for change in changes {
        let refused = pair.b.commit(pair.group, change).await;
        assert!(matches!(refused, Err(MlsError::InvalidChange(_))), "{refused:?}");
    }
    assert_eq!(pair.b.rows().await, before);
}

#[tokio::test]
async fn every_change_reaches_the_other_side_with_its_transcript() {
    let mut pair = Pair::new().await;
    let both = std::collections::BTreeSet::from([pair.alice.inbox, pair.bob.inbox]);
    let changes = [
        Change::Name("name".into()),
        Change::Description("text".into()),
        Change::Disappearing { from: Some(5), within: Some(7) },
        Change::Admins { admins: both.clone(), super_admins: both },
        Change::Update,
        Change::Name(String::new()),
    ];
    let mut transcripts = Vec::new();
    for change in changes {
        let prepared = pair.a.commit(pair.group, change).await.unwrap();
        let at = pair.world.next_id();
        let facts = pair.a.echo(&pair.world, pair.group, at).await.unwrap();
        assert_eq!(pair.b.read(&pair.world, pair.group, at, &prepared.data).await, Got::Merged);
        pair.agree().await;
        transcripts.push(facts.group_updated());
    }
    let fields = |index: usize| {
        let changes = &transcripts[index].metadata_field_changes;
        changes.iter().map(|change| change.field_name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(fields(0), ["group_name"]);
    assert_eq!(fields(1), ["description"]);
    assert_eq!(fields(2), ["message_disappear_from_ns", "message_disappear_in_ns"]);
    assert_eq!(transcripts[3].added_admin_inboxes.len(), 2);
    assert_eq!(transcripts[3].added_super_admin_inboxes[0].inbox_id, pair.bob.inbox.to_string());
    assert_eq!(transcripts[5].metadata_field_changes[0].old_value.as_deref(), Some("name"));
    assert_eq!(transcripts[5].metadata_field_changes[0].new_value, None);
    let expiry = pair.b.view(pair.group, |trial| {
        let components = trial.components().unwrap();
        (components.expiry(4), components.expiry(5))
    });
    assert_eq!(expiry.await, (None, Some(12)));
}
