//! Random lives of several consumers of one database against a model of who owns it.

use std::{cell::Cell, time::Duration};

use highwater_delivery::{
    ConsumerError, DEFAULT_CONSUMER_LEASE, DefaultConsumer, DeliveryError, MIGRATIONS, Selection, owner,
    positions,
};
use highwater_store::Store;
use highwater_testkit_base::StoreFixture;
use highwater_wire::GroupId;
use proptest::{prelude::*, test_runner::TestRunner};

use crate::support::*;

const GROUPS: [GroupId; 2] = [A, B];
const LEASE: i64 = DEFAULT_CONSUMER_LEASE.as_nanos() as i64;
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    Open(usize),
    Next(usize),
    Acknowledge(usize),
    /// Its process dies: the lock is freed, the row stays.
    Kill(usize),
    Close(usize),
    /// The wall clock goes on or jumps, by so many sixths of a lease. A consumer that does nothing meanwhile is frozen.
    Clock(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize).prop_map(Step::Arrive),
        4 => (0..3_usize).prop_map(Step::Open),
        8 => (0..3_usize).prop_map(Step::Next),
        3 => (0..3_usize).prop_map(Step::Acknowledge),
        1 => (0..3_usize).prop_map(Step::Kill),
        1 => (0..3_usize).prop_map(Step::Close),
        3 => (-20..20_i64).prop_map(Step::Clock),
    ]
}

/// One consumer as the model has it.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    out: Option<u64>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Model {
    /// Whose token the row has, while there is one, and the end of its lease. `None` is a life that is over.
    row: Option<(Option<usize>, i64)>,
    lives: [Option<Life>; 3],
    /// Group by delivery number, from the first of this run.
    numbered: Vec<usize>,
    first: u64,
    delivered: [u64; 2],
    now: i64,
    /// What was acknowledged, in order.
    settled: Vec<u64>,
}

/// What a request comes to.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Item(u64),
    Nothing,
    Lost,
    Ended,
    Stored,
}

impl Model {
    fn candidate(&self) -> Option<u64> {
        let numbers = (self.first..).zip(&self.numbered);
        numbers.filter(|(number, group)| *number > self.delivered[**group]).map(|(number, _)| number).next()
    }

    /// Whether nobody else has become the owner. It ends the consumer's life if somebody has.
    fn owns(&mut self, who: usize) -> bool {
        let owns = matches!(self.row, Some((Some(holder), _)) if holder == who);
        self.lives[who].as_mut().unwrap().ended = !owns;
        owns
    }

    /// A lease that ran out while nobody asked for the place is taken anew by the next change.
    fn retake(&mut self) {
        let (_, until) = self.row.as_mut().unwrap();
        if *until <= self.now {
            *until = self.now + LEASE;
        }
    }

    fn settle(&mut self, who: usize) {
        if let Some(number) = self.lives[who].as_mut().unwrap().out.take() {
            let group = self.numbered[(number - self.first) as usize];
            assert!(self.delivered[group] < number, "D would fall");
            self.delivered[group] = number;
            self.settled.push(number);
        }
    }

    fn next(&mut self, who: usize) -> Answer {
        let life = self.lives[who].unwrap();
        if life.ended {
            return Answer::Ended;
        }
        if !self.owns(who) {
            return Answer::Lost;
        }
        if life.out.is_none() && self.candidate().is_none() {
            return Answer::Nothing;
        }
        self.retake();
        self.settle(who);
        let next = self.candidate();
        self.lives[who].as_mut().unwrap().out = next;
        next.map_or(Answer::Nothing, Answer::Item)
    }

    fn acknowledge(&mut self, who: usize) -> Answer {
        let life = self.lives[who].unwrap();
        match (life.ended, life.out) {
            (true, _) => return Answer::Ended,
            (false, None) => return Answer::Stored,
            (false, Some(_)) => {}
        }
        if !self.owns(who) {
            return Answer::Lost;
        }
        self.retake();
        self.settle(who);
        Answer::Stored
    }

    /// `Ok` for an owner, or until when another is.
    fn open(&mut self, who: usize) -> Result<(), i64> {
        if let Some((Some(holder), until)) = &mut self.row
            && *until > self.now
            && self.lives[*holder].is_some_and(|life| !life.ended)
        {
            *until = (*until).min(self.now + LEASE);
            return Err(*until);
        }
        self.row = Some((Some(who), self.now + LEASE));
        self.lives[who] = Some(Life::default());
        Ok(())
    }

    fn kill(&mut self, who: usize) {
        self.lives[who] = None;
        if let Some((holder, _)) = &mut self.row
            && *holder == Some(who)
        {
            *holder = None;
        }
    }

    fn close(&mut self, who: usize) {
        self.lives[who] = None;
        self.row = self.row.filter(|(holder, _)| *holder != Some(who));
    }
}

fn answer(asked: Result<Answer, ConsumerError>) -> Answer {
    match asked {
        Ok(answer) => answer,
        Err(ConsumerError::OwnershipLost) => Answer::Lost,
        Err(ConsumerError::Ended) => Answer::Ended,
        Err(error) => panic!("{error:?}"),
    }
}

/// The database and its three processes. A process has a connection of its own, and the lock files of a database keep
/// apart consumers of one process as they do those of several.
struct World {
    fixture: StoreFixture,
    stores: [Store; 3],
    names: Cell<u64>,
    /// A run has begun and not ended: if another begins, that one failed.
    under_way: Cell<bool>,
}

impl World {
    async fn new() -> Self {
        let fixture = StoreFixture::fleeting(vec![MIGRATIONS]).await;
        for group in GROUPS {
            put(fixture.store(), conversation(group)).await;
        }
        let stores = [fixture.store().clone(), fixture.another().await, fixture.another().await];
        Self { fixture, stores, names: Cell::new(0), under_way: Cell::new(false) }
    }

    async fn delivered(&self) -> [u64; 2] {
        let found: Result<_, DeliveryError> =
            self.stores[0].read("D", |tx| Box::pin(async move { positions(tx).await })).await;
        let found = found.unwrap();
        GROUPS.map(|group| found.get(&group).map_or(0, |d| d.get()))
    }

    async fn run(&self, steps: Vec<Step>) {
        let clock = self.fixture.clock();
        clock.set(highwater_testkit_base::START_NS);
        if self.under_way.replace(true) {
            deliver(&self.stores[0], Selection::all()).await;
        }
        let mut model = Model {
            first: self.names.get() + 1,
            delivered: self.delivered().await,
            now: highwater_testkit_base::START_NS,
            ..Model::default()
        };
        let mut consumers: [Option<DefaultConsumer>; 3] = Default::default();
        for step in steps {
            self.step(&mut model, &mut consumers, &step).await;
            // Whatever else might move D shows at the next of these.
            if matches!(step, Step::Next(_) | Step::Acknowledge(_)) {
                assert_eq!(self.delivered().await, model.delivered, "D after {step:?}");
            }
        }
        drop(consumers);
        assert_eq!(self.delivered().await, model.delivered, "D at the end");
        let rest: Vec<_> = (model.first..)
            .zip(&model.numbered)
            .filter(|(number, group)| *number > model.delivered[**group])
            .map(|(number, _)| number.to_string())
            .collect();
        let settled = model.settled.iter().map(u64::to_string);
        let all: Vec<_> = settled.chain(deliver(&self.stores[0], Selection::all()).await).collect();
        let expected: Vec<_> = (model.first..).take(model.numbered.len()).map(|n| n.to_string()).collect();
        assert_eq!(all, expected, "each acknowledged once, in order; {rest:?} were left");
        self.under_way.set(false);
    }

    async fn step(&self, model: &mut Model, consumers: &mut [Option<DefaultConsumer>; 3], step: &Step) {
        match *step {
            Step::Arrive(group) => {
                self.names.set(self.names.get() + 1);
                publish(&self.stores[group], vec![text(GROUPS[group], &self.names.get().to_string())]).await;
                model.numbered.push(group);
            }
            Step::Open(who) if consumers[who].is_none() => {
                match DefaultConsumer::acquire(self.stores[who].clone(), Selection::all()).await {
                    Ok(consumer) => {
                        assert_eq!(model.open(who), Ok(()));
                        consumers[who] = Some(consumer);
                    }
                    Err(ConsumerError::AlreadyActive { until_ns, .. }) => {
                        assert_eq!(model.open(who), Err(until_ns));
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            Step::Next(who) => {
                let Some(consumer) = &mut consumers[who] else { return };
                let item = consumer.next().await;
                let number = |item: highwater_delivery::Item| item.cursor.number().unwrap().get();
                let got =
                    answer(item.map(|item| item.map_or(Answer::Nothing, |it| Answer::Item(number(it)))));
                assert_eq!(got, model.next(who), "{who}");
            }
            Step::Acknowledge(who) => {
                let Some(consumer) = &mut consumers[who] else { return };
                let got = answer(consumer.acknowledge().await.map(|()| Answer::Stored));
                assert_eq!(got, model.acknowledge(who), "{who}");
            }
            Step::Kill(who) => {
                consumers[who] = None;
                model.kill(who);
            }
            Step::Close(who) => {
                let Some(consumer) = consumers[who].take() else { return };
                consumer.release().await.unwrap();
                model.close(who);
            }
            Step::Clock(sixths) => {
                model.now += sixths * LEASE / 6;
                self.fixture.clock().set(model.now);
            }
            Step::Open(_) => {}
        }
    }
}

/// D never falls, there is one owner at a time whatever the clock does, and nothing is skipped or acknowledged twice.
/// Shows: STR-091, STR-095, STR-096, PROC-026, PROC-031.
#[test]
fn ownership_follows_its_model_over_deaths_freezes_and_jumps_of_the_clock() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let mut runner = TestRunner::new(ProptestConfig { cases: runs(), ..ProptestConfig::default() });
    let runs = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        runtime.block_on(world.run(steps));
        Ok(())
    });
    runs.unwrap_or_else(|failed| panic!("{failed}"));
    runtime.block_on(async {
        sound(&world.stores[0]).await;
        let recorded: Result<_, DeliveryError> =
            world.stores[1].read("owner", |tx| Box::pin(async move { owner(tx).await })).await;
        assert!(recorded.unwrap().is_none());
    });
}

/// The clock goes back by a day while the owner is frozen. Whoever asks waits one lease, not a day.
/// Shows: STR-096, PROC-031.
#[tokio::test]
async fn a_clock_that_goes_back_does_not_keep_a_frozen_owner_in_its_place() {
    let fixture = store().await;
    let store = fixture.store();
    arrive(store, &[(A, "a")]).await;
    let mut frozen = open(store, Selection::all()).await;
    assert_eq!(next(&mut frozen).await, "a");
    let yesterday = store.now_ns() - Duration::from_secs(24 * 3600).as_nanos() as i64;
    fixture.clock().set(yesterday);
    let error = refused(store).await;
    let ConsumerError::AlreadyActive { until_ns, .. } = error else { panic!("{error:?}") };
    assert_eq!(until_ns, yesterday + LEASE);
    fixture.clock().advance(DEFAULT_CONSUMER_LEASE);
    assert_eq!(deliver(store, Selection::all()).await, ["a"]);
    assert!(matches!(frozen.next().await, Err(ConsumerError::OwnershipLost)));
}
