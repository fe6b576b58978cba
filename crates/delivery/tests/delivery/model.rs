//! Random histories against a model of one page.

use std::cell::Cell;

use highwater_delivery::{
    Consent, DefaultConsumer, DeliveryError, MIGRATIONS, Selection, confirm, delete, last_number, positions,
};
use highwater_store::Store;
use highwater_testkit_base::StoreFixture;
use highwater_wire::{GroupId, SequenceId};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::support::*;

const GROUPS: [GroupId; 3] = [A, B, C];

/// Delivery as the specification has it.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The last delivery number of earlier histories, all of it settled.
    base: usize,
    /// By delivery number from above that: group, name, deleted.
    numbered: Vec<(usize, String, bool)>,
    unpublished: Vec<(usize, String)>,
    delivered: [usize; 3],
    denied: [bool; 3],
    stored: usize,
}

/// What the reader of the moment was asked for.
#[derive(Clone, Copy, Debug)]
struct Reading {
    scope: [bool; 3],
    filters: bool,
    out: Option<usize>,
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(Vec<usize>),
    Prepare(usize),
    ConfirmOldest,
    ArriveAgain(prop::sample::Index),
    Delete(prop::sample::Index),
    Deny(usize, bool),
    Open([bool; 3], bool),
    Next,
    Acknowledge,
    Drop,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(0..3_usize, 1..5).prop_map(Step::Arrive),
        1 => (0..3_usize).prop_map(Step::Prepare),
        1 => Just(Step::ConfirmOldest),
        1 => any::<prop::sample::Index>().prop_map(Step::ArriveAgain),
        1 => any::<prop::sample::Index>().prop_map(Step::Delete),
        1 => (0..3_usize, any::<bool>()).prop_map(|(group, denied)| Step::Deny(group, denied)),
        3 => (any::<[bool; 3]>(), any::<bool>())
            .prop_map(|(scope, filters)| Step::Open(scope, filters)),
        9 => Just(Step::Next),
        2 => Just(Step::Acknowledge),
        1 => Just(Step::Drop),
        1 => Just(Step::Close),
    ]
}

impl Model {
    fn new_name(&mut self) -> String {
        self.stored += 1;
        format!("{}.{}", self.base, self.stored)
    }

    fn acknowledge(&mut self, reading: &mut Reading) {
        if let Some(number) = reading.out.take() {
            let group = self.numbered[number - self.base - 1].0;
            self.delivered[group] = self.delivered[group].max(number);
        }
    }

    /// The next item; what the filter excludes on the way is consumed.
    fn next(&mut self, reading: &mut Reading) -> String {
        self.acknowledge(reading);
        for (index, (group, name, deleted)) in self.numbered.iter().enumerate() {
            let number = self.base + index + 1;
            if *deleted || !reading.scope[*group] || number <= self.delivered[*group] {
                continue;
            }
            if reading.filters && self.denied[*group] {
                self.delivered[*group] = number;
                continue;
            }
            reading.out = Some(number);
            return name.clone();
        }
        String::new()
    }

    async fn agrees(&self, store: &Store) {
        assert_eq!(found_delivered(store).await, self.delivered);
    }
}

async fn found_delivered(store: &Store) -> [usize; 3] {
    let found: Result<_, DeliveryError> =
        store.read("D", |tx| Box::pin(async move { positions(tx).await })).await;
    let found = found.unwrap();
    GROUPS.map(|group| found.get(&group).map_or(0, |d| d.get() as usize))
}

fn selection(scope: [bool; 3], filters: bool) -> Selection {
    let groups = GROUPS.into_iter().zip(scope).filter(|(_, within)| *within);
    let selection = match scope {
        [true, true, true] => Selection::all(),
        _ => Selection::groups(groups.map(|(group, _)| group)),
    };
    if filters { selection.with_consent([Consent::Allowed]) } else { selection }
}

async fn deny(store: &Store, group: usize, denied: bool) {
    let consented = if denied { Consent::Denied } else { Consent::Allowed };
    consent(store, GROUPS[group], consented).await;
}

async fn remove(store: &Store, message: highwater_wire::MessageId) {
    let deleted: Result<bool, DeliveryError> =
        store.write("delete", move |tx| Box::pin(async move { delete(tx, message).await })).await;
    deleted.unwrap();
}

async fn confirm_one(store: &Store, message: highwater_wire::MessageId) {
    let sequence_id = SequenceId::try_from(9_u64).unwrap();
    let confirmed: Result<_, DeliveryError> = store
        .write("confirm", move |tx| Box::pin(async move { confirm(tx, message, sequence_id, 1, None).await }))
        .await;
    confirmed.unwrap();
}

async fn records(model: &mut Model, store: &Store, step: &Step) {
    match step {
        Step::Arrive(groups) => {
            let names: Vec<_> = groups.iter().map(|group| (*group, model.new_name())).collect();
            let messages = names.iter().map(|(group, name)| text(GROUPS[*group], name)).collect();
            publish(store, messages).await;
            model.numbered.extend(names.into_iter().map(|(group, name)| (group, name, false)));
        }
        Step::Prepare(group) => {
            let name = model.new_name();
            prepare(store, text(GROUPS[*group], &name)).await;
            model.unpublished.push((*group, name));
        }
        Step::ConfirmOldest if !model.unpublished.is_empty() => {
            let (group, name) = model.unpublished.remove(0);
            confirm_one(store, text(GROUPS[group], &name).id).await;
            model.numbered.push((group, name, false));
        }
        Step::ArriveAgain(index) if !model.numbered.is_empty() => {
            let (group, name, _) = index.get(&model.numbered);
            publish(store, vec![text(GROUPS[*group], name)]).await;
        }
        Step::Delete(index) if !model.numbered.is_empty() => {
            let index = index.index(model.numbered.len());
            let (group, name, deleted) = &mut model.numbered[index];
            remove(store, text(GROUPS[*group], name).id).await;
            *deleted = true;
        }
        Step::Deny(group, denied) => {
            deny(store, *group, *denied).await;
            model.denied[*group] = *denied;
        }
        _ => {}
    }
}

async fn reading(
    model: &mut Model,
    store: &Store,
    reader: &mut Option<(DefaultConsumer, Reading)>,
    step: &Step,
) {
    match (step, reader.as_mut()) {
        (Step::Open(scope, filters), None) => {
            let consumer = open(store, selection(*scope, *filters)).await;
            let reading = Reading { scope: *scope, filters: *filters, out: None };
            *reader = Some((consumer, reading));
        }
        (Step::Open(..), Some(_)) => {
            refused(store).await;
        }
        (Step::Next, Some((consumer, reading))) => {
            assert_eq!(next(consumer).await, model.next(reading));
        }
        (Step::Acknowledge, Some((consumer, reading))) => {
            consumer.acknowledge().await.unwrap();
            model.acknowledge(reading);
        }
        (Step::Drop, _) => *reader = None,
        (Step::Close, Some(_)) => {
            if let Some((consumer, _)) = reader.take() {
                consumer.release().await.unwrap();
            }
        }
        _ => {}
    }
}

/// One history, and then everything it left.
async fn run(store: &Store, steps: Vec<Step>) {
    let last: Result<u64, DeliveryError> =
        store.read("last", |tx| Box::pin(async move { last_number(tx).await })).await;
    let base = last.unwrap() as usize;
    let mut model = Model { base, delivered: found_delivered(store).await, ..Model::default() };
    let mut reader = None;
    for step in steps {
        records(&mut model, store, &step).await;
        reading(&mut model, store, &mut reader, &step).await;
        // Whatever else might move D shows at the next of these.
        if matches!(step, Step::Next | Step::Acknowledge) {
            model.agrees(store).await;
        }
    }
    drop(reader);
    model.agrees(store).await;
    let mut rest = Reading { scope: [true; 3], filters: false, out: None };
    let mut owed = Vec::new();
    loop {
        match model.next(&mut rest) {
            name if name.is_empty() => break,
            name => owed.push(name),
        }
    }
    assert_eq!(deliver(store, Selection::all()).await, owed);
    model.agrees(store).await;
    for (group, _) in model.denied.iter().enumerate().filter(|(_, denied)| **denied) {
        deny(store, group, false).await;
    }
}

/// Shows: STR-090, STR-091, STR-092, STR-093, STR-094, PROC-024, PROC-026, PROC-047.
#[test]
fn handoffs_and_positions_follow_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(async {
        let fixture = StoreFixture::fleeting(vec![MIGRATIONS]).await;
        for group in GROUPS {
            put(fixture.store(), conversation(group)).await;
        }
        fixture
    });
    let store = fixture.store();
    let mut runner = TestRunner::new(ProptestConfig { cases: runs(), ..ProptestConfig::default() });
    let failed = Cell::new(false);
    let runs = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        runtime.block_on(async {
            // What the one before left, if it ended early.
            if failed.replace(true) {
                for group in 0..3 {
                    deny(store, group, false).await;
                }
                deliver(store, Selection::all()).await;
            }
            run(store, steps).await;
            failed.set(false);
        });
        Ok(())
    });
    runs.unwrap_or_else(|failed| panic!("{failed}"));
    runtime.block_on(sound(store));
}
