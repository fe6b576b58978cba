//! Every row of the disposition tables, reached by inputs that real clients made, through ordered processing on a real
//! database. The snapshot of the table itself is processing's.

mod commits;
mod effects;
mod epochs;
mod identity;
mod messages;
mod own;
mod policy;
mod proposals;

use std::collections::BTreeSet;

use highwater_mls::{Change, MlsError, PolicyViolation, Resolutions, Trial};
use highwater_processing::{HoldCause, Reason, Stop};
use highwater_tests::{Foreign, Peer, ProcessReport, World};
use highwater_wire::proto::backend::client_envelope;
use highwater_wire::{GroupId, InstallationKey, SequenceId, Topic};

/// What a test shows: the codes it met, all of them and no other.
type Codes = &'static [&'static str];

/// A group that Alice made for Carol and for Mallory, whose client says anything. Alice reads it and judges.
struct Scene {
    world: World,
    alice: Peer,
    carol: Peer,
    mallory: Foreign,
    group: GroupId,
    seen: BTreeSet<String>,
}

impl Scene {
    async fn new() -> Self {
        let mut world = World::new();
        let alice = Peer::new(&mut world).await;
        let carol = Peer::new(&mut world).await;
        let mut mallory = Foreign::new(&mut world);
        let members = BTreeSet::from([carol.inbox, mallory.inbox]);
        let group = alice.create_group_of(&mut world, members).await;
        mallory.join(&world);
        Self { world, alice, carol, mallory, group, seen: BTreeSet::new() }
    }

    fn topic(&self) -> Topic {
        Topic::group(self.group)
    }

    /// Publishes a message and says what becomes of it at its place.
    async fn judge(&mut self, data: Vec<u8>) -> String {
        let at = self.world.publish_data(self.group, data);
        self.judge_at(at).await
    }

    /// What becomes of the last envelope of the topic.
    async fn judge_at(&mut self, at: SequenceId) -> String {
        let report = self.alice.catch_up(&self.world, self.group).await;
        self.note(at, report).await
    }

    async fn note(&mut self, at: SequenceId, report: ProcessReport) -> String {
        let code = verdict(&self.alice, self.topic(), at, report).await;
        if code != "applied" {
            self.seen.insert(code.clone());
        }
        code
    }

    /// Processes with these answers at hand.
    async fn judge_with(&mut self, at: SequenceId, resolutions: Resolutions) -> String {
        let report = self.alice.process_with(self.topic(), resolutions).await;
        self.note(at, report).await
    }

    /// A commit of Alice's that her outbox would not make, with its Welcomes. It has no attempt on record.
    async fn alice_commits(&mut self, change: Change) -> Vec<u8> {
        let group = self.group;
        let prepared = self
            .alice
            .write(move |tx| {
                Box::pin(async move {
                    let mut trial = Trial::load(tx, group).await?.expect("a group");
                    let prepared = trial.commit(change)?;
                    trial.store(tx).await?;
                    Ok::<_, MlsError>(prepared)
                })
            })
            .await;
        let at = self.world.publish_data(group, prepared.data.clone());
        self.alice
            .write(move |tx| {
                Box::pin(async move {
                    let mut trial = Trial::load(tx, group).await?.expect("a group");
                    let own = trial.own_pending_commit()?.expect("a commit is pending");
                    trial.merge_own(own, at)?;
                    trial.store(tx).await
                })
            })
            .await;
        if let Some(welcome) = &prepared.welcome {
            for sealed in highwater_mls::seal_welcomes(welcome, at, &prepared.added).unwrap() {
                self.world.publish(&sealed);
            }
        }
        prepared.data
    }

    fn newest_key_package(&self, installation: InstallationKey) -> Vec<u8> {
        match &self.world.newest(Topic::key_package(installation)).unwrap().payload {
            Some(client_envelope::Payload::KeyPackage(package)) => package.key_package_tls_serialized.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The group still works, nothing is damaged, and the test met what it says.
    async fn end(mut self, codes: Codes) {
        let text = self.mallory.say("after all that");
        assert_eq!(self.judge(text).await, "applied");
        self.end_held(codes).await;
    }

    /// The same where the topic ends held.
    async fn end_held(self, codes: Codes) {
        self.alice.audit().await;
        let codes: BTreeSet<_> = codes.iter().map(|code| (*code).to_owned()).collect();
        assert_eq!(self.seen, codes);
    }
}

/// The code an envelope was rejected or held with.
async fn verdict(judge: &Peer, topic: Topic, at: SequenceId, report: ProcessReport) -> String {
    if let Some(Stop::Held(hold)) = report.stop {
        assert_eq!(hold.sequence_id, at);
        let stored = judge.held(topic).await.expect("the held head is on record");
        assert_eq!((stored.sequence_id, stored.code.as_str()), (at, hold.cause.code()));
        assert!(judge.processed(topic).await < at.get(), "P stays before a held envelope");
        return stored.code;
    }
    assert_eq!(judge.processed(topic).await, at.get());
    assert_eq!(judge.held(topic).await, None);
    let rejected = judge.rejections(topic).await;
    let of = rejected.into_iter().find(|rejection| rejection.sequence_id == at);
    of.map_or("applied".to_owned(), |rejection| rejection.code)
}

/// Codes that no input can lead to, and why.
const UNREACHABLE: [(&str, &str); 2] = [
    (
        "policy_not_from_member",
        "the sender of a PrivateMessage is a leaf, and the proposals of a commit are its committer's or stored ones",
    ),
    (
        "policy_entry_not_before",
        "identity_not_before comes first; the rule is kept for who calls check_commit alone",
    ),
];

/// Every code that a database can hold is met by a test of this module, or there is a reason why it can't be.
///
/// Shows: PROC-011, PROC-012, STR-074.
#[test]
fn every_code_is_reached() {
    let tests = [
        commits::CODES,
        commits::EXPIRED,
        commits::FLOOR,
        commits::HELD,
        epochs::CODES,
        epochs::BEFORE_JOIN,
        identity::CODES,
        identity::REFERENCES,
        messages::CODES,
        messages::HELD,
        own::CODES,
        own::STALE,
        own::COMMITS,
        policy::CODES,
        policy::DM,
        policy::LONE,
        proposals::CODES,
        proposals::LOST,
    ];
    let reached: BTreeSet<_> = tests.concat().into_iter().collect();
    let excused: BTreeSet<_> = UNREACHABLE.map(|(code, _)| code).into();
    let all: BTreeSet<_> = Reason::all().map(|reason| reason.code()).chain(HoldCause::CODES).collect();
    assert_eq!(&reached & &excused, BTreeSet::new(), "reached after all");
    assert_eq!(&reached | &excused, all);
    assert!(all.len() > PolicyViolation::ALL.len());
}
