use highwater_tests::credential;
use highwater_wire::proto::backend::ClientEnvelope;
use highwater_wire::proto::contents::{PlaintextEnvelope, plaintext_envelope};
use openmls::group::{MlsGroupJoinConfig, PURE_PLAINTEXT_WIRE_FORMAT_POLICY};
use openmls::prelude::{LeafNodeParameters, OpenMlsProvider as _};
use prost::Message as _;
use tls_codec::Serialize as _;

use super::{Codes, Scene};

pub(super) const CODES: Codes =
    &["malformed", "wrong_group", "authentication", "secret_reused", "generation_out_of_bound"];

/// Shows: PROC-011, STR-074.
#[tokio::test]
async fn what_is_wrong_with_a_message_itself_rejects_it() {
    let mut scene = Scene::new().await;
    let topic = scene.topic();
    // Not even an envelope's payload; no MLS message; nothing behind a known version and wire format.
    let at = scene.world.publish_on(topic, ClientEnvelope::default());
    assert_eq!(scene.judge_at(at).await, "malformed");
    let package =
        scene.mallory.key_package(&credential(scene.mallory.inbox)).tls_serialize_detached().unwrap();
    for data in [vec![], vec![0, 1, 0, 2, 9], package] {
        assert_eq!(scene.judge(data).await, "malformed");
    }
    // The wrong wire format: a PublicMessage.
    let public = public_proposal(&mut scene);
    assert_eq!(scene.judge(public).await, "malformed");
    // What it decrypts to is no message: no protobuf; text that isn't UTF-8; no version of the envelope.
    for plaintext in [vec![0xff], vec![0x0a, 3, 0x12, 1, 0xff], vec![]] {
        let data = scene.mallory.encrypt(&plaintext);
        assert_eq!(scene.judge(data).await, "malformed");
    }
    // A second version exists to be consumed.
    let content = Some(plaintext_envelope::Content::V2(plaintext_envelope::V2::default()));
    let data = scene.mallory.encrypt(&PlaintextEnvelope { content }.encode_to_vec());
    assert_eq!(scene.judge(data).await, "applied");
    assert!(scene.alice.texts(scene.group).await.is_empty());

    let elsewhere = scene.alice.create_group(&mut scene.world, &[]).await;
    let data = scene.alice.encrypt(elsewhere, b"of another group").await;
    assert_eq!(scene.judge(data).await, "wrong_group");

    let text = scene.mallory.say("once");
    let mut tampered = text.clone();
    *tampered.last_mut().unwrap() ^= 1;
    assert_eq!(scene.judge(tampered).await, "authentication");
    assert_eq!(scene.judge(text.clone()).await, "applied");
    assert_eq!(scene.judge(text).await, "secret_reused");

    let mut texts: Vec<_> = (0..40).map(|n| scene.mallory.say(&format!("{n}"))).collect();
    assert_eq!(scene.judge(texts.pop().unwrap()).await, "applied");
    assert_eq!(scene.judge(texts.remove(0)).await, "generation_out_of_bound");
    assert_eq!(scene.judge(texts.pop().unwrap()).await, "applied");
    assert_eq!(scene.alice.texts(scene.group).await, ["once", "39", "38"]);
    scene.end(CODES).await;
}

fn public_proposal(scene: &mut Scene) -> Vec<u8> {
    let policies = [PURE_PLAINTEXT_WIRE_FORMAT_POLICY, openmls::group::PURE_CIPHERTEXT_WIRE_FORMAT_POLICY];
    let [plain, private] = policies.map(|policy| {
        MlsGroupJoinConfig::builder()
            .wire_format_policy(policy)
            .max_past_epochs(10)
            .use_ratchet_tree_extension(true)
            .build()
    });
    let (group, provider, signer) = scene.mallory.parts();
    group.set_configuration(provider.storage(), &plain).unwrap();
    let (message, _) = group.propose_self_update(provider, signer, LeafNodeParameters::default()).unwrap();
    group.clear_pending_proposals(provider.storage()).unwrap();
    group.set_configuration(provider.storage(), &private).unwrap();
    message.to_bytes().unwrap()
}

pub(super) const HELD: Codes = &["unsupported", "missing_state"];

/// Shows: PROC-012, STR-074.
#[tokio::test]
async fn another_mls_version_and_missing_state_hold_what_comes_after_them() {
    let mut scene = Scene::new().await;
    let group = scene.group;
    let text = scene.mallory.say("behind it");
    let mut other_version = text.clone();
    other_version[1] = 2;
    assert_eq!(scene.judge(other_version).await, "unsupported");
    scene.world.publish_data(group, text);
    let report = scene.alice.catch_up(&scene.world, group).await;
    assert_eq!((report.applied, report.rejected), (0, 0));
    assert!(scene.alice.texts(group).await.is_empty());

    let at = scene.alice.held(scene.topic()).await.unwrap().sequence_id;
    scene.alice.write(move |tx| Box::pin(highwater_mls::delete_group(tx, group))).await;
    assert_eq!(scene.judge_at(at).await, "missing_state");
    scene.end_held(HELD).await;
}
