use highwater_mls::Change;
use highwater_sync::{Engine, EngineOptions};
use highwater_testkit::{TestBackend, eventually};
use highwater_tests::{Foreign, Outsider, ProcessReport, RawCommit, credential, raw};
use highwater_transport::{ConnectOptions, Connection};
use highwater_wire::SequenceId;
use openmls::prelude::{
    CustomProposal, ExternalInitProposal, Lifetime, OpenMlsProvider as _, PreSharedKeyProposal, Proposal,
    Propose,
};
use openmls::schedule::{ExternalPsk, PreSharedKeyId, Psk};
use tls_codec::Deserialize as _;

use super::{Codes, Scene, verdict};

pub(super) const CODES: Codes = &["invalid_commit", "psk_in_commit"];

/// Shows: PROC-011, STR-074.
#[tokio::test]
async fn a_commit_that_mls_refuses_is_rejected_and_one_with_a_pre_shared_key() {
    let mut scene = Scene::new().await;
    // The dictionary it signs isn't what its update says.
    let updates = vec![(0x8004, Some(b"said".to_vec()), Some(b"meant".to_vec()))];
    let data = scene.mallory.commit(RawCommit { updates, ..RawCommit::default() });
    assert_eq!(scene.judge(data).await, "invalid_commit");
    let psk = Proposal::PreSharedKey(Box::new(PreSharedKeyProposal::new(external_psk(&mut scene))));
    let data = scene.mallory.commit(RawCommit { proposals: vec![psk.clone()], ..RawCommit::default() });
    assert_eq!(scene.judge(data).await, "psk_in_commit");
    // Even along with what alone would be held.
    let context = Some(scene.mallory.group().extensions().clone());
    let both = RawCommit { proposals: vec![psk], context, ..RawCommit::default() };
    let data = scene.mallory.commit(both);
    assert_eq!(scene.judge(data).await, "psk_in_commit");
    scene.end(CODES).await;
}

fn external_psk(scene: &mut Scene) -> PreSharedKeyId {
    let (group, provider, _) = scene.mallory.parts();
    let psk = Psk::External(ExternalPsk::new(b"id".to_vec()));
    let psk = PreSharedKeyId::new(group.ciphersuite(), provider.rand(), psk).unwrap();
    psk.store(provider, b"secret").unwrap();
    psk
}

pub(super) const HELD: Codes = &["unsupported"];

/// What OpenMLS can make of the kinds that this version takes no part in. It has no way to make a standalone ReInit,
/// ExternalInit, SelfRemove or AppEphemeral proposal in a PrivateMessage; of a commit it drops a ReInit, and refuses an
/// AppEphemeral, SelfRemove or custom proposal as long as a member doesn't announce the kind. Those are mls's tests'.
///
/// Shows: PROC-012, STR-074.
#[tokio::test]
async fn a_kind_of_proposal_outside_the_profile_is_held_alone_and_in_a_commit() {
    for case in 0..6 {
        let mut scene = Scene::new().await;
        let context = scene.mallory.group().extensions().clone();
        let (kind, data) = match case {
            0 => ("group_context", scene.mallory.propose(Propose::GroupContextExtensions(context))),
            1 => {
                let psk = external_psk(&mut scene);
                ("psk", scene.mallory.propose(Propose::PreSharedKey(psk)))
            }
            2 => ("custom", scene.mallory.propose(Propose::Custom(CustomProposal::new(0xf100, vec![1])))),
            3 => {
                let context = Some(context);
                ("group_context", scene.mallory.commit(RawCommit { context, ..RawCommit::default() }))
            }
            4 => {
                let init = ExternalInitProposal::tls_deserialize_exact(raw::opaque(&[1; 32])).unwrap();
                let proposals = vec![Proposal::ExternalInit(Box::new(init))];
                ("external_init", scene.mallory.commit(RawCommit { proposals, ..RawCommit::default() }))
            }
            _ => {
                let updates = vec![(0x8123, Some(b"x".to_vec()), Some(b"x".to_vec()))];
                ("unknown component", scene.mallory.commit(RawCommit { updates, ..RawCommit::default() }))
            }
        };
        assert_eq!(scene.judge(data).await, "unsupported", "{kind}");
        let held = scene.alice.held(scene.topic()).await.unwrap();
        assert!(held.detail.contains(kind), "{} isn't {kind}", held.detail);
        assert!(!held.is_transient());
        scene.alice.restart().await;
        assert_eq!(scene.judge_at(held.sequence_id).await, "unsupported", "{kind}");
        scene.end_held(HELD).await;
    }
}

pub(super) const EXPIRED: Codes = &["unresolved"];

/// OpenMLS compares a key package's lifetime with the clock, and the clock is no evidence.
///
/// Shows: PROC-011, PROC-012, STR-074.
#[tokio::test]
async fn an_expired_key_package_holds_its_proposal_and_does_not_reject_it() {
    let mut scene = Scene::new().await;
    let guest = Foreign::new(&mut scene.world);
    let expired = guest.key_package_for(&credential(guest.inbox), Lifetime::init(1, 2));
    let data = scene.mallory.propose(Propose::Add(expired));
    assert_eq!(scene.judge(data).await, "unresolved");
    assert!(scene.alice.held(scene.topic()).await.unwrap().is_transient());
    scene.end_held(EXPIRED).await;
}

pub(super) const FLOOR: Codes = &["group_version"];

/// The commit that raises the floor above this version is held, and everything behind it.
///
/// Shows: PROC-012, STR-074.
#[tokio::test]
async fn a_floor_above_this_version_holds_the_group_from_that_commit_on() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    let (at, report) = raise_the_floor(&mut scene).await;
    assert_eq!([verdict(&scene.carol, scene.topic(), at, report).await.as_str()], FLOOR);
    assert_eq!(scene.carol.texts(group).await, ["before"]);
    scene.carol.restart().await;
    let again = scene.carol.catch_up(&scene.world, group).await;
    assert_eq!((again.applied, again.rejected), (0, 0));
    assert!(scene.carol.held(scene.topic()).await.unwrap().detail.contains("99.0.0"));
    scene.carol.audit().await;
}

/// Carol is at the commit that raises the floor of the group above its version.
async fn raise_the_floor(scene: &mut Scene) -> (SequenceId, ProcessReport) {
    let group = scene.group;
    scene.carol.join(&scene.world).await;
    let both = [scene.alice.inbox, scene.mallory.inbox];
    let data = scene.alice_commits(Change::Admins { admins: [].into(), super_admins: both.into() }).await;
    scene.mallory.follow(&data, &[(raw::SUPER_ADMINS, raw::set_of(both.to_vec()))]);
    let before = scene.mallory.say("before");
    scene.world.publish_data(group, before);
    let floor = Some(b"99.0.0".to_vec());
    let updates = vec![(0x800a, floor.clone(), floor)];
    let raise = scene.mallory.advance(RawCommit { updates, ..RawCommit::default() });
    let at = scene.world.publish_data(group, raise);
    let behind = scene.mallory.say("behind");
    scene.world.publish_data(group, behind);
    (at, scene.carol.catch_up(&scene.world, group).await)
}

/// A whole client publishes what waits for other groups, and nothing to the one that requires a newer version.
///
/// Shows: STR-074.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_to_a_group_that_requires_a_newer_version() {
    let mut scene = Scene::new().await;
    let other = scene.carol.create_group(&mut scene.world, &[]).await;
    raise_the_floor(&mut scene).await;
    let carol = &scene.carol;
    for group in [scene.group, other] {
        carol.queue(group, "hello").await;
    }
    let backend = TestBackend::start().await;
    let outsider = Outsider::connect(&backend.url());
    let connection = Connection::connect(&backend.url(), ConnectOptions::default()).unwrap();
    let engine = Engine::start(carol.store.clone(), connection, EngineOptions::default());
    eventually("the other group's message", async || outsider.stored(other).await.len() == 1).await;
    engine.shutdown().await;
    assert!(outsider.stored(scene.group).await.is_empty());
}
