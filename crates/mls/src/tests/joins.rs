use std::collections::BTreeSet;

use super::support::*;
use crate::*;

/// Builds a group that its members would never have let come about, and the Welcome of it: the creator alone in the
/// group, whose components are what `change` makes of them, adds `clients`.
async fn forged(
    world: &mut World,
    creator: &Client,
    components: Components,
    clients: &[&Client],
    joiner: &Client,
) -> Result<Member, WelcomeFailure> {
    let group = group_id(9);
    write(creator.fixture.store(), move |tx| Box::pin(delete_group(tx, group))).await.unwrap();
    creator.create(group, components).await;
    let mut packages = Vec::new();
    for client in clients {
        packages.push(client.key_package().await);
    }
    let (welcome, added) = bare(creator, group, move |mls, provider, signer| {
        use openmls_traits::OpenMlsProvider as _;
        let validated: Vec<_> =
            packages.iter().map(|bytes| crate::recipient::validated(bytes).unwrap()).collect();
        let added: Vec<_> =
            validated.iter().map(|package| crate::recipient::recipient(package).unwrap()).collect();
        let bundle = mls
            .commit_builder()
            .propose_adds(validated)
            .load_psks(&provider.overlay)
            .unwrap()
            .build(provider.rand(), provider.crypto(), signer, |_| true)
            .unwrap()
            .stage_commit(provider)
            .unwrap();
        (bundle.into_welcome_msg().unwrap().to_bytes().unwrap(), added)
    })
    .await;
    let anchor = world.next_id();
    let prepared = PreparedCommit { data: Vec::new(), welcome: Some(welcome), added };
    let message = joiner.sealed(&prepared, anchor);
    let at = world.next_id();
    joiner.join_with(world, &message, at).await
}

fn code(joined: Result<Member, WelcomeFailure>) -> &'static str {
    joined.unwrap_err().code()
}

/// Shows: STR-083.
#[tokio::test]
async fn a_group_that_no_member_could_have_made_is_not_joined() {
    let mut world = World::new();
    let (mut alice, mut bob) = (Person::new(), Person::new());
    let a = alice.client(&mut world).await;
    let b = bob.client(&mut world).await;
    let bob_before = bob.entry();
    let b2 = bob.client(&mut world).await;
    let with = |change: &dyn Fn(&mut Components)| {
        let mut components = group_of(alice.inbox);
        components.membership.insert(alice.inbox, alice.entry());
        components.membership.insert(bob.inbox, bob.entry());
        change(&mut components);
        components
    };
    let both = [&b, &b2];
    let fine = with(&|_| {});
    forged(&mut world, &a, fine.clone(), &both, &b).await.unwrap();

    let no_entry = with(&|components| drop(components.membership.remove(&bob.inbox)));
    assert_eq!(code(forged(&mut world, &a, no_entry, &both, &b).await), "leaf_without_entry");
    let zero = with(&|components| drop(components.membership.insert(bob.inbox, MembershipEntry::default())));
    assert_eq!(code(forged(&mut world, &a, zero, &both, &b).await), "entry_zero");
    let future = MembershipEntry { sequence_id: 1 << 40, failed: BTreeSet::new() };
    let future = with(&|components| drop(components.membership.insert(bob.inbox, future.clone())));
    assert_eq!(code(forged(&mut world, &a, future, &both, &b).await), "entry_not_before");
    let old = with(&|components| drop(components.membership.insert(bob.inbox, bob_before.clone())));
    assert_eq!(code(forged(&mut world, &a, old, &both, &b).await), "foreign_leaf");
    assert_eq!(code(forged(&mut world, &a, fine.clone(), &[&b], &b).await), "installation_missing");
    let failed = with(&|components| {
        components.membership.get_mut(&bob.inbox).unwrap().failed.insert(b2.key);
    });
    forged(&mut world, &a, failed, &[&b], &b).await.unwrap();
    // The creator's own entry may still be zero.
    let unraised =
        with(&|components| drop(components.membership.insert(alice.inbox, MembershipEntry::default())));
    forged(&mut world, &a, unraised, &both, &b).await.unwrap();

    let third = Person::new().inbox;
    let mut dm = with(&|_| {});
    dm.conversation = ConversationType::Dm;
    dm.dm_pair = Some(BTreeSet::from([alice.inbox, third]));
    assert_eq!(code(forged(&mut world, &a, dm, &both, &b).await), "dm_inboxes");
    let newer = with(&|components| components.minimum_version = Some("99.0.0".into()));
    let held = forged(&mut world, &a, newer, &both, &b).await.unwrap_err();
    assert_eq!(held.disposition(), WelcomeDisposition::Hold);

    let snapshots = std::mem::take(&mut world.snapshots);
    let early = forged(&mut world, &a, fine.clone(), &both, &b).await.unwrap_err();
    assert!(matches!(early, WelcomeFailure::MissingSnapshot));
    world.snapshots = snapshots;
    forged(&mut world, &a, fine, &both, &b).await.unwrap();
    b.audit().await;
}

/// A failed installation leaves the state there is.
///
/// Shows: STR-084.
#[tokio::test]
async fn an_installation_that_rolls_back_leaves_the_previous_state() {
    let mut pair = Pair::new().await;
    let change = Change::Membership {
        upsert: Default::default(),
        remove: BTreeSet::new(),
        add_leaves: vec![pair.b.key_package().await],
        remove_leaves: BTreeSet::from([pair.b.key]),
    };
    let (anchor, prepared) = pair.a.change(&mut pair.world, pair.group, change).await;
    let message = pair.b.sealed(&prepared, anchor);
    let before = pair.b.rows().await;
    let (at, snapshots) = (pair.world.next_id(), pair.world.snapshots.clone());
    let interrupted: Result<(), MlsError> = write(pair.b.fixture.store(), move |tx| {
        Box::pin(async move {
            let Ok(Unwrapped::Welcome(opened)) = open_welcome(tx, &message).await else { panic!() };
            let staged = StagedJoin::stage(tx, opened).await.unwrap();
            assert_eq!(staged.required_identity().len(), 2);
            staged.check(at, &snapshots).unwrap().install(tx).await?;
            Err(MlsError::CommitPending)
        })
    })
    .await;
    assert!(interrupted.is_err());
    assert_eq!(pair.b.rows().await, before);
    pair.b.audit().await;
}
