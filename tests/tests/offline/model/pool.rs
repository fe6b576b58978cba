//! What the streams are made of: real envelopes of several groups, and the client that they arrive at.

use std::collections::{BTreeMap, BTreeSet};

use highwater_mls::{Change, MlsError, Trial};
use highwater_tests::{Foreign, Peer, PeerImage, RawCommit, World};
use highwater_wire::{GroupId, InboxId, InstallationKey};
use openmls::prelude::{OpenMlsProvider as _, Propose};

/// What an envelope of the pool is. A branch is the number of the commit that an epoch began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Garbage,
    OtherVersion,
    Text,
    Proposal,
    Commit,
    Removal,
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// The epoch it is of, and the commit that began that epoch: another one leads to other keys.
    pub(super) epoch: usize,
    pub(super) began: usize,
    /// For a commit, its own number.
    pub(super) number: usize,
    /// What a text says, what a proposal proposes, and for a commit the proposal that it references.
    pub(super) text: String,
    pub(super) data: Vec<u8>,
}

/// Carol's client when she has joined every group, and envelopes of each group that might arrive after that.
pub(super) struct Pool {
    pub(super) world: World,
    pub(super) carol: PeerImage,
    pub(super) groups: Vec<(GroupId, Vec<Item>)>,
}

const GROUPS: usize = 8;
const EPOCHS: usize = 6;
/// Commits from here on are ones that nobody goes on from.
pub(super) const RIVALS: usize = 100;
const NAME: u16 = 0x8004;

impl Pool {
    pub(super) async fn new() -> Self {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let carol = Peer::new(&mut world).await;
        let mut joined = Vec::new();
        for _ in 0..GROUPS {
            let mut mallory = Foreign::new(&mut world);
            let members = BTreeSet::from([carol.inbox, mallory.inbox]);
            let group = alice.create_group_of(&mut world, members).await;
            mallory.join(&world);
            carol.join(&world).await;
            carol.publish_key_package(&mut world).await;
            carol.catch_up(&world, group).await;
            joined.push((group, mallory));
        }
        let base = world.clone();
        let mut groups = Vec::new();
        for (group, mut mallory) in joined {
            let leaving = (carol.inbox, carol.installation);
            groups.push((group, items(&mut world, &alice, leaving, group, &mut mallory).await));
        }
        Self { world: base, carol: carol.into_image().await, groups }
    }
}

async fn items(
    world: &mut World,
    alice: &Peer,
    (inbox, installation): (InboxId, InstallationKey),
    group: GroupId,
    mallory: &mut Foreign,
) -> Vec<Item> {
    let mut items = Vec::new();
    let item =
        |kind, epoch, number, data| Item { kind, epoch, began: epoch, number, text: String::new(), data };
    for epoch in 0..EPOCHS {
        for n in 0..3 {
            let text = format!("{epoch}.{n}");
            let data = mallory.say(&text);
            items.push(Item { text, ..item(Kind::Text, epoch, 0, data) });
        }
        let rival = mallory.commit(RawCommit::default());
        items.push(item(Kind::Commit, epoch, RIVALS + epoch, rival));
        let name = format!("name {epoch}");
        let proposal = mallory.propose(Propose::UpdateAppDataComponent {
            component_id: NAME,
            update: name.clone().into_bytes(),
        });
        items.push(Item { text: name.clone(), ..item(Kind::Proposal, epoch, 0, proposal.clone()) });
        let referencing = || RawCommit {
            take_up_stored: true,
            values: vec![(NAME, name.clone().into_bytes())],
            ..RawCommit::default()
        };
        let rival = mallory.commit(referencing());
        items.push(Item { text: name.clone(), ..item(Kind::Commit, epoch, RIVALS + EPOCHS + epoch, rival) });
        if epoch == 3 {
            let data = removal(alice, group, inbox, installation).await;
            items.push(item(Kind::Removal, epoch, 2 * RIVALS, data));
        }
        // Two epochs end by a commit of the proposal, the others leave it.
        let next = if epoch % 3 == 1 {
            world.publish_data(group, proposal);
            let data = mallory.advance(referencing());
            Item { text: name.clone(), ..item(Kind::Commit, epoch, epoch + 1, data) }
        } else {
            let (state, provider, _) = mallory.parts();
            state.clear_pending_proposals(provider.storage()).unwrap();
            item(Kind::Commit, epoch, epoch + 1, mallory.advance(RawCommit::default()))
        };
        world.publish_data(group, next.data.clone());
        alice.catch_up(world, group).await;
        items.push(next);
    }
    items.push(item(Kind::Garbage, 0, 0, vec![0, 1, 0, 2, 9, 9]));
    items.push(item(Kind::OtherVersion, 0, 0, vec![0, 2, 0, 2, 9, 9]));
    items
}

/// A commit that removes a member, and that its maker forgets.
async fn removal(alice: &Peer, group: GroupId, inbox: InboxId, installation: InstallationKey) -> Vec<u8> {
    let change = Change::Membership {
        upsert: BTreeMap::new(),
        remove: BTreeSet::from([inbox]),
        add_leaves: Vec::new(),
        remove_leaves: BTreeSet::from([installation]),
    };
    alice
        .write(move |tx| {
            Box::pin(async move {
                let mut trial = Trial::load(tx, group).await?.expect("a group");
                Ok::<_, MlsError>(trial.commit(change)?.data)
            })
        })
        .await
}
