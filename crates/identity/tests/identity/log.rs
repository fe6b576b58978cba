//! Whole logs.

use std::collections::BTreeMap;

use highwater_identity::{AssociationState, Invalid, LogEntry, Verdicts, fold};
use highwater_wire::{SequenceId, proto::associations::IdentityUpdate};
use proptest::prelude::*;

use crate::actors::{Act, Actor, inbox_of, installation, passkey, update, wallet};

fn entry(sequence_id: u64, update: IdentityUpdate) -> LogEntry {
    LogEntry { sequence_id: SequenceId::try_from(sequence_id).unwrap(), update }
}

#[test]
fn an_empty_log_has_no_state() {
    assert_eq!(fold(inbox_of(&wallet(1)), &[], &Verdicts::default()), Ok(None));
}

#[test]
fn a_log_is_invalid_from_its_first_invalid_entry_on() {
    let (owner, second, phone) = (wallet(1), wallet(2), installation(1));
    let id = inbox_of(&owner);
    let log = [
        entry(3, update(id, 1, &[Act::Create { by: &owner, nonce: 0 }])),
        entry(8, update(id, 2, &[Act::Revoke { by: &second, whom: &owner }])),
        entry(9, update(id, 3, &[Act::Add { by: &owner, new: &phone }])),
    ];
    let error = fold(id, &log, &Verdicts::default()).unwrap_err();
    assert_eq!((error.at.get(), &error.reason), (8, &Invalid::NotRecovery(second.id())));
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("at 8"));
    assert!(fold(id, &log[..1], &Verdicts::default()).unwrap().is_some());
}

#[test]
fn a_log_out_of_order_is_no_log() {
    let (owner, phone) = (wallet(1), installation(1));
    let id = inbox_of(&owner);
    let create = update(id, 1, &[Act::Create { by: &owner, nonce: 0 }]);
    let add = update(id, 2, &[Act::Add { by: &owner, new: &phone }]);
    for (one, two) in [(5, 5), (5, 4)] {
        let log = [entry(one, create.clone()), entry(two, add.clone())];
        let error = fold(id, &log, &Verdicts::default()).unwrap_err();
        assert_eq!((error.at.get(), error.reason), (two, Invalid::LogOrder));
    }
}

/// Three wallets, a passkey and three installations, by index.
fn cast() -> Vec<Actor> {
    vec![wallet(1), wallet(2), wallet(3), passkey(4), installation(5), installation(6), installation(7)]
}

const ROOTS: usize = 4;

#[derive(Debug, Clone)]
enum Step {
    Add { by: usize, new: usize },
    Revoke { by: usize, whom: usize },
    Recover { by: usize, to: usize },
}

impl Step {
    fn act<'a>(&self, cast: &'a [Actor]) -> Act<'a> {
        match *self {
            Step::Add { by, new } => Act::Add { by: &cast[by], new: &cast[new] },
            Step::Revoke { by, whom } => Act::Revoke { by: &cast[by], whom: &cast[whom] },
            Step::Recover { by, to } => Act::Recover { by: &cast[by], to: &cast[to] },
        }
    }
}

/// The rules again, over indices and without signatures.
#[derive(Clone)]
struct Model {
    recovery: usize,
    members: BTreeMap<usize, Option<usize>>,
}

impl Model {
    fn step(&mut self, step: &Step) -> Result<(), &'static str> {
        match *step {
            Step::Add { by, new } => {
                if !self.members.contains_key(&by) {
                    return Err("not_a_member");
                }
                if by >= ROOTS && new >= ROOTS {
                    return Err("installation_adds_installation");
                }
                if self.members.contains_key(&new) {
                    return Err("already_member");
                }
                self.members.insert(new, Some(by));
            }
            Step::Revoke { by, .. } | Step::Recover { by, .. } if by != self.recovery => {
                return Err("not_recovery");
            }
            Step::Revoke { whom, .. } => {
                self.members.remove(&whom);
                self.members.retain(|member, by| *member < ROOTS || *by != Some(whom));
            }
            Step::Recover { to, .. } => self.recovery = to,
        }
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly the first wallets act, so that a fair part of the steps is allowed.
    let by = prop_oneof![4 => 0..2usize, 1 => 0..7usize];
    prop_oneof![
        4 => (by.clone(), 0..7usize).prop_map(|(by, new)| Step::Add { by, new }),
        2 => (by.clone(), 0..7usize).prop_map(|(by, whom)| Step::Revoke { by, whom }),
        1 => (by, 0..ROOTS).prop_map(|(by, to)| Step::Recover { by, to }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_log_folds_to_what_its_updates_make_one_by_one(
        updates in prop::collection::vec(prop::collection::vec(step(), 1..4), 1..14),
    ) {
        let cast = cast();
        let id = inbox_of(&cast[0]);
        let none = Verdicts::default();
        let mut log = vec![entry(1, update(id, 1, &[Act::Create { by: &cast[0], nonce: 0 }]))];
        let mut state = fold(id, &log, &none).unwrap().unwrap();
        let mut model = Model { recovery: 0, members: BTreeMap::from([(0, None)]) };

        for (index, steps) in updates.iter().enumerate() {
            let second = index as u64 + 2;
            let acts: Vec<Act<'_>> = steps.iter().map(|step| step.act(&cast)).collect();
            let offered = update(id, second, &acts);
            let mut after = model.clone();
            let expected = steps.iter().try_for_each(|step| after.step(step));
            let got = AssociationState::apply(Some(&state), id, &offered, &none);
            prop_assert_eq!(got.as_ref().map(|_| ()).map_err(Invalid::code), expected);

            let mut extended = log.clone();
            extended.push(entry(second * 10, offered));
            match got {
                Ok(next) => {
                    prop_assert_eq!(fold(id, &extended, &none), Ok(Some(next.clone())));
                    (state, log, model) = (next, extended, after);
                }
                Err(reason) => {
                    let error = fold(id, &extended, &none).unwrap_err();
                    prop_assert_eq!((error.at.get(), error.reason), (second * 10, reason));
                }
            }
            prop_assert_eq!(state.recovery(), &cast[model.recovery].id());
            let members: BTreeMap<_, _> = state
                .members()
                .iter()
                .map(|(member, how)| (member.clone(), how.added_by.clone()))
                .collect();
            let expected: BTreeMap<_, _> = model
                .members
                .iter()
                .map(|(member, by)| (cast[*member].id(), by.map(|by| cast[by].id())))
                .collect();
            prop_assert_eq!(members, expected);
        }

        // No update of the log can be used again.
        for entry in &log {
            let again = AssociationState::apply(Some(&state), id, &entry.update, &none);
            let code = again.map(|_| ()).map_err(|reason| reason.code());
            prop_assert!(matches!(code, Err("signature_replayed" | "already_created")));
        }
    }
}
