use super::support::*;
use crate::*;

/// Shows: STR-071.
#[tokio::test]
async fn a_group_lives_through_add_talk_remove_and_rejoin_with_a_reload_between_all_steps() {
    let mut pair = Pair::new().await;
    let hello = pair.a.encrypt(pair.group, "hello").await;
    let expected = Got::Text(pair.a.member(), "hello".into());
    assert_eq!(pair.bob_reads(&hello).await, expected);
    let answer = pair.b.encrypt(pair.group, "hi").await;
    let at = pair.world.next_id();
    let got = pair.a.read(&pair.world, pair.group, at, &answer).await;
    assert_eq!(got, Got::Text(pair.b.member(), "hi".into()));
    pair.agree().await;

    let (carol, c) = pair.add_carol().await;
    let from_carol = c.encrypt(pair.group, "it's me").await;
    let expected = Got::Text(c.member(), "it's me".into());
    assert_eq!(pair.bob_reads(&from_carol).await, expected);

    let change = removing(&carol, &[&c]);
    let (at, removal) = pair.a.change(&mut pair.world, pair.group, change).await;
    assert_eq!(pair.b.read(&pair.world, pair.group, at, &removal.data).await, Got::Merged);
    assert_eq!(c.read(&pair.world, pair.group, at, &removal.data).await, Got::Removed);
    assert!(!c.view(pair.group, Trial::is_active).await);
    let late = pair.a.encrypt(pair.group, "without Carol").await;
    let at = pair.world.next_id();
    let got = c.read(&pair.world, pair.group, at, &late).await;
    assert_eq!(got, Got::Failed(InputFailure::Evicted));

    let change = adding(&[&carol], &[&c]).await;
    let (at, again) = pair.a.change(&mut pair.world, pair.group, change).await;
    assert_eq!(pair.b.read(&pair.world, pair.group, at, &again.data).await, Got::Merged);
    c.join(&mut pair.world, &again, at).await;
    let back = pair.a.encrypt(pair.group, "welcome back").await;
    let at = pair.world.next_id();
    let got = c.read(&pair.world, pair.group, at, &back).await;
    assert_eq!(got, Got::Text(pair.a.member(), "welcome back".into()));
    pair.agree().await;
    for client in [&pair.a, &pair.b, &c] {
        client.audit().await;
    }
}

/// Shows: STR-071, STR-077, PROC-008.
#[tokio::test]
async fn a_message_that_fails_leaves_no_trace_and_the_original_still_works() {
    let mut pair = Pair::new().await;
    let original = pair.a.encrypt(pair.group, "once").await;
    let mut tampered = original.clone();
    *tampered.last_mut().unwrap() ^= 1;
    let before = pair.b.rows().await;
    let got = pair.bob_reads(&tampered).await;
    assert_eq!(got, Got::Failed(InputFailure::Authentication));
    assert_eq!(pair.b.rows().await, before);
    let expected = Got::Text(pair.a.member(), "once".into());
    assert_eq!(pair.bob_reads(&original).await, expected);
    assert_ne!(pair.b.rows().await, before);
}

/// Shows: STR-071, STR-077.
#[tokio::test]
async fn a_dropped_attempt_leaves_no_trace() {
    let mut pair = Pair::new().await;
    let message = pair.a.encrypt(pair.group, "once").await;
    let rename = pair.a.commit(pair.group, Change::Name("new".into())).await.unwrap();
    let before = pair.b.rows().await;
    let group = pair.group;
    for data in [message.clone(), rename.data] {
        let abandoned: Result<(), MlsError> = write(pair.b.fixture.store(), move |tx| {
            Box::pin(async move {
                let mut trial = Trial::load(tx, group).await?.unwrap();
                let input = trial.process(&data).unwrap();
                if let Input::Commit(staged) = input {
                    trial.merge(staged, highwater_wire::SequenceId::MAX)?;
                }
                trial.store(tx).await?;
                Err(MlsError::CommitPending)
            })
        })
        .await;
        assert!(abandoned.is_err());
        assert_eq!(pair.b.rows().await, before);
    }
    let expected = Got::Text(pair.a.member(), "once".into());
    assert_eq!(pair.bob_reads(&message).await, expected);
}

/// One failed message in the middle of a batch undoes itself and nothing else, though the secrets of the messages
/// before it were not written down yet.
///
/// Shows: STR-071, PROC-008.
#[tokio::test]
async fn a_rollback_in_a_batch_undoes_only_the_last_message() {
    let pair = Pair::new().await;
    let mut messages = Vec::new();
    for number in 0..6 {
        messages.push(pair.a.encrypt(pair.group, &number.to_string()).await);
    }
    let batch = messages.clone();
    pair.b
        .attempt(pair.group, move |trial| {
            for data in &batch[..3] {
                trial.mark()?;
                assert!(matches!(trial.process(data), Ok(Input::Application { .. })));
            }
            // A success that is taken back, as when its effects can't be stored.
            trial.mark()?;
            assert!(matches!(trial.process(&batch[3]), Ok(Input::Application { .. })));
            trial.rollback_to_mark()?;
            trial.mark()?;
            assert_eq!(trial.process(&batch[2]).unwrap_err(), InputFailure::SecretReused);
            trial.rollback_to_mark()?;
            for data in &batch[3..5] {
                trial.mark()?;
                assert!(matches!(trial.process(data), Ok(Input::Application { .. })));
            }
            Ok(())
        })
        .await
        .unwrap();
    let (used, unused) = (messages[4].clone(), messages[5].clone());
    pair.b
        .attempt(pair.group, move |trial| {
            assert_eq!(trial.process(&used).unwrap_err(), InputFailure::SecretReused);
            assert!(matches!(trial.process(&unused), Ok(Input::Application { .. })));
            Ok(())
        })
        .await
        .unwrap();
}

/// A commit between messages of one batch, and its rollback.
///
/// Shows: STR-071.
#[tokio::test]
async fn a_commit_in_a_batch_can_be_rolled_back_to_the_messages_before_it() {
    let mut pair = Pair::new().await;
    let before = pair.a.encrypt(pair.group, "before").await;
    let (at, rename) = pair.a.change(&mut pair.world, pair.group, Change::Name("n".into())).await;
    let after = pair.a.encrypt(pair.group, "after").await;
    pair.b
        .attempt(pair.group, move |trial| {
            trial.mark()?;
            trial.process(&before).unwrap();
            for _ in 0..2 {
                trial.mark()?;
                let Ok(Input::Commit(staged)) = trial.process(&rename.data) else { panic!() };
                trial.merge(staged, at)?;
                assert_eq!(trial.components()?.name, "n");
                assert!(matches!(trial.process(&after), Ok(Input::Application { .. })));
                trial.rollback_to_mark()?;
                assert_eq!(trial.components()?.name, "");
                trial.mark()?;
                assert_eq!(trial.process(&before).unwrap_err(), InputFailure::SecretReused);
                trial.rollback_to_mark()?;
            }
            trial.mark()?;
            let Ok(Input::Commit(staged)) = trial.process(&rename.data) else { panic!() };
            trial.merge(staged, at)?;
            trial.mark()?;
            trial.process(&after).unwrap();
            Ok(())
        })
        .await
        .unwrap();
    pair.agree().await;
    pair.b.audit().await;
}

/// A message of an epoch that ended is its sender's, though someone else sits in the leaf by now.
#[tokio::test]
async fn a_late_message_is_attributed_to_who_sent_it() {
    let mut pair = Pair::new().await;
    let (carol, c) = pair.add_carol().await;
    let late = c.encrypt(pair.group, "late").await;
    let change = removing(&carol, &[&c]);
    let (at, removal) = pair.a.change(&mut pair.world, pair.group, change).await;
    assert_eq!(pair.b.read(&pair.world, pair.group, at, &removal.data).await, Got::Merged);
    let mut dave = Person::new();
    let d = dave.client(&mut pair.world).await;
    let change = adding(&[&dave], &[&d]).await;
    let (at, added) = pair.a.change(&mut pair.world, pair.group, change).await;
    assert_eq!(pair.b.read(&pair.world, pair.group, at, &added.data).await, Got::Merged);
    assert_eq!(pair.bob_reads(&late).await, Got::Text(c.member(), "late".into()));
}

/// Shows: STR-070.
#[tokio::test]
async fn state_survives_a_restart() {
    let mut pair = Pair::new().await;
    let message = pair.a.encrypt(pair.group, "before the restart").await;
    pair.b.fixture.reopen().await;
    let expected = Got::Text(pair.a.member(), "before the restart".into());
    assert_eq!(pair.bob_reads(&message).await, expected);
}

#[tokio::test]
async fn the_outline_follows_the_group() {
    let mut pair = Pair::new().await;
    let group = pair.group;
    pair.a.change(&mut pair.world, group, Change::Update).await;
    let outline = write(pair.a.fixture.store(), move |tx| {
        Box::pin(async move {
            assert_eq!(groups(tx).await?.len(), 1);
            assert_eq!(epoch(tx, group).await?, Some(2));
            group_state(tx, group).await
        })
    })
    .await
    .unwrap();
    assert_eq!(outline, Some(GroupState { epoch: 2, join_epoch: 0, active: true }));
    write(pair.a.fixture.store(), move |tx| Box::pin(delete_group(tx, group))).await.unwrap();
    let gone = write(pair.a.fixture.store(), move |tx| {
        Box::pin(async move { Ok(Trial::load(tx, group).await?.is_none()) })
    });
    assert!(gone.await.unwrap());
    pair.a.audit().await;
}

#[tokio::test]
async fn a_group_is_created_once() {
    let pair = Pair::new().await;
    let (group, creator) = (pair.group, pair.alice.inbox);
    let again = write(pair.a.fixture.store(), move |tx| {
        Box::pin(async move { Trial::create(tx, group, group_of(creator)).await.map(drop) })
    });
    assert!(matches!(again.await, Err(MlsError::GroupExists)));
}

#[tokio::test]
async fn a_trial_may_move_between_threads() {
    fn movable<T: Send + Sync>() {}
    movable::<Trial>();
    movable::<StagedCommit>();
    movable::<StagedJoin>();
}
