use std::collections::BTreeSet;

use highwater_delivery::ConversationKind;
use highwater_mls::{Change, Components, MembershipEntry, Trial};
use highwater_outbox::CreateGroup;
use highwater_tests::{Foreign, RawCommit, RawUpdate, credential, raw};
use highwater_wire::{GroupId, InboxId, Topic};
use openmls::prelude::LeafNodeParameters;

use super::{Codes, Scene, verdict};

fn updating(update: RawUpdate) -> RawCommit {
    RawCommit { updates: vec![update], ..RawCommit::default() }
}

fn scalar(component: u16, value: &[u8]) -> RawCommit {
    updating((component, Some(value.to_vec()), Some(value.to_vec())))
}

fn with_credential(scene: &Scene, identity: &[u8]) -> RawCommit {
    let claimed = scene.mallory.claiming(identity);
    let leaf = LeafNodeParameters::builder().with_credential_with_key(claimed).build();
    RawCommit { leaf: Some(leaf), ..RawCommit::default() }
}

pub(super) const CODES: Codes = &[
    "policy_component_removed",
    "policy_entry_fell",
    "policy_entry_out_of_range",
    "policy_entry_zero",
    "policy_foreign_leaf",
    "policy_identity_changed",
    "policy_installation_missing",
    "policy_leaf_without_entry",
    "policy_malformed_component",
    "policy_malformed_credential",
    "policy_malformed_update",
    "policy_removed_without_cause",
    "policy_revoked_leaf",
    "policy_unauthorized",
    "policy_write_once",
];

/// Shows: PROC-011, STR-074.
#[tokio::test]
async fn a_commit_that_breaks_the_rules_of_groups_is_rejected() {
    let mut scene = Scene::new().await;
    let mine = scene.mallory.inbox;
    let guest = Foreign::new(&mut scene.world);
    let guest_id = newest(&scene, guest.inbox);
    let alice = credential(scene.alice.inbox);
    let guest_package = guest.key_package(&credential(guest.inbox));
    let in_alices_name = guest.key_package(&alice);
    let carol = scene.carol.installation;
    let adds = |add, updates| RawCommit { add: vec![add], updates, ..RawCommit::default() };
    let entry = |scene: &mut Scene, inbox, id| raw::membership(&mut scene.mallory, &[(inbox, id)]);

    let below = updating(entry(&mut scene, mine, Some(1)));
    let out_of_range = updating(entry(&mut scene, guest.inbox, Some(u64::MAX)));
    let zero = updating(entry(&mut scene, guest.inbox, Some(0)));
    let left_out = updating(entry(&mut scene, guest.inbox, Some(guest_id)));
    let carols = scene.carol.inbox;
    let kicks_carol = RawCommit { remove: vec![carol], ..updating(entry(&mut scene, carols, None)) };
    let renamed = with_credential(&scene, &alice);
    let nameless = with_credential(&scene, b"nobody");
    let commits = [
        ("policy_unauthorized", scalar(0x800a, b"0.0.1")),
        ("policy_unauthorized", kicks_carol),
        ("policy_write_once", scalar(0xbffe, &[1])),
        ("policy_component_removed", updating((0x8002, None, None))),
        ("policy_malformed_update", updating((raw::MEMBERSHIP, Some(vec![9]), Some(vec![0])))),
        ("policy_malformed_component", scalar(0x8004, &[b'n'; 101])),
        ("policy_identity_changed", renamed),
        ("policy_malformed_credential", nameless),
        ("policy_leaf_without_entry", adds(guest_package, Vec::new())),
        ("policy_foreign_leaf", adds(in_alices_name, Vec::new())),
        ("policy_entry_fell", below),
        ("policy_entry_out_of_range", out_of_range),
        ("policy_entry_zero", zero),
        ("policy_installation_missing", left_out),
        ("policy_removed_without_cause", RawCommit { remove: vec![carol], ..RawCommit::default() }),
    ];
    for (code, commit) in commits {
        let data = scene.mallory.commit(commit);
        assert_eq!(scene.judge(data).await, code);
    }
    // A revoked installation that keeps its leaf.
    let installation = scene.mallory.installation;
    let revoked = scene.mallory.revoke(&mut scene.world, installation).get();
    let raised = updating(entry(&mut scene, mine, Some(revoked)));
    let data = scene.mallory.commit(raised);
    assert_eq!(scene.judge(data).await, "policy_revoked_leaf");
    scene.end(CODES).await;
}

fn newest(scene: &Scene, inbox: InboxId) -> u64 {
    let updates = scene.world.prefix(Topic::identity(inbox), highwater_wire::Cursor::ZERO);
    updates.into_envelopes().last().map_or(0, |envelope| envelope.sequence_id().get())
}

pub(super) const DM: Codes = &["policy_dm_inboxes", "policy_unauthorized"];

/// Shows: PROC-011.
#[tokio::test]
async fn a_dm_gains_and_loses_no_inbox() {
    let mut scene = Scene::new().await;
    let peer = scene.mallory.inbox;
    scene.mallory.publish_key_package(&mut scene.world);
    let (group, _) = scene
        .alice
        .write(move |tx| {
            Box::pin(async move {
                let kind = ConversationKind::Dm { peer };
                let request = CreateGroup { kind, name: None, members: BTreeSet::from([peer]) };
                highwater_outbox::create_group(tx, request).await
            })
        })
        .await;
    scene.alice.drain(&mut scene.world, group).await;
    scene.alice.catch_up(&scene.world, group).await;
    scene.alice.publish_welcomes(&mut scene.world).await;
    scene.group = group;
    scene.mallory.join(&scene.world);
    let guest = Foreign::new(&mut scene.world);
    let package = guest.key_package(&credential(guest.inbox));
    let id = newest(&scene, guest.inbox);
    let gained = raw::membership(&mut scene.mallory, &[(guest.inbox, Some(id))]);
    let gained = RawCommit { add: vec![package], ..updating(gained) };
    let alice = scene.alice.inbox;
    let lost = updating(raw::membership(&mut scene.mallory, &[(alice, None)]));
    let data = scene.mallory.commit(gained);
    assert_eq!(scene.judge(data).await, "policy_dm_inboxes");
    // Losing one is a removal, which in a DM nobody may decide.
    let data = scene.mallory.commit(lost);
    assert_eq!(scene.judge(data).await, "policy_unauthorized");
    scene.end(DM).await;
}

pub(super) const LONE: Codes = &["policy_entry_not_raised"];

/// A group whose creator never raised its own entry, as no client of this project leaves it.
///
/// Shows: PROC-011.
#[tokio::test]
async fn the_creators_leaves_change_only_with_its_entry() {
    let mut scene = Scene::new().await;
    scene.mallory.publish_key_package(&mut scene.world);
    scene.carol.publish_key_package(&mut scene.world).await;
    let creator = scene.alice.inbox;
    let group = GroupId::from_bytes([9; 16]);
    let components = Components {
        super_admins: [creator].into(),
        membership: [(creator, MembershipEntry::default())].into(),
        ..Components::empty(creator)
    };
    scene
        .alice
        .write(move |tx| Box::pin(async move { Trial::create(tx, group, components).await?.store(tx).await }))
        .await;
    scene.group = group;
    let guests =
        [(scene.carol.inbox, scene.carol.installation), (scene.mallory.inbox, scene.mallory.installation)];
    let entry = |sequence_id| MembershipEntry { sequence_id, failed: BTreeSet::new() };
    let change = Change::Membership {
        upsert: guests.map(|(inbox, _)| (inbox, entry(newest(&scene, inbox)))).into(),
        remove: BTreeSet::new(),
        add_leaves: guests.map(|(_, installation)| scene.newest_key_package(installation)).to_vec(),
        remove_leaves: BTreeSet::new(),
    };
    scene.alice_commits(change).await;
    scene.mallory.join(&scene.world);
    assert_eq!(scene.carol.join(&scene.world).await.len(), 2);
    let removal = RawCommit { remove: vec![scene.alice.installation], ..RawCommit::default() };
    let data = scene.mallory.commit(removal);
    let at = scene.world.publish_data(group, data);
    let report = scene.carol.catch_up(&scene.world, group).await;
    assert_eq!([verdict(&scene.carol, scene.topic(), at, report).await.as_str()], LONE);
    scene.carol.audit().await;
}
