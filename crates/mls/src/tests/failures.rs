use openmls::extensions::{Extension, Extensions};
use openmls::prelude::{LeafNodeParameters, PreSharedKeyProposal, Proposal};
use openmls::schedule::{ExternalPsk, PreSharedKeyId, Psk};
use openmls_traits::OpenMlsProvider as _;

use super::support::*;
use crate::components::id;
use crate::*;

async fn failure(pair: &mut Pair, data: &[u8]) -> InputFailure {
    let before = pair.b.rows().await;
    let got = pair.bob_reads(data).await;
    assert_eq!(pair.b.rows().await, before, "a failure leaves the group as it was");
    match got {
        Got::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// Shows: STR-074.
#[tokio::test]
async fn what_is_no_private_message_is_malformed() {
    let mut pair = Pair::new().await;
    assert_eq!(failure(&mut pair, b"").await, InputFailure::Malformed);
    assert_eq!(failure(&mut pair, &[0, 1, 0, 2, 9]).await, InputFailure::Malformed);
    let mut carol = Person::new();
    let c = carol.client(&mut pair.world).await;
    let change = adding(&[&carol], &[&c]).await;
    let prepared = pair.a.commit(pair.group, change).await.unwrap();
    let welcome = prepared.welcome.unwrap();
    assert_eq!(failure(&mut pair, &welcome).await, InputFailure::Malformed);
}

#[tokio::test]
async fn bytes_after_a_message_are_ignored() {
    let mut pair = Pair::new().await;
    let mut data = pair.a.encrypt(pair.group, "text").await;
    data.extend_from_slice(b"more");
    assert_eq!(pair.bob_reads(&data).await, Got::Text(pair.a.member(), "text".into()));
}

#[tokio::test]
async fn another_mls_version_is_told_apart_from_nonsense() {
    let mut pair = Pair::new().await;
    let mut data = pair.a.encrypt(pair.group, "text").await;
    data[1] = 2;
    assert_eq!(failure(&mut pair, &data).await, InputFailure::UnsupportedVersion);
}

#[tokio::test]
async fn a_message_of_another_group_is_refused() {
    let mut pair = Pair::new().await;
    let other = group_id(2);
    pair.a.create(other, group_of(pair.alice.inbox)).await;
    let data = pair.a.encrypt(other, "text").await;
    assert_eq!(failure(&mut pair, &data).await, InputFailure::WrongGroup);
}

/// Shows: STR-074.
#[tokio::test]
async fn an_epoch_ahead_of_the_complete_prefix_is_told_apart_from_one_behind() {
    let mut pair = Pair::new().await;
    let (_, first) = pair.a.change(&mut pair.world, pair.group, Change::Update).await;
    let ahead = pair.a.encrypt(pair.group, "ahead").await;
    assert_eq!(failure(&mut pair, &ahead).await, InputFailure::FutureEpoch);
    let loser = pair.b.commit(pair.group, Change::Name("mine".into())).await.unwrap();
    assert_eq!(pair.bob_reads(&first.data).await, Got::Merged);
    assert_eq!(failure(&mut pair, &first.data).await, InputFailure::PastEpoch);
    let at = pair.world.next_id();
    let got = pair.a.read(&pair.world, pair.group, at, &loser.data).await;
    assert_eq!(got, Got::Failed(InputFailure::PastEpoch));
}

/// Shows: STR-074.
#[tokio::test]
async fn application_messages_live_for_three_epochs_after_their_own() {
    let mut pair = Pair::new().await;
    let (kept, lost) = (pair.a.encrypt(pair.group, "kept").await, pair.a.encrypt(pair.group, "lost").await);
    for _ in 0..RETAINED_EPOCHS {
        let (_, commit) = pair.a.change(&mut pair.world, pair.group, Change::Update).await;
        assert_eq!(pair.bob_reads(&commit.data).await, Got::Merged);
    }
    assert_eq!(pair.bob_reads(&kept).await, Got::Text(pair.a.member(), "kept".into()));
    let (_, commit) = pair.a.change(&mut pair.world, pair.group, Change::Update).await;
    assert_eq!(pair.bob_reads(&commit.data).await, Got::Merged);
    assert_eq!(failure(&mut pair, &lost).await, InputFailure::SecretsDiscarded);
}

/// Shows: STR-074.
#[tokio::test]
async fn what_was_sent_before_the_join_is_not_for_the_joiner() {
    let mut pair = Pair::new().await;
    let early = pair.a.encrypt(pair.group, "early").await;
    let (_, c) = pair.add_carol().await;
    let at = pair.world.next_id();
    let got = c.read(&pair.world, pair.group, at, &early).await;
    assert_eq!(got, Got::Failed(InputFailure::BeforeJoin));
}

#[tokio::test]
async fn a_replay_and_a_generation_out_of_the_window_are_refused() {
    let mut pair = Pair::new().await;
    let first = pair.a.encrypt(pair.group, "0").await;
    let second = pair.a.encrypt(pair.group, "1").await;
    assert_eq!(pair.bob_reads(&second).await, Got::Text(pair.a.member(), "1".into()));
    assert_eq!(failure(&mut pair, &second).await, InputFailure::SecretReused);
    let mut last = Vec::new();
    for _ in 0..40 {
        last = pair.a.encrypt(pair.group, "last").await;
    }
    assert_eq!(pair.bob_reads(&last).await, Got::Text(pair.a.member(), "last".into()));
    assert_eq!(failure(&mut pair, &first).await, InputFailure::GenerationOutOfBound);
}

#[tokio::test]
async fn a_commit_whose_dictionary_is_not_what_its_updates_say_is_invalid() {
    let mut pair = Pair::new().await;
    let updates = vec![(id::NAME, Some(b"said".to_vec()), Some(b"meant".to_vec()))];
    let data = Rogue { updates, ..Rogue::default() }.commit(&pair.a, pair.group).await;
    let expected = InputFailure::InvalidCommit("confirmation tag");
    assert_eq!(failure(&mut pair, &data).await, expected);
}

fn stored(trial: &Trial) -> usize {
    trial.stored_proposals().len()
}

/// The commit is fine once the proposal is there. The proposer's own new keys come out of its storage.
///
/// Shows: STR-074.
#[tokio::test]
async fn a_commit_that_references_an_unknown_proposal_waits_for_it() {
    let mut pair = Pair::new().await;
    let (_, c) = pair.add_carol().await;
    let proposal = bare(&c, pair.group, |group, provider, signer| {
        let (proposal, _) =
            group.propose_self_update(provider, signer, LeafNodeParameters::default()).unwrap();
        proposal.to_bytes().unwrap()
    })
    .await;
    let at = pair.world.next_id();
    assert_eq!(pair.a.read(&pair.world, pair.group, at, &proposal).await, Got::Proposal);
    let blocked = pair.a.attempt(pair.group, |trial| trial.encrypt(b"text")).await;
    assert!(matches!(blocked, Err(MlsError::ProposalsPending)));
    let rogue = Rogue { take_up_stored: true, ..Rogue::default() };
    let commit = rogue.commit(&pair.a, pair.group).await;
    assert_eq!(failure(&mut pair, &commit).await, InputFailure::MissingProposal);
    assert_eq!(pair.b.view(pair.group, stored).await, 0);
    assert_eq!(pair.bob_reads(&proposal).await, Got::Proposal);
    assert_eq!(pair.b.view(pair.group, stored).await, 1);
    pair.b.audit().await;
    assert_eq!(pair.bob_reads(&commit).await, Got::Merged);
    assert_eq!(pair.b.view(pair.group, stored).await, 0);
    let at = pair.world.next_id();
    assert_eq!(c.read(&pair.world, pair.group, at, &commit).await, Got::Merged);
    let (ours, theirs) = (
        pair.b.view(pair.group, Trial::epoch_authenticator).await,
        c.view(pair.group, Trial::epoch_authenticator).await,
    );
    assert_eq!(ours, theirs);
}

fn same_context(extensions: &Extensions<openmls::group::GroupContext>) -> Vec<Extension> {
    extensions.iter().cloned().collect()
}

#[tokio::test]
async fn proposals_outside_the_profile_are_held_alone_and_in_commits() {
    let mut pair = Pair::new().await;
    let (alone, context) = bare(&pair.a, pair.group, |group, provider, signer| {
        let context = same_context(group.extensions());
        let again = Extensions::from_vec(context.clone()).unwrap();
        let (alone, _) = group.propose_group_context_extensions(provider, again, signer).unwrap();
        group.clear_pending_proposals(&provider.overlay).unwrap();
        (alone.to_bytes().unwrap(), context)
    })
    .await;
    let held = InputFailure::HeldProposal("group_context_extensions");
    assert_eq!(failure(&mut pair, &alone).await, held);
    let context = Some(Extensions::from_vec(context).unwrap());
    let commit = Rogue { context, ..Rogue::default() }.commit(&pair.a, pair.group).await;
    assert_eq!(failure(&mut pair, &commit).await, held);
}

#[tokio::test]
async fn an_update_of_a_component_of_a_later_version_is_held() {
    let mut pair = Pair::new().await;
    let updates = vec![(0x8123, Some(b"x".to_vec()), Some(b"x".to_vec()))];
    let data = Rogue { updates, ..Rogue::default() }.commit(&pair.a, pair.group).await;
    assert!(matches!(failure(&mut pair, &data).await, InputFailure::HeldProposal(_)));
}

#[tokio::test]
async fn a_pre_shared_key_in_a_commit_is_refused_for_good() {
    let mut pair = Pair::new().await;
    let psk = bare(&pair.a, pair.group, |_, provider, _| {
        let psk = Psk::External(ExternalPsk::new(b"id".to_vec()));
        let psk = PreSharedKeyId::new(crate::profile::SUITE, provider.rand(), psk).unwrap();
        psk.store(provider, b"secret").unwrap();
        psk
    })
    .await;
    let proposals = vec![Proposal::PreSharedKey(Box::new(PreSharedKeyProposal::new(psk)))];
    let data = Rogue { proposals, ..Rogue::default() }.commit(&pair.a, pair.group).await;
    assert_eq!(failure(&mut pair, &data).await, InputFailure::PskInCommit);
}

/// The commit that raises the floor is held, and so is everything after it; nothing is sent into the group either.
#[tokio::test]
async fn a_floor_above_this_version_holds_the_group_from_that_commit_on() {
    let mut pair = Pair::new().await;
    let too_new = "99.0.0".to_owned();
    let refused = pair.a.commit(pair.group, Change::MinimumVersion(too_new.clone())).await;
    assert!(matches!(refused, Err(MlsError::GroupVersion(_))));
    let floor = too_new.clone();
    let rogue = Rogue::changing(&pair.a, pair.group, |after| after.minimum_version = Some(floor)).await;
    let data = rogue.commit(&pair.a, pair.group).await;
    assert_eq!(failure(&mut pair, &data).await, InputFailure::GroupVersion(too_new));
    let current = Change::MinimumVersion(CLIENT_VERSION.to_owned());
    let (_, prepared) = pair.a.change(&mut pair.world, pair.group, current).await;
    assert_eq!(pair.bob_reads(&prepared.data).await, Got::Merged);
}

#[tokio::test]
async fn a_message_that_claims_to_be_ours_is_only_reported() {
    let mut pair = Pair::new().await;
    let own = pair.b.encrypt(pair.group, "mine").await;
    assert_eq!(pair.bob_reads(&own).await, Got::Own);
}

/// What OpenMLS wouldn't let even a foreign client make, of the kinds that this version takes no part in. A pre-shared
/// key is told apart before this is asked.
///
/// Shows: STR-074.
#[test]
fn every_kind_of_proposal_outside_the_profile_is_held() {
    use openmls::group::{ProposalValidationError, StageCommitError};
    use openmls::prelude::{
        AppEphemeralProposal, CustomProposal, ExternalInitProposal, ReInitProposal, RemoveProposal,
    };
    use tls_codec::Deserialize as _;

    // Group id, MLS 1.0, suite 3, no extensions; a KEM output; a leaf's index.
    let reinit = ReInitProposal::tls_deserialize_exact([1, 9, 0, 1, 0, 3, 0]).unwrap();
    let init = ExternalInitProposal::tls_deserialize_exact([1, 9]).unwrap();
    let remove = RemoveProposal::tls_deserialize_exact([0, 0, 0, 1]).unwrap();
    let held = [
        ("reinit", Proposal::ReInit(Box::new(reinit))),
        ("external_init", Proposal::ExternalInit(Box::new(init))),
        ("self_remove", Proposal::SelfRemove),
        ("app_ephemeral", Proposal::AppEphemeral(Box::new(AppEphemeralProposal::new(1, vec![])))),
        ("custom", Proposal::Custom(Box::new(CustomProposal::new(0xf100, vec![])))),
    ];
    for (kind, proposal) in held {
        assert_eq!(crate::facts::accepted_kind(&proposal), Err(InputFailure::HeldProposal(kind)));
    }
    assert_eq!(crate::facts::accepted_kind(&Proposal::Remove(Box::new(remove))), Ok(()));
    // How OpenMLS reports a kind that a member of the group doesn't announce.
    let error = StageCommitError::ProposalValidationError(ProposalValidationError::UnsupportedProposalType);
    assert!(matches!(InputFailure::from(error), InputFailure::HeldProposal(_)));
}
