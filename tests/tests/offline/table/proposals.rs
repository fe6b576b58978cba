use highwater_tests::RawCommit;
use openmls::prelude::{OpenMlsProvider as _, Propose};

use super::{Codes, Scene};

const NAME: u16 = 0x8004;

fn name(name: &str) -> Propose {
    Propose::UpdateAppDataComponent { component_id: NAME, update: name.into() }
}

fn taking_up(value: &str) -> RawCommit {
    RawCommit { take_up_stored: true, values: vec![(NAME, value.into())], ..RawCommit::default() }
}

fn forget(scene: &mut Scene) {
    let (group, provider, _) = scene.mallory.parts();
    group.clear_pending_proposals(provider.storage()).unwrap();
}

pub(super) const CODES: Codes = &["missing_proposal", "past_epoch", "secret_reused"];

/// A reference is judged by what the whole prefix of its epoch delivered: in an earlier attempt, in the commit's own,
/// once or twice, and not by what it delivered in an earlier epoch.
///
/// Shows: PROC-011, STR-074, REVIEW-MISSING-PROPOSAL.
#[tokio::test]
async fn a_commit_may_reference_what_its_epoch_delivered_and_nothing_else() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    // Never delivered.
    scene.mallory.propose(name("never delivered"));
    let commit = scene.mallory.commit(taking_up("never delivered"));
    assert_eq!(scene.judge(commit).await, "missing_proposal");
    forget(&mut scene);

    // Delivered, and another one that isn't; the same proposal twice is one proposal.
    let carol = scene.carol.installation;
    let leaf = scene.mallory.group().members().find(|leaf| leaf.signature_key == carol.as_bytes()).unwrap();
    let removal = || Propose::Remove(leaf.index.u32());
    let twice = [scene.mallory.propose(removal()), scene.mallory.propose(removal())];
    assert_ne!(twice[0], twice[1]);
    forget(&mut scene);
    for proposal in twice.clone() {
        assert_eq!(scene.judge(proposal).await, "applied");
    }
    assert_eq!(scene.judge(twice[0].clone()).await, "secret_reused");
    scene.mallory.propose(name("never delivered"));
    let commit = scene.mallory.commit(taking_up("never delivered"));
    assert_eq!(scene.judge(commit).await, "missing_proposal");
    forget(&mut scene);

    // The proposal and its commit in one attempt; a rejected envelope in between takes nothing away.
    let proposal = scene.mallory.propose(name("together"));
    let late = scene.mallory.propose(name("of an epoch that is over"));
    forget(&mut scene);
    let again = scene.mallory.propose(name("together"));
    let commit = scene.mallory.advance(taking_up("together"));
    scene.world.publish_data(group, proposal);
    scene.world.publish_data(group, vec![0, 1, 0, 2]);
    scene.world.publish_data(group, again);
    scene.world.publish_data(group, commit);
    let report = scene.alice.catch_up(&scene.world, group).await;
    assert_eq!((report.applied, report.rejected), (3, 1));
    let stored = scene.alice.conversation(group).await;
    assert_eq!(stored.name.as_deref(), Some("together"));

    // Their epoch is over.
    assert_eq!(scene.judge(late).await, "past_epoch");
    scene.end(CODES).await;
}

pub(super) const LOST: Codes = &["missing_state"];

/// The client had the proposal and lost it: nobody can tell whether the commit names it.
///
/// Shows: PROC-012, STR-074, REVIEW-MISSING-PROPOSAL.
#[tokio::test]
async fn a_commit_waits_where_a_delivered_proposal_was_lost() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    let text = scene.mallory.say("goes on");
    let proposal = scene.mallory.propose(name("lost"));
    assert_eq!(scene.judge(proposal).await, "applied");
    lose_proposals(&scene).await;
    // Messages and proposals aren't held up by it.
    let other = scene.mallory.propose(name("lost, and then this"));
    let commit = scene.mallory.advance(taking_up("lost, and then this"));
    assert_eq!(scene.judge(text).await, "applied");
    scene.world.publish_data(group, other);
    let at = scene.world.publish_data(group, commit);
    assert_eq!(scene.judge_at(at).await, "missing_state");
    scene.alice.restart().await;
    assert_eq!(scene.judge_at(at).await, "missing_state");
    scene.end_held(LOST).await;
}

async fn lose_proposals(scene: &Scene) {
    scene
        .alice
        .write(|tx| {
            Box::pin(async move {
                let lost = sqlx::query("DELETE FROM mls_values WHERE label = 'proposal'").execute(tx.conn());
                assert_eq!(lost.await?.rows_affected(), 1);
                Ok::<_, highwater_store::StoreError>(())
            })
        })
        .await;
}
