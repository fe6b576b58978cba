//! Seeded schedules over a session and an in-memory world: publications, updates, tailer, heads,
//! fetches and handoffs in every order. A reader checks each frame as it comes; at the end nothing may
//! be missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use highwater_wire::{GroupId, proto::backend::TopicQuery};

use super::*;

/// Splitmix64: the same schedule for the same seed everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).expect("below the number of sides")
    }
}

const TOPICS: u8 = 6;
const ROW_BYTES: usize = 150;

pub(super) fn topic(number: u8) -> Topic {
    Topic::group(GroupId::from_bytes([number; 16]))
}

pub(super) fn sequence(id: u64) -> SequenceId {
    SequenceId::try_from(id).expect("a positive id")
}

pub(super) fn delivery(topic: Topic, id: u64) -> Arc<Delivery> {
    let envelope = backend::ServerEnvelope::default();
    Arc::new(Delivery { topic, sequence_id: sequence(id), bytes: ROW_BYTES, envelope, live_since: None })
}

fn small_limits() -> Limits {
    Limits {
        max_envelope_bytes: 200,
        delivery_frame_target_bytes: 500,
        outbound_queue_frames: 32,
        outbound_queue_bytes: 4_000,
        fetched_unsent_bytes: 1_500,
        fetch_turn_topics: 2,
        fetch_turn_rows: 3,
        updates_per_second: u32::MAX,
        update_burst: u32::MAX,
        ..Limits::default()
    }
}

/// A read that the store has or hasn't looked at yet.
enum Read {
    Heads(Vec<Topic>),
    Fetch { reads: Vec<TopicRead>, rows: usize, bytes: usize },
    Done(Event),
}

struct World {
    dice: Dice,
    now: Instant,
    session: Session,
    last_id: u64,
    rows: BTreeMap<Topic, Vec<u64>>,
    undispatched: VecDeque<(Topic, u64)>,
    registered: BTreeSet<Topic>,
    mailbox: VecDeque<Event>,
    reads: Vec<Read>,
    to_server: VecDeque<backend::SubscribeRequest>,
    slot: Option<Frame>,
    reader: Reader,
}

/// An update under way: its id, what it newly registers from where, and what it takes away.
type Sent = (u64, Vec<(Topic, u64)>, Vec<Topic>);

/// What the peer knows, and what it expects.
#[derive(Default)]
struct Reader {
    started: bool,
    sent: VecDeque<Sent>,
    next_update: u64,
    /// Where each topic stands for which an acknowledgement came.
    floors: HashMap<Topic, u64>,
    /// What each topic will be once everything sent is acknowledged.
    wanted: BTreeSet<Topic>,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let (limits, timing) = (Arc::new(small_limits()), Arc::new(Timing::default()));
        let (session, actions) = Session::native(limits, timing, 0, now);
        let mut world = Self {
            dice: Dice(seed),
            now,
            session,
            last_id: 0,
            rows: BTreeMap::new(),
            undispatched: VecDeque::new(),
            registered: BTreeSet::new(),
            mailbox: VecDeque::new(),
            reads: Vec::new(),
            to_server: VecDeque::new(),
            slot: None,
            reader: Reader::default(),
        };
        world.perform(actions);
        world
    }

    fn tell(&mut self, event: Event) {
        let actions = self.session.on(self.now, event);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Register(topics) => self.registered.extend(topics),
                Action::Deregister(topics) => {
                    self.registered.retain(|topic| !topics.contains(topic));
                }
                Action::CaptureHeads(topics) => self.reads.push(Read::Heads(topics)),
                Action::Fetch { reads, rows_per_topic: rows, bytes } => {
                    self.reads.push(Read::Fetch { reads, rows, bytes });
                }
                Action::Send(frame) => {
                    assert!(self.slot.replace(frame).is_none(), "the transport held a frame");
                }
                Action::End(end) => panic!("the session ended: {end:?}"),
            }
        }
    }

    /// One random step.
    fn step(&mut self) {
        match self.dice.roll(10) {
            0 | 1 => self.publish(),
            2 => self.send_update(),
            3 => self.receive_update(),
            4 => self.dispatch(),
            5 => self.open_mailbox(),
            6 => self.look(),
            7 => self.answer(),
            _ => self.take(),
        }
    }

    fn random_topic(&mut self) -> Topic {
        topic(u8::try_from(self.dice.roll(TOPICS.into())).expect("few topics"))
    }

    fn publish(&mut self) {
        let topic = self.random_topic();
        // Gaps are legal.
        self.last_id += 1 + self.dice.roll(2) as u64;
        self.rows.entry(topic).or_default().push(self.last_id);
        self.undispatched.push_back((topic, self.last_id));
    }

    fn send_update(&mut self) {
        if self.reader.sent.len() >= 4 {
            return;
        }
        let mut adds = Vec::new();
        let mut removes = Vec::new();
        for number in 0..TOPICS {
            match self.dice.roll(4) {
                0 => {
                    let after = self.dice.roll(self.last_id as usize + 2) as u64;
                    adds.push((topic(number), after));
                }
                1 => removes.push(topic(number)),
                _ => {}
            }
        }
        self.reader.next_update += 1 + self.dice.roll(2) as u64;
        let id = self.reader.next_update;
        let request = subscribe_request::Request::Update(subscribe_request::Update {
            id,
            adds: adds
                .iter()
                .map(|(topic, after)| TopicQuery {
                    topic: Some(topic.to_proto()),
                    cursor: Some(backend::Cursor { sequence_id: *after }),
                })
                .collect(),
            removes: removes.iter().map(Topic::to_proto).collect(),
        });
        self.to_server.push_back(backend::SubscribeRequest { request: Some(request) });
        // Only what was absent is a new registration.
        adds.retain(|(topic, _)| self.reader.wanted.insert(*topic));
        removes.retain(|topic| self.reader.wanted.remove(topic));
        self.reader.sent.push_back((id, adds, removes));
    }

    fn receive_update(&mut self) {
        // Now and then as the last look before a deadline does, heads or no heads.
        if (self.session.reads() || self.dice.roll(8) == 0)
            && let Some(request) = self.to_server.pop_front()
        {
            self.tell(Event::Inbound(request));
        }
    }

    fn dispatch(&mut self) {
        if let Some((topic, id)) = self.undispatched.pop_front()
            && self.registered.contains(&topic)
        {
            let full = self.dice.roll(5) == 0
                || self
                    .mailbox
                    .iter()
                    .any(|event| matches!(event, Event::Notice(noticed, _) if *noticed == topic));
            self.mailbox.push_back(if full {
                Event::Notice(topic, sequence(id))
            } else {
                Event::Live(delivery(topic, id))
            });
        }
    }

    fn open_mailbox(&mut self) {
        if let Some(event) = self.mailbox.pop_front() {
            self.tell(event);
        }
    }

    /// The store looks at a read: what it answers is fixed now, and comes later.
    fn look(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let index = self.dice.roll(self.reads.len());
        let answer = match &self.reads[index] {
            Read::Done(_) => return,
            Read::Heads(topics) => Event::Heads(
                topics
                    .iter()
                    .filter_map(|topic| Some((*topic, sequence(*self.rows.get(topic)?.last()?))))
                    .collect(),
            ),
            Read::Fetch { reads, rows, bytes } => {
                let bytes = if self.dice.roll(3) == 0 { ROW_BYTES } else { *bytes };
                Event::Fetched(self.pages(reads, *rows, bytes))
            }
        };
        self.reads[index] = Read::Done(answer);
    }

    fn pages(&self, reads: &[TopicRead], rows: usize, bytes: usize) -> Vec<Page> {
        let mut room = bytes / ROW_BYTES;
        let mut pages = Vec::new();
        for read in reads {
            let above: Vec<u64> = self
                .rows
                .get(&read.topic)
                .into_iter()
                .flatten()
                .copied()
                .filter(|id| *id > read.after.get())
                .collect();
            if room == 0 && !above.is_empty() {
                break;
            }
            let count = above.len().min(rows).min(room);
            room -= count;
            let envelopes = above[..count].iter().map(|id| delivery(read.topic, *id)).collect();
            pages.push(Page { envelopes, has_more: above.len() > count });
        }
        pages
    }

    fn answer(&mut self) {
        if let Some(index) = self.reads.iter().position(|read| matches!(read, Read::Done(_)))
            && let Read::Done(event) = self.reads.swap_remove(index)
        {
            self.tell(event);
        }
    }

    fn take(&mut self) {
        if let Some(frame) = self.slot.take() {
            self.read(frame);
            self.tell(Event::Taken);
        }
    }

    fn read(&mut self, frame: Frame) {
        let reader = &mut self.reader;
        match frame {
            Frame::Started { .. } => assert!(!std::mem::replace(&mut reader.started, true)),
            Frame::Applied { id, targets } => {
                assert!(reader.started);
                let (sent, adds, removes) = reader.sent.pop_front().expect("an update was sent");
                assert_eq!(id, sent, "acknowledgements follow update order");
                let added: Vec<Topic> = adds.iter().map(|(topic, _)| *topic).collect();
                let acknowledged: Vec<Topic> = targets.iter().map(|(topic, _)| *topic).collect();
                assert_eq!(acknowledged, added, "targets of new registrations, in add order");
                for (topic, target) in targets {
                    let rows = self.rows.get(&topic);
                    assert!(target == 0 || rows.is_some_and(|rows| rows.contains(&target)));
                }
                for topic in removes {
                    reader.floors.remove(&topic).expect("removed topics were active");
                }
                reader.floors.extend(adds);
            }
            Frame::Messages(deliveries) => {
                assert!(deliveries.len() * ROW_BYTES <= small_limits().delivery_frame_target_bytes);
                for delivery in deliveries {
                    let id = delivery.sequence_id.get();
                    let floor = reader.floors.get_mut(&delivery.topic);
                    let floor = floor.expect("no message before or after its registration");
                    let next = self.rows[&delivery.topic].iter().find(|row| **row > *floor);
                    assert_eq!(next, Some(&id), "ascending, nothing repeated, nothing left out");
                    *floor = id;
                }
            }
            Frame::Ping(_) | Frame::Pong(_) | Frame::Keepalive => panic!("time stands still"),
        }
    }

    /// Lets everything that is under way arrive.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let idle = self.to_server.is_empty()
                && self.undispatched.is_empty()
                && self.mailbox.is_empty()
                && self.reads.is_empty()
                && self.slot.is_none();
            if idle {
                return;
            }
            self.receive_update();
            self.dispatch();
            self.open_mailbox();
            self.look();
            self.answer();
            self.take();
        }
        panic!("the session doesn't come to rest");
    }

    fn check_complete(&self) {
        assert!(self.reader.sent.is_empty(), "every update is acknowledged");
        let active: BTreeSet<Topic> = self.reader.floors.keys().copied().collect();
        assert_eq!(active, self.reader.wanted);
        assert_eq!(active, self.registered);
        for (topic, floor) in &self.reader.floors {
            let last = self.rows.get(topic).and_then(|rows| rows.last()).copied().unwrap_or(0);
            assert!(*floor >= last, "{topic:?} stands at {floor} of {last}");
        }
    }
}

/// Shows: STR-002, STR-004, STR-005, STR-006, STR-007, STR-008, STR-010, STR-011, STR-030.
#[test]
fn no_schedule_loses_repeats_or_reorders_an_envelope() {
    for seed in 0..10_000 {
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..200 {
                world.step();
            }
            world.settle();
            world.check_complete();
        });
        if let Err(panic) = ran {
            eprintln!("failing seed: {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Shows: STR-016.
#[test]
fn short_topics_finish_while_a_long_one_is_still_being_read() {
    let mut world = World::new(1);
    let long = topic(0);
    world.rows.insert(long, (1..=300).collect());
    for number in 1..TOPICS {
        let first = 300 + u64::from(number) * 10;
        world.rows.insert(topic(number), (first..first + 3).collect());
    }
    let adds: Vec<(Topic, u64)> = (0..TOPICS).map(|number| (topic(number), 0)).collect();
    let update = subscribe_request::Update {
        id: 1,
        adds: adds
            .iter()
            .map(|(topic, _)| TopicQuery { topic: Some(topic.to_proto()), cursor: None })
            .collect(),
        removes: Vec::new(),
    };
    let request = Some(subscribe_request::Request::Update(update));
    world.reader.wanted = adds.iter().map(|(topic, _)| *topic).collect();
    world.reader.sent.push_back((1, adds, Vec::new()));
    world.tell(Event::Inbound(backend::SubscribeRequest { request }));
    let short = |world: &World| (1..TOPICS).all(|n| world.reader.floors.get(&topic(n)) > Some(&300));
    for _ in 0..1_000 {
        if short(&world) {
            break;
        }
        world.look();
        world.answer();
        world.take();
    }
    assert!(short(&world));
    // One turn each: the long topic had no more turns than a short one needed, and one under way.
    assert!(world.reader.floors[&long] <= 4 * 3 * u64::from(TOPICS), "{:?}", world.reader.floors);
    world.settle();
    world.check_complete();
}

/// Shows: STR-030.
#[test]
fn topics_added_and_removed_without_end_leave_nothing_behind() {
    let mut world = World::new(2);
    world.rows.insert(topic(0), vec![1]);
    world.last_id = 1;
    for round in 0..5_000_u64 {
        let add = TopicQuery { topic: Some(topic(0).to_proto()), cursor: None };
        for (id, adds, removes) in
            [(2 * round + 1, vec![add], Vec::new()), (2 * round + 2, Vec::new(), vec![topic(0).to_proto()])]
        {
            let update = subscribe_request::Update { id, adds, removes };
            let request = Some(subscribe_request::Request::Update(update));
            let actions = world.session.on(world.now, Event::Inbound(backend::SubscribeRequest { request }));
            drop(actions);
            let heads = HashMap::from([(topic(0), sequence(1))]);
            drop(world.session.on(world.now, Event::Heads(heads)));
            drop(world.session.on(world.now, Event::Taken));
        }
    }
    assert!(world.session.ready.len() <= 1_026, "{}", world.session.ready.len());
    assert!(world.session.topics.is_empty());
}
