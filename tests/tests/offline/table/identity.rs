use highwater_identity::sign::{self, LocalWallet};
use highwater_mls::{Need, Proof, Resolution, Resolutions};
use highwater_processing::Stop;
use highwater_tests::{Foreign, RawCommit, raw};
use highwater_wire::proto::associations::identity_action::Kind;
use highwater_wire::proto::associations::{
    CreateInbox, IdentityAction, IdentityUpdate, Signature, SmartContractWalletSignature, signature,
};
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use highwater_wire::{Cursor, InboxId, Topic};

use super::{Codes, Scene, verdict};

pub(super) const REFERENCES: Codes = &["identity_not_before", "dependency", "identity_absent"];

/// A commit that names identity state at or after its own place is wrong; one that names state which isn't here waits,
/// until that is proven never to have been.
///
/// Shows: PROC-011, PROC-012, STR-074, STR-076.
#[tokio::test]
async fn a_reference_to_identity_state_is_judged_by_the_order_and_by_proof() {
    let mut scene = Scene::new().await;
    let mine = scene.mallory.inbox;
    let naming = |scene: &mut Scene, id: u64| {
        let updates = vec![raw::membership(&mut scene.mallory, &[(mine, Some(id))])];
        scene.mallory.commit(RawCommit { updates, ..RawCommit::default() })
    };
    // The commit's own id, which a sender can guess, and one beyond.
    for ahead in [0, 1] {
        let next = scene.world.next_id();
        let data = naming(&mut scene, next + ahead);
        assert_eq!(scene.judge(data).await, "identity_not_before");
    }
    // An id that belongs to no update of this inbox.
    let absent = scene.world.next_id();
    scene.world.skip_ids(1);
    let data = naming(&mut scene, absent);
    let at = scene.world.publish_data(scene.group, data);
    assert_eq!(scene.judge_at(at).await, "dependency");
    let needs = match scene.alice.process(scene.topic()).await.stop {
        Some(Stop::Held(hold)) => hold.needs,
        other => panic!("{other:?}"),
    };
    assert!(
        matches!(needs[..], [Need::Identity { inbox, sequence_id }] if inbox == mine && sequence_id.get() == absent)
    );
    let answer =
        |resolution: Resolution| needs.iter().cloned().map(|need| (need, resolution.clone())).collect();
    let reason = || "x".to_owned();
    // "Not now" is no proof.
    let not_now: Resolutions = answer(Resolution::Retry { reason: reason() });
    assert_eq!(scene.judge_with(at, not_now).await, "dependency");
    let proven: Resolutions = answer(Resolution::Permanent { reason: reason() });
    assert_eq!(scene.judge_with(at, proven).await, "identity_absent");
    scene.end(REFERENCES).await;
}

pub(super) const CODES: Codes = &["dependency", "invalid_identity", "missing_state", "unsupported"];

fn publish(scene: &mut Scene, inbox: InboxId, update: IdentityUpdate) {
    let payload = Some(client_envelope::Payload::IdentityUpdate(update));
    scene.world.publish_on(Topic::identity(inbox), ClientEnvelope { payload });
}

/// Receives and processes an inbox's topic; the code it is held with, and the states verified on the way.
async fn judge(scene: &mut Scene, inbox: InboxId, resolutions: Resolutions) -> String {
    let topic = Topic::identity(inbox);
    scene.alice.receive(&scene.world, topic).await;
    let report = scene.alice.process_with(topic, resolutions).await;
    assert_eq!(report.rejected, 0, "nothing on an identity topic is skipped");
    let newest = scene.world.prefix(topic, Cursor::ZERO).into_envelopes().last().unwrap().sequence_id();
    let at = match &report.stop {
        Some(Stop::Held(hold)) => hold.sequence_id,
        _ => newest,
    };
    let code = verdict(&scene.alice, topic, at, report).await;
    if code != "applied" {
        scene.seen.insert(code.clone());
    }
    code
}

/// An update that doesn't hold keeps its prefix: no later one is applied, whatever it would lead to.
///
/// Shows: PROC-012, STR-074.
#[tokio::test]
async fn an_identity_update_is_applied_or_holds_its_topic() {
    let mut scene = Scene::new().await;
    // A valid log; a second creation in it; a valid update behind that.
    let guest = Foreign::new(&mut scene.world);
    assert_eq!(judge(&mut scene, guest.inbox, Resolutions::default()).await, "applied");
    let create = scene.world.prefix(Topic::identity(guest.inbox), Cursor::ZERO).into_envelopes()[0].clone();
    let topic = Topic::identity(guest.inbox);
    let again = scene.world.stored(topic, create.sequence_id()).unwrap().envelope.unwrap();
    scene.world.publish_on(topic, again);
    guest.revoke(&mut scene.world, guest.installation);
    let known = scene.alice.identity(guest.inbox).await;
    for _ in 0..2 {
        assert_eq!(judge(&mut scene, guest.inbox, Resolutions::default()).await, "invalid_identity");
        assert_eq!(scene.alice.identity(guest.inbox).await, known, "no later state takes its place");
        scene.alice.restart().await;
    }
    // No update at all.
    let guest = Foreign::new(&mut scene.world);
    scene.world.publish_on(Topic::identity(guest.inbox), ClientEnvelope::default());
    assert_eq!(judge(&mut scene, guest.inbox, Resolutions::default()).await, "invalid_identity");
    // Something of a later version.
    let (inbox, update) = creation(7, None);
    publish(&mut scene, inbox, update);
    assert_eq!(judge(&mut scene, inbox, Resolutions::default()).await, "unsupported");
    // The state that the prefix led to was lost: what comes next can't be judged without it.
    let guest = Foreign::new(&mut scene.world);
    assert_eq!(judge(&mut scene, guest.inbox, Resolutions::default()).await, "applied");
    guest.revoke(&mut scene.world, guest.installation);
    lose_state(&scene, guest.inbox).await;
    assert_eq!(judge(&mut scene, guest.inbox, Resolutions::default()).await, "missing_state");

    // A contract wallet's signature waits for a verdict, and both verdicts are proofs.
    for (valid, code) in [(true, "applied"), (false, "invalid_identity")] {
        let wallet = LocalWallet::generate();
        let account_id = format!("eip155:1:{}", wallet.address());
        let contract = SmartContractWalletSignature { account_id, block_number: 5, signature: vec![1] };
        let (inbox, update) = creation(1, Some((wallet, contract)));
        publish(&mut scene, inbox, update);
        assert_eq!(judge(&mut scene, inbox, Resolutions::default()).await, "dependency");
        let needs = match scene.alice.process(Topic::identity(inbox)).await.stop {
            Some(Stop::Held(hold)) => hold.needs,
            other => panic!("{other:?}"),
        };
        let [need @ Need::Verify(_)] = needs.as_slice() else { panic!("{needs:?}") };
        let verdict = Resolution::Ready(Proof::Verdict(valid));
        let answers = [(need.clone(), verdict)].into_iter().collect();
        assert_eq!(judge(&mut scene, inbox, answers).await, code);
    }
    let seen: Vec<_> = scene.seen.iter().map(String::as_str).collect();
    assert_eq!(seen, CODES);
}

/// A log's first update, with an identifier kind and a signature that may be of another kind than usual.
fn creation(
    kind: i32,
    contract: Option<(LocalWallet, SmartContractWalletSignature)>,
) -> (InboxId, IdentityUpdate) {
    let (wallet, contract) = match contract {
        Some((wallet, contract)) => (wallet, Some(contract)),
        None => (LocalWallet::generate(), None),
    };
    let address = wallet.address().to_string();
    let inbox = highwater_identity::inbox_id(&address, 0);
    let signed = contract.map_or_else(
        || sign_nothing(&wallet),
        |contract| Signature { signature: Some(signature::Signature::Erc6492(contract)) },
    );
    let create = CreateInbox {
        initial_identifier: address,
        initial_identifier_signature: Some(signed),
        initial_identifier_kind: kind,
        ..CreateInbox::default()
    };
    let actions = vec![IdentityAction { kind: Some(Kind::CreateInbox(create)) }];
    (inbox, IdentityUpdate { actions, client_timestamp_ns: 1, inbox_id: inbox.to_string() })
}

fn sign_nothing(wallet: &LocalWallet) -> Signature {
    sign::LocalWallet::sign_erc191(wallet, "nothing")
}

async fn lose_state(scene: &Scene, inbox: InboxId) {
    scene
        .alice
        .write(move |tx| {
            Box::pin(async move {
                let lost = sqlx::query("DELETE FROM processing_identity WHERE inbox_id = ?")
                    .bind(inbox.as_bytes().as_slice())
                    .execute(tx.conn());
                assert_eq!(lost.await?.rows_affected(), 1);
                Ok::<_, highwater_store::StoreError>(())
            })
        })
        .await;
}
