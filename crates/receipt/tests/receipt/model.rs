//! Random histories against a model of one page.

use std::collections::{BTreeMap, BTreeSet};

use highwater_receipt::{Admission, AdmitError, ReceiptError, admit, anchor, settle_one, settle_through};
use highwater_store::Store;
use highwater_wire::Topic;
use proptest::prelude::*;

use crate::support::*;

/// F and the pending ids of every topic, as the specification has it.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<Topic, (u64, BTreeSet<u64>)>);

#[derive(Clone, Debug)]
enum Step {
    /// Offers a prefix that starts `back` ids below F (or above it, when negative), with the given
    /// distances between its ids.
    Admit {
        topic: usize,
        back: i64,
        steps: Vec<u64>,
        fails: bool,
    },
    SettleThrough {
        topic: usize,
        id: u64,
    },
    SettleOne {
        topic: usize,
        id: u64,
    },
    Anchor {
        topic: usize,
        id: u64,
        fails: bool,
    },
    Reopen,
}

fn topics() -> [Topic; 4] {
    [group(1), group(2), welcome(1), identity(1)]
}

fn step() -> impl Strategy<Value = Step> {
    let topic = 0..4_usize;
    let ids = 1..60_u64;
    let fails = prop::bool::weighted(0.2);
    prop_oneof![
        6 => (topic.clone(), -2..8_i64, prop::collection::vec(1..4_u64, 0..6), fails)
            .prop_map(|(topic, back, steps, fails)| Step::Admit { topic, back, steps, fails }),
        2 => (topic.clone(), ids.clone())
            .prop_map(|(topic, id)| Step::SettleThrough { topic, id }),
        2 => (topic.clone(), ids.clone()).prop_map(|(topic, id)| Step::SettleOne { topic, id }),
        1 => (topic, ids, fails).prop_map(|(topic, id, fails)| Step::Anchor { topic, id, fails }),
        1 => Just(Step::Reopen),
    ]
}

impl Model {
    fn topic(&mut self, topic: Topic) -> &mut (u64, BTreeSet<u64>) {
        self.0.entry(topic).or_default()
    }

    async fn agrees(&self, store: &Store) {
        for topic in topics() {
            let (received, pending) = self.0.get(&topic).cloned().unwrap_or_default();
            assert_eq!(f(store, topic).await, received, "F of {topic:?}");
            let held: Vec<_> = pending.into_iter().collect();
            assert_eq!(ids(store, topic).await, held, "pending of {topic:?}");
        }
        sound(store).await;
    }
}

fn give_up<T>(done: T, fails: bool) -> Result<T, AdmitError> {
    if fails { Err(ReceiptError::Damaged("a later step").into()) } else { Ok(done) }
}

async fn offer(model: &mut Model, store: &Store, topic: Topic, back: i64, steps: &[u64], fails: bool) {
    let (received, pending) = model.topic(topic);
    let after = received.saturating_add_signed(-back);
    let offered: Vec<_> = steps
        .iter()
        .scan(after, |last, step| {
            *last += step;
            Some(*last)
        })
        .collect();
    let offer = prefix(topic, after, offered.iter().copied());
    let outcome = store
        .write("model admit", move |tx| Box::pin(async move { give_up(admit(tx, &offer).await?, fails) }))
        .await;
    let new: Vec<_> = offered.into_iter().filter(|id| id > received).collect();
    if after > *received {
        assert!(matches!(outcome, Err(AdmitError::Gap { .. })), "{outcome:?}");
    } else if fails {
        outcome.unwrap_err();
    } else if new.is_empty() {
        assert!(matches!(outcome, Ok(Admission::Duplicate { .. })), "{outcome:?}");
    } else {
        let Ok(Admission::Admitted { rows, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(rows as usize, new.len());
        *received = new[new.len() - 1];
        pending.extend(new);
    }
}

async fn take(model: &mut Model, fixture: &mut highwater_testkit_base::StoreFixture, step: Step) {
    let store = fixture.store().clone();
    match step {
        Step::Admit { topic, back, steps, fails } => {
            offer(model, &store, topics()[topic], back, &steps, fails).await;
        }
        Step::SettleThrough { topic, id: through } => {
            let topic = topics()[topic];
            let settled: Result<u64, ReceiptError> = store
                .write("model settle", move |tx| {
                    Box::pin(async move { settle_through(tx, topic, id(through)).await })
                })
                .await;
            let (_, pending) = model.topic(topic);
            let kept = pending.split_off(&(through + 1));
            assert_eq!(settled.unwrap(), pending.len() as u64);
            *pending = kept;
        }
        Step::SettleOne { topic, id: one } => {
            let topic = topics()[topic];
            let settled: Result<bool, ReceiptError> = store
                .write("model settle", move |tx| {
                    Box::pin(async move { settle_one(tx, topic, id(one)).await })
                })
                .await;
            assert_eq!(settled.unwrap(), model.topic(topic).1.remove(&one));
        }
        Step::Anchor { topic, id: to, fails } => {
            let topic = topics()[topic];
            let anchored: Result<_, AdmitError> = store
                .write("model anchor", move |tx| {
                    Box::pin(async move { give_up(anchor(tx, topic, id(to)).await?, fails) })
                })
                .await;
            if fails {
                anchored.unwrap_err();
            } else {
                let (received, pending) = model.topic(topic);
                *received = (*received).max(to);
                *pending = pending.split_off(&(to + 1));
                assert_eq!(anchored.unwrap().cursor().get(), *received);
            }
        }
        Step::Reopen => {
            drop(store);
            fixture.reopen().await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Shows: STR-061, STR-062, PROC-002, PROC-010.
    #[test]
    fn positions_and_pending_envelopes_follow_the_model(
        steps in prop::collection::vec(step(), 1..25),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut fixture = store().await;
            let mut model = Model::default();
            for step in steps {
                take(&mut model, &mut fixture, step).await;
                model.agrees(fixture.store()).await;
            }
        });
    }
}
