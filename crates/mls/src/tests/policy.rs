use std::collections::BTreeSet;

use openmls::prelude::{BasicCredential, CredentialWithKey, KeyPackage, LeafNodeParameters};
use tls_codec::Serialize as _;

use super::support::*;
use crate::components::id;
use crate::*;

/// How Alice judges a commit of Bob's.
async fn judged(pair: &mut Pair, rogue: Rogue) -> PolicyViolation {
    let data = rogue.commit(&pair.b, pair.group).await;
    let before = pair.a.rows().await;
    let at = pair.world.next_id();
    let got = pair.a.read(&pair.world, pair.group, at, &data).await;
    assert_eq!(pair.a.rows().await, before);
    match got {
        Got::Failed(InputFailure::Policy(violation)) => violation,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_super_admins_change_admins_and_floor_and_only_admins_remove() {
    let mut pair = Pair::new().await;
    let (carol, c) = pair.add_carol().await;
    let bob = pair.bob.inbox;
    let group = pair.group;
    let grab = Rogue::changing(&pair.b, group, |after| after.admins.extend([bob])).await;
    assert_eq!(judged(&mut pair, grab).await, PolicyViolation::Unauthorized { component: id::ADMINS });
    let floor = Rogue::changing(&pair.b, group, |after| after.minimum_version = Some("0.0.1".into()));
    let expected = PolicyViolation::Unauthorized { component: id::MINIMUM_VERSION };
    let floor = floor.await;
    assert_eq!(judged(&mut pair, floor).await, expected);
    let kick = Rogue::changing(&pair.b, group, |after| drop(after.membership.remove(&carol.inbox)));
    let kick = Rogue { remove: vec![c.key], ..kick.await };
    let expected = PolicyViolation::Unauthorized { component: id::MEMBERSHIP };
    assert_eq!(judged(&mut pair, kick).await, expected);

    // As an admin Bob may remove, and still not change the sets.
    let admins = BTreeSet::from([bob]);
    let super_admins = BTreeSet::from([pair.alice.inbox]);
    let change = Change::Admins { admins, super_admins };
    let (at, prepared) = pair.a.change(&mut pair.world, group, change).await;
    assert_eq!(pair.b.read(&pair.world, group, at, &prepared.data).await, Got::Merged);
    let grab = Rogue::changing(&pair.b, group, |after| after.super_admins.extend([bob])).await;
    let expected = PolicyViolation::Unauthorized { component: id::SUPER_ADMINS };
    assert_eq!(judged(&mut pair, grab).await, expected);
    let (at, removal) = pair.b.change(&mut pair.world, group, removing(&carol, &[&c])).await;
    assert_eq!(pair.a.read(&pair.world, group, at, &removal.data).await, Got::Merged);
    pair.agree().await;
}

#[tokio::test]
async fn any_member_adds_members_and_changes_name_and_description() {
    let mut pair = Pair::new().await;
    let mut carol = Person::new();
    let c = carol.client(&mut pair.world).await;
    let changes = [adding(&[&carol], &[&c]).await, Change::Name("n".into()), Change::Description("d".into())];
    for change in changes {
        let (at, prepared) = pair.b.change(&mut pair.world, pair.group, change).await;
        assert_eq!(pair.a.read(&pair.world, pair.group, at, &prepared.data).await, Got::Merged);
    }
    pair.agree().await;
}

#[tokio::test]
async fn write_once_means_once_and_collections_are_never_removed() {
    let mut pair = Pair::new().await;
    for component in [id::CREATOR, id::CONVERSATION, id::DM_PAIR] {
        let updates = vec![(component, Some(vec![1]), Some(vec![1]))];
        let rogue = Rogue { updates, ..Rogue::default() };
        assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::WriteOnce { component });
    }
    let rogue = Rogue { updates: vec![(id::CREATOR, None, None)], ..Rogue::default() };
    let expected = PolicyViolation::WriteOnce { component: id::CREATOR };
    assert_eq!(judged(&mut pair, rogue).await, expected);
    let rogue = Rogue { updates: vec![(id::ADMINS, None, None)], ..Rogue::default() };
    let expected = PolicyViolation::ComponentRemoved { component: id::ADMINS };
    assert_eq!(judged(&mut pair, rogue).await, expected);
}

#[tokio::test]
async fn malformed_updates_and_values_are_refused() {
    let mut pair = Pair::new().await;
    let garbage = vec![(id::MEMBERSHIP, Some(vec![9]), Some(vec![0]))];
    let rogue = Rogue { updates: garbage, ..Rogue::default() };
    let expected = PolicyViolation::MalformedUpdate { component: id::MEMBERSHIP };
    assert_eq!(judged(&mut pair, rogue).await, expected);
    // A deletion of who isn't there.
    let delete = crate::codec::Mutation::Delete(crate::codec::inbox_key(pair.bob.inbox));
    let payload = crate::codec::Collection::Set.write_mutations(&[delete]);
    let rogue = Rogue { updates: vec![(id::ADMINS, Some(payload), Some(vec![0]))], ..Rogue::default() };
    let expected = PolicyViolation::MalformedUpdate { component: id::ADMINS };
    assert_eq!(judged(&mut pair, rogue).await, expected);
    for (component, value) in [
        (id::NAME, vec![b'n'; MAX_NAME_BYTES + 1]),
        (id::NAME, vec![0xff]),
        (id::DESCRIPTION, vec![b'd'; MAX_DESCRIPTION_BYTES + 1]),
        (id::DISAPPEAR_IN, vec![1, 2, 3]),
        (id::MINIMUM_VERSION, b"new".to_vec()),
    ] {
        let updates = vec![(component, Some(value.clone()), Some(value))];
        let rogue = Rogue { updates, ..Rogue::default() };
        assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::MalformedComponent { component });
    }
}

#[tokio::test]
async fn membership_entries_only_rise_and_name_earlier_updates() {
    let mut pair = Pair::new().await;
    let (bob, group) = (pair.bob.inbox, pair.group);
    let set = async |pair: &mut Pair, inbox, sequence_id| {
        let rogue = Rogue::changing(&pair.b, group, |after| {
            after.membership.entry(inbox).or_default().sequence_id = sequence_id;
        });
        let rogue = rogue.await;
        judged(pair, rogue).await
    };
    assert_eq!(set(&mut pair, bob, 1).await, PolicyViolation::EntryFell);
    let stranger = Person::new().inbox;
    assert_eq!(set(&mut pair, stranger, u64::MAX).await, PolicyViolation::EntryOutOfRange);
    assert_eq!(set(&mut pair, stranger, 1 << 40).await, PolicyViolation::EntryNotBefore);
    let zero = MembershipEntry { sequence_id: 0, failed: BTreeSet::from([pair.b.key]) };
    let rogue = Rogue::changing(&pair.b, group, |after| drop(after.membership.insert(stranger, zero)));
    let rogue = rogue.await;
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::EntryZero);
}

#[tokio::test]
async fn leaves_follow_the_identity_states_that_entries_name() {
    let mut pair = Pair::new().await;
    let group = pair.group;
    let mut carol = Person::new();
    let first = carol.client(&mut pair.world).await;
    let old_entry = carol.entry();
    let second = carol.client(&mut pair.world).await;
    let (inbox, entry) = (carol.inbox, carol.entry());

    // A leaf without any entry.
    let rogue = Rogue { add: vec![first.key_package().await], ..Rogue::default() };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::LeafWithoutEntry);
    // A leaf that the named state doesn't have yet.
    let both = vec![first.key_package().await, second.key_package().await];
    let rogue = Rogue::changing(&pair.b, group, |after| drop(after.membership.insert(inbox, old_entry)));
    let rogue = Rogue { add: both.clone(), ..rogue.await };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::ForeignLeaf);
    // An installation that is left out.
    let rogue = Rogue::changing(&pair.b, group, |after| drop(after.membership.insert(inbox, entry)));
    let rogue = Rogue { add: both[..1].to_vec(), ..rogue.await };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::InstallationMissing);

    // Left out, but marked as failed, and brought in later at the same state.
    let mut failed = carol.entry();
    failed.failed.insert(second.key);
    let change = |entry: MembershipEntry, leaves: &[Vec<u8>]| Change::Membership {
        upsert: [(inbox, entry)].into(),
        remove: BTreeSet::new(),
        add_leaves: leaves.to_vec(),
        remove_leaves: BTreeSet::new(),
    };
    for change in [change(failed, &both[..1]), change(carol.entry(), &both[1..])] {
        let (at, prepared) = pair.b.change(&mut pair.world, group, change).await;
        assert_eq!(pair.a.read(&pair.world, group, at, &prepared.data).await, Got::Merged);
    }

    // A leaf taken away although its inbox still has the installation.
    let rogue = Rogue { remove: vec![second.key], ..Rogue::default() };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::RemovedWithoutCause);
    // A revoked installation that stays.
    carol.revoke(&mut pair.world, second.key);
    let entry = carol.entry();
    let rogue = Rogue::changing(&pair.b, group, |after| drop(after.membership.insert(inbox, entry)));
    let rogue = rogue.await;
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::RevokedLeaf);
    // As it should be: any member publishes the removal.
    let change = Change::Membership {
        upsert: [(inbox, carol.entry())].into(),
        remove: BTreeSet::new(),
        add_leaves: Vec::new(),
        remove_leaves: BTreeSet::from([second.key]),
    };
    let (at, prepared) = pair.b.change(&mut pair.world, group, change).await;
    assert_eq!(pair.a.read(&pair.world, group, at, &prepared.data).await, Got::Merged);
    pair.agree().await;
}

#[tokio::test]
async fn the_creators_other_devices_come_only_with_a_raised_entry() {
    let mut world = World::new();
    let mut alice = Person::new();
    let a = alice.client(&mut world).await;
    let other = alice.client(&mut world).await;
    let group = group_id(1);
    a.create(group, group_of(alice.inbox)).await;
    let leaves = vec![other.key_package().await];
    let rogue = Rogue { add: leaves, ..Rogue::default() };
    // Alone in the group, it can only be judged as an own commit.
    let refused = a.commit(
        group,
        Change::Membership {
            upsert: Default::default(),
            remove: BTreeSet::new(),
            add_leaves: rogue.add,
            remove_leaves: BTreeSet::new(),
        },
    );
    let expected = PolicyViolation::EntryNotRaised.to_string();
    assert!(matches!(refused.await, Err(MlsError::InvalidChange(why)) if why == expected));
    let change = adding(&[&alice], &[&other]).await;
    let (at, prepared) = a.change(&mut world, group, change).await;
    other.join(&mut world, &prepared, at).await;
}

/// STR-082 names the commit that removes an installation and adds it again.
#[tokio::test]
async fn an_installation_may_be_removed_and_added_again_in_one_commit() {
    let mut pair = Pair::new().await;
    let (_, c) = pair.add_carol().await;
    let change = Change::Membership {
        upsert: Default::default(),
        remove: BTreeSet::new(),
        add_leaves: vec![c.key_package().await],
        remove_leaves: BTreeSet::from([c.key]),
    };
    let (at, prepared) = pair.a.change(&mut pair.world, pair.group, change).await;
    assert_eq!(pair.b.read(&pair.world, pair.group, at, &prepared.data).await, Got::Merged);
    assert_eq!(c.read(&pair.world, pair.group, at, &prepared.data).await, Got::Removed);
    c.join(&mut pair.world, &prepared, at).await;
    let hello = c.encrypt(pair.group, "again").await;
    assert_eq!(pair.bob_reads(&hello).await, Got::Text(c.member(), "again".into()));
}

#[tokio::test]
async fn a_leaf_keeps_its_identity() {
    let mut pair = Pair::new().await;
    let claimed = crate::profile::credential(pair.alice.inbox, pair.b.key);
    let leaf = LeafNodeParameters::builder().with_credential_with_key(claimed).build();
    let rogue = Rogue { leaf: Some(leaf), ..Rogue::default() };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::IdentityChanged);
    let nameless = CredentialWithKey {
        credential: BasicCredential::new(b"nobody".to_vec()).into(),
        signature_key: pair.b.key.as_bytes().as_slice().into(),
    };
    let leaf = LeafNodeParameters::builder().with_credential_with_key(nameless).build();
    let rogue = Rogue { leaf: Some(leaf), ..Rogue::default() };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::MalformedCredential);
}

#[tokio::test]
async fn a_key_package_that_names_no_inbox_adds_nobody() {
    let mut pair = Pair::new().await;
    let package = bare(&pair.b, pair.group, |_, provider, signer| {
        use openmls_traits::signatures::Signer as _;
        let _ = signer.signature_scheme();
        let other = ed25519_dalek::SigningKey::from_bytes(&[5; 32]);
        let credential = CredentialWithKey {
            credential: BasicCredential::new(b"nobody".to_vec()).into(),
            signature_key: other.verifying_key().to_bytes().as_slice().into(),
        };
        KeyPackage::builder()
            .leaf_node_capabilities(crate::profile::capabilities())
            .build(crate::profile::SUITE, provider, &crate::provider::InstallationSigner(&other), credential)
            .unwrap()
            .key_package()
            .tls_serialize_detached()
            .unwrap()
    })
    .await;
    let refused = read_key_package(&package, pair.b.key, pair.b.inbox);
    assert!(matches!(refused, Err(MlsError::KeyPackage(_))));
    let rogue = Rogue { add: vec![package], ..Rogue::default() };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::MalformedCredential);
}

#[tokio::test]
async fn a_dm_is_its_two_inboxes_for_good() {
    let mut world = World::new();
    let (mut alice, mut bob, mut carol) = (Person::new(), Person::new(), Person::new());
    let a = alice.client(&mut world).await;
    let b = bob.client(&mut world).await;
    let c = carol.client(&mut world).await;
    let group = group_id(1);
    a.create(group, dm_of(alice.inbox, bob.inbox)).await;
    let change = adding(&[&alice, &bob], &[&b]).await;
    let (at, prepared) = a.change(&mut world, group, change).await;
    b.join(&mut world, &prepared, at).await;
    let mut pair = Pair { world, alice, bob, a, b, group };

    let (inbox, entry) = (carol.inbox, carol.entry());
    let rogue = Rogue::changing(&pair.b, group, |after| drop(after.membership.insert(inbox, entry)));
    let rogue = Rogue { add: vec![c.key_package().await], ..rogue.await };
    assert_eq!(judged(&mut pair, rogue).await, PolicyViolation::DmInboxes);
    let refused = pair.b.commit(group, adding(&[&carol], &[&c]).await).await;
    assert!(matches!(refused, Err(MlsError::InvalidChange(_))));

    // Devices of the two come and go, and either sets when messages disappear.
    let second = pair.bob.client(&mut pair.world).await;
    let changes =
        [adding(&[&pair.bob], &[&second]).await, Change::Disappearing { from: Some(0), within: Some(1) }];
    for change in changes {
        let (at, prepared) = pair.b.change(&mut pair.world, group, change).await;
        assert_eq!(pair.a.read(&pair.world, group, at, &prepared.data).await, Got::Merged);
    }
    pair.agree().await;
}

#[tokio::test]
async fn a_verdict_without_the_identity_states_is_no_verdict() {
    let mut pair = Pair::new().await;
    let mut carol = Person::new();
    let c = carol.client(&mut pair.world).await;
    let change = adding(&[&carol], &[&c]).await;
    pair.a.commit(pair.group, change).await.unwrap();
    pair.world.snapshots.clear();
    let at = pair.world.next_id();
    let refused = pair.a.echo(&pair.world, pair.group, at).await;
    assert!(matches!(refused, Err(InputFailure::Library(_))));
}
