//! Streams over the wire.

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use highwater_backend::ServerConfig;
use highwater_wire::{
    GroupId, Topic,
    proto::backend::{
        Ping, Pong, SubscribeRequest, SubscribeResponse, SubscribeStaticRequest, TopicQuery,
        subscribe_request::{Request, Update},
        subscribe_response::Response,
        subscribe_static_response,
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::{fault::FaultyStore, fixture::*};

/// One bidirectional stream.
pub(crate) struct Stream {
    requests: mpsc::Sender<SubscribeRequest>,
    responses: Streaming<SubscribeResponse>,
}

impl Stream {
    /// Opens a stream and reads its Started.
    pub(crate) async fn open(client: &Client) -> Self {
        let mut stream = Self::unread(client).await;
        match stream.next().await {
            Response::Started(_) => stream,
            other => panic!("Started comes first, not {other:?}"),
        }
    }

    async fn unread(client: &Client) -> Self {
        let (requests, stream) = mpsc::channel(256);
        let responses = client.subscribe.clone().subscribe(ReceiverStream::new(stream)).await;
        Self { requests, responses: responses.expect("a stream").into_inner() }
    }

    async fn send(&self, request: Request) {
        let request = SubscribeRequest { request: Some(request) };
        self.requests.send(request).await.expect("the stream reads");
    }

    pub(crate) async fn update(&self, id: u64, adds: &[(Topic, u64)], removes: &[Topic]) {
        self.send(Request::Update(update(id, adds, removes))).await;
    }

    pub(crate) async fn next(&mut self) -> Response {
        match soon("a frame", self.responses.message()).await.expect("a healthy stream") {
            Some(frame) => frame.response.expect("a response"),
            None => panic!("the stream ended"),
        }
    }

    /// Reads the acknowledgement of an update, with the ids that came before it.
    pub(crate) async fn applied(&mut self, id: u64) -> (Vec<u64>, Vec<(Topic, u64)>) {
        let mut before = Vec::new();
        loop {
            match self.next().await {
                Response::Messages(messages) => {
                    before.extend(messages.envelopes.iter().map(envelope_id));
                }
                Response::Applied(applied) => {
                    assert_eq!(applied.id, id);
                    let targets = applied.added_targets.into_iter().map(|target| {
                        let topic = target.topic.expect("a topic");
                        let topic = Topic::try_from(topic).expect("a topic");
                        (topic, target.through_sequence_id)
                    });
                    return (before, targets.collect());
                }
                other => panic!("not {other:?}"),
            }
        }
    }

    /// Reads messages until there are `count` ids.
    async fn ids(&mut self, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < count {
            match self.next().await {
                Response::Messages(messages) => {
                    ids.extend(messages.envelopes.iter().map(envelope_id));
                }
                Response::Ping(Ping { nonce }) => self.send(Request::Pong(Pong { nonce })).await,
                other => panic!("not {other:?}"),
            }
        }
        ids
    }

    /// Reads on until the stream ends.
    async fn end(&mut self) -> Option<Status> {
        loop {
            match soon("the end", self.responses.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }

    async fn ends_with(&mut self, code: Code) {
        let status = self.end().await.expect("an error");
        assert_eq!(status.code(), code, "{status:?}");
    }

    /// A Ping's Pong comes back after everything that the server had queued before.
    async fn quiet(&mut self) {
        self.send(Request::Ping(Ping { nonce: 99 })).await;
        assert_eq!(self.next().await, Response::Pong(Pong { nonce: 99 }));
    }
}

fn update(id: u64, adds: &[(Topic, u64)], removes: &[Topic]) -> Update {
    Update {
        id,
        adds: adds.iter().map(|(topic, after)| at(*topic, *after)).collect(),
        removes: removes.iter().map(Topic::to_proto).collect(),
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Shows: STR-001.
#[tokio::test]
async fn started_comes_at_once_and_an_empty_stream_stays_open() {
    let (_home, server) = server_with(|config| config.timing.keepalive = Duration::from_millis(7_500)).await;
    let client = server.client().await;
    let mut stream = Stream::unread(&client).await;
    match stream.next().await {
        Response::Started(started) => assert_eq!(started.keepalive_interval_ms, 7_500),
        other => panic!("Started comes first, not {other:?}"),
    }
    stream.quiet().await;
    assert_eq!((server.activity.streams(), server.activity.registrations()), (1, 0));
    server.stop().await;
}

/// Shows: STR-004, STR-006, STR-010, STR-011, STR-012.
#[tokio::test]
async fn history_then_live_come_in_order_behind_the_acknowledgement() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut expected = Vec::new();
    for i in 0..150 {
        expected.push(client.put_one(welcome(1, &[i])).await);
    }
    let mut stream = Stream::open(&client).await;
    let (one, two) = (welcome_topic(1), welcome_topic(2));
    stream.update(1, &[(two, 0), (one, expected[9])], &[]).await;
    let (before, targets) = stream.applied(1).await;
    assert!(before.is_empty());
    assert_eq!(targets, [(two, 0), (one, expected[149])], "in add order, 0 for an empty topic");
    assert_eq!(stream.ids(140).await, expected[10..]);
    // The same frames carry what is new.
    let live = client.put_one(welcome(2, b"live")).await;
    assert_eq!(stream.ids(1).await, [live]);
    let live = client.put_one(welcome(1, b"live")).await;
    assert_eq!(stream.ids(1).await, [live]);
    server.stop().await;
}

/// Shows: STR-012.
#[tokio::test]
async fn a_cursor_at_or_above_the_head_owes_no_history_and_still_filters() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let head = client.put_one(welcome(1, b"old")).await;
    let mut stream = Stream::open(&client).await;
    stream.update(1, &[(welcome_topic(1), head + 2)], &[]).await;
    assert_eq!(stream.applied(1).await.1, [(welcome_topic(1), head)]);
    for i in 0..3 {
        client.put_one(welcome(1, &[i])).await;
    }
    assert_eq!(stream.ids(1).await, [head + 3]);
    stream.quiet().await;
    server.stop().await;
}

/// Shows: STR-005, STR-006, STR-007, STR-008.
#[tokio::test]
async fn active_topics_ignore_adds_and_removed_ones_start_over() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let (one, two) = (welcome_topic(1), welcome_topic(2));
    let first = client.put_one(welcome(1, b"a")).await;
    let second = client.put_one(welcome(1, b"b")).await;
    let mut stream = Stream::open(&client).await;
    stream.update(5, &[(one, 0)], &[two]).await;
    assert_eq!(stream.applied(5).await.1, [(one, second)]);
    assert_eq!(stream.ids(2).await, [first, second]);
    // No seek, no new target.
    stream.update(7, &[(one, 0)], &[]).await;
    assert_eq!(stream.applied(7).await, (vec![], vec![]));
    stream.quiet().await;
    stream.update(8, &[], &[one]).await;
    assert_eq!(stream.applied(8).await, (vec![], vec![]));
    let third = client.put_one(welcome(1, b"c")).await;
    stream.quiet().await;
    assert_eq!(server.activity.registrations(), 0);
    stream.update(9, &[(one, first)], &[]).await;
    assert_eq!(stream.applied(9).await.1, [(one, third)]);
    assert_eq!(stream.ids(2).await, [second, third]);
    server.stop().await;
}

/// Shows: STR-002, STR-003, STR-009.
#[tokio::test]
async fn an_update_that_is_wrong_in_any_way_ends_the_stream_and_changes_nothing() {
    let (_home, server) = server_with(|config| {
        config.limits.max_update_adds = 3;
        config.limits.max_update_removes = 2;
        config.limits.max_stream_topics = 3;
    })
    .await;
    let client = server.client().await;
    let t = welcome_topic;
    let key_package = Topic::key_package(installation(1));
    let mut no_topic = update(2, &[], &[]);
    no_topic.adds.push(TopicQuery { topic: None, cursor: None });
    let wrong = [
        update(0, &[], &[]),
        update(1, &[(t(9), 0)], &[]),
        update(2, &[(t(2), 0), (t(2), 0)], &[]),
        update(2, &[(t(1), 0)], &[t(1)]),
        update(2, &[], &[t(1), t(1)]),
        update(2, &[(t(2), u64::MAX)], &[]),
        update(2, &[(key_package, 0)], &[]),
        update(2, &[(t(2), 0), (t(3), 0), (t(4), 0), (t(5), 0)], &[]),
        update(2, &[], &[t(2), t(3), t(4)]),
        update(2, &[(t(2), 0), (t(3), 0), (t(4), 0)], &[]),
        no_topic,
    ];
    for update in wrong.map(Request::Update).map(Some).into_iter().chain([None]) {
        let mut stream = Stream::open(&client).await;
        stream.update(1, &[(t(1), 0)], &[]).await;
        let request = SubscribeRequest { request: update };
        stream.requests.send(request).await.expect("the stream reads");
        // What was acknowledged before still arrives.
        stream.applied(1).await;
        stream.ends_with(Code::InvalidArgument).await;
    }
    // At the limit, by way of a removal in the same update.
    let mut stream = Stream::open(&client).await;
    stream.update(1, &[(t(1), 0), (t(2), 0), (t(3), 0)], &[]).await;
    stream.applied(1).await;
    stream.update(2, &[(t(4), 0)], &[t(1)]).await;
    stream.applied(2).await;
    server.stop().await;
}

/// Shows: STR-032, STR-033.
#[tokio::test]
async fn each_bucket_ends_the_stream_when_it_is_empty_and_pongs_are_free() {
    let (_home, server) = server_with(|config| {
        config.limits.update_burst = 5;
        config.limits.updates_per_second = 1;
        config.limits.ping_burst = 5;
        config.limits.pings_per_second = 1;
    })
    .await;
    let client = server.client().await;
    let mut stream = Stream::open(&client).await;
    for nonce in 0..200 {
        stream.send(Request::Pong(Pong { nonce })).await;
    }
    for id in 1..=5 {
        stream.update(id, &[], &[]).await;
        stream.applied(id).await;
    }
    // The other bucket is full still.
    for nonce in 10..15 {
        stream.send(Request::Ping(Ping { nonce })).await;
        assert_eq!(stream.next().await, Response::Pong(Pong { nonce }));
    }
    for id in 6..10 {
        let request = Request::Update(update(id, &[], &[]));
        let _ = stream.requests.send(SubscribeRequest { request: Some(request) }).await;
    }
    stream.ends_with(Code::ResourceExhausted).await;
    let mut stream = Stream::open(&client).await;
    for nonce in 0..10 {
        let request = Some(Request::Ping(Ping { nonce }));
        let _ = stream.requests.send(SubscribeRequest { request }).await;
    }
    stream.ends_with(Code::ResourceExhausted).await;
    server.stop().await;
}

fn quick(config: &mut ServerConfig) {
    config.timing.keepalive = Duration::from_millis(100);
    config.timing.pong_wait = Duration::from_millis(1_000);
}

/// Shows: STR-033, STR-034.
#[tokio::test]
async fn a_silent_reader_is_challenged_and_ended_unless_it_answers() {
    let (_home, server) = server_with(quick).await;
    let client = server.client().await;
    let mut answering = Stream::open(&client).await;
    for _ in 0..6 {
        match answering.next().await {
            Response::Ping(Ping { nonce }) => {
                answering.send(Request::Pong(Pong { nonce })).await;
            }
            other => panic!("not {other:?}"),
        }
    }
    let mut silent = Stream::open(&client).await;
    let Response::Ping(Ping { nonce }) = silent.next().await else { panic!("a challenge") };
    // Other traffic, and other nonces, don't answer it.
    silent.update(1, &[], &[]).await;
    silent.applied(1).await;
    silent.send(Request::Pong(Pong { nonce: nonce.wrapping_add(1) })).await;
    silent.ends_with(Code::DeadlineExceeded).await;
    server.stop().await;
}

/// Shows: STR-035.
#[tokio::test]
async fn half_close_cancellation_and_vanishing_leave_no_registration_on_quiet_topics() {
    let (_home, server) = server_with(quick).await;
    let client = server.client().await;
    let topics: Vec<(Topic, u64)> = (1..=20).map(|n| (welcome_topic(n), 0)).collect();

    let mut half_closed = Stream::open(&client).await;
    half_closed.update(1, &topics, &[]).await;
    half_closed.applied(1).await;
    assert_eq!((server.activity.streams(), server.activity.registrations()), (1, 20));
    let Stream { requests, mut responses } = half_closed;
    drop(requests);
    while soon("the end", responses.message()).await.expect("ends with OK").is_some() {}
    until("no stream", || server.activity.streams() == 0).await;

    let mut cancelled = Stream::open(&client).await;
    cancelled.update(1, &topics, &[]).await;
    cancelled.applied(1).await;
    drop(cancelled);
    until("no stream", || server.activity.streams() == 0).await;

    // A peer that keeps the connection but reads and writes nothing more.
    let mut vanished = Stream::open(&client).await;
    vanished.update(1, &topics, &[]).await;
    vanished.applied(1).await;
    until("no stream", || server.activity.streams() == 0).await;
    assert_eq!(server.activity.registrations(), 0);
    server.stop().await;
}

/// Shows: STR-035.
#[tokio::test]
async fn a_shutdown_ends_streams_unavailable() {
    let (_home, mut server) = server().await;
    let client = server.client().await;
    let mut stream = Stream::open(&client).await;
    stream.update(1, &[(welcome_topic(1), 0)], &[]).await;
    stream.applied(1).await;
    let request = SubscribeStaticRequest { topics: vec![at(welcome_topic(1), 0)] };
    let fixed = client.subscribe.clone().subscribe_static(request).await;
    let mut fixed = fixed.expect("a stream").into_inner();
    soon("Started", fixed.message()).await.expect("a healthy stream");
    server.ask_to_stop();
    stream.ends_with(Code::Unavailable).await;
    let status = soon("the end", fixed.message()).await.expect_err("ended");
    assert_eq!(status.code(), Code::Unavailable);
    server.stop().await;
}

/// Shows: STR-030, STR-031.
#[tokio::test]
async fn a_reader_that_pauses_holds_nobody_up_and_then_gets_everything() {
    let (_home, server) = server_with(|config| {
        // A quarter of the largest envelope fits beside one, so most has to wait in the store.
        config.limits.max_envelope_bytes = 64 * 1024;
        config.limits.delivery_frame_target_bytes = 128 * 1024;
        config.limits.outbound_queue_bytes = 512 * 1024;
        few_topics(config);
        config.limits.fetched_unsent_bytes = 256 * 1024;
    })
    .await;
    let publisher = server.client().await;
    // A connection of its own, so that only its own windows fill.
    let mut paused = Stream::open(&server.client().await).await;
    let mut reading = Stream::open(&server.client().await).await;
    for stream in [&mut paused, &mut reading] {
        stream.update(1, &[(welcome_topic(1), 0)], &[]).await;
        stream.applied(1).await;
    }
    let mut expected = Vec::new();
    for i in 0..200_u8 {
        expected.push(publisher.put_one(welcome(1, &vec![i; 60_000])).await);
        assert_eq!(reading.ids(1).await, expected[usize::from(i)..]);
    }
    assert_eq!(paused.ids(200).await, expected);
    server.stop().await;
}

/// Shows: STR-030.
#[tokio::test]
async fn a_reader_that_never_reads_is_ended() {
    let (_home, server) = server_with(|config| config.timing.stall_wait = Duration::from_millis(1_000)).await;
    let publisher = server.client().await;
    let mut stuck = Stream::open(&server.client().await).await;
    stuck.update(1, &[(welcome_topic(1), 0)], &[]).await;
    stuck.applied(1).await;
    for i in 0..32 {
        publisher.put_one(welcome(1, &vec![i; 1_000_000])).await;
    }
    until("no stream", || server.activity.streams() == 0).await;
    stuck.ends_with(Code::ResourceExhausted).await;
    server.stop().await;
}

/// Shows: STR-004, STR-008, STR-010.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registrations_racing_publications_lose_nothing() {
    let (_home, server) = server().await;
    let publishing: Vec<_> = (0..4_u8)
        .map(|number| {
            let url = server.url.clone();
            tokio::spawn(async move {
                let client = Client::connect(&url).await;
                let mut ids = Vec::new();
                for i in 0..60 {
                    ids.push(client.put_one(welcome(number, &[i])).await);
                }
                ids
            })
        })
        .collect();
    let mut stream = Stream::open(&server.client().await).await;
    let mut got: BTreeMap<Topic, Vec<u64>> = BTreeMap::new();
    let mut id = 0;
    let collect = |response: Response, got: &mut BTreeMap<Topic, Vec<u64>>| match response {
        Response::Messages(messages) => {
            for envelope in messages.envelopes {
                let topic = envelope.meta.as_ref().and_then(|meta| meta.topic.clone());
                let topic = Topic::try_from(topic.expect("a topic")).expect("a topic");
                got.entry(topic).or_default().push(envelope_id(&envelope));
            }
            None
        }
        Response::Applied(applied) => Some(applied.id),
        other => panic!("not {other:?}"),
    };
    // Take all topics off and on again from where each stands.
    for _ in 0..15 {
        let adds: Vec<(Topic, u64)> = (0..4)
            .map(welcome_topic)
            .map(|topic| (topic, got.get(&topic).and_then(|ids| ids.last()).copied().unwrap_or(0)))
            .collect();
        let removes: Vec<Topic> = adds.iter().map(|(topic, _)| *topic).collect();
        for (adds, removes) in [(&adds[..], &[][..]), (&[], &removes)] {
            id += 1;
            stream.update(id, adds, removes).await;
            while collect(stream.next().await, &mut got) != Some(id) {}
        }
    }
    let expected: Vec<Vec<u64>> = futures::future::join_all(publishing)
        .await
        .into_iter()
        .map(|joined| joined.expect("no panic"))
        .collect();
    let adds: Vec<(Topic, u64)> = (0..4)
        .map(welcome_topic)
        .map(|topic| (topic, got.get(&topic).and_then(|ids| ids.last()).copied().unwrap_or(0)))
        .collect();
    stream.update(id + 1, &adds, &[]).await;
    while got.values().map(Vec::len).sum::<usize>() < 240 {
        collect(stream.next().await, &mut got);
    }
    assert_eq!(got.into_values().collect::<Vec<_>>(), expected);
    server.stop().await;
}

/// Shows: STR-004, STR-006, STR-009.
#[tokio::test]
async fn a_stream_takes_a_hundred_thousand_topics_in_one_update() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let topic = |number: u32| {
        let mut group = [0; 16];
        group[..4].copy_from_slice(&number.to_be_bytes());
        Topic::commit_log(GroupId::from_bytes(group))
    };
    let entry = |number| commit_log(topic(number).group_id().expect("a group"));
    let first = client.put(vec![entry(7), entry(99_999)]).await.expect("stored");
    let adds: Vec<(Topic, u64)> = (0..100_000).map(|number| (topic(number), 0)).collect();
    let mut stream = Stream::open(&client).await;
    stream.update(1, &adds, &[]).await;
    let (_, targets) = stream.applied(1).await;
    assert_eq!(targets.len(), 100_000);
    assert_eq!(targets[99_999], (topic(99_999), id(&first[1])));
    assert_eq!(stream.ids(2).await, [id(&first[0]), id(&first[1])]);
    let live = client.put_one(entry(50_000)).await;
    assert_eq!(stream.ids(1).await, [live]);
    stream.update(2, &[(welcome_topic(1), 0)], &[]).await;
    stream.ends_with(Code::InvalidArgument).await;
    server.stop().await;
}

/// Shows: STR-050, STR-051, STR-052, STR-053.
#[tokio::test]
async fn a_static_stream_starts_with_its_targets_and_goes_on_with_envelopes_and_keepalives() {
    use subscribe_static_response::Response;
    let (_home, server) = server_with(quick).await;
    let client = server.client().await;
    let first = client.put_one(welcome(1, b"a")).await;
    let second = client.put_one(welcome(1, b"b")).await;
    let topics = vec![at(welcome_topic(2), 0), at(welcome_topic(1), first)];
    let request = SubscribeStaticRequest { topics };
    let stream = client.subscribe.clone().subscribe_static(request).await;
    let mut stream = stream.expect("a stream").into_inner();
    let mut next = async || {
        let frame = soon("a frame", stream.message()).await.expect("a healthy stream");
        frame.expect("goes on").response.expect("a response")
    };
    let Response::Started(started) = next().await else { panic!("Started comes first") };
    assert_eq!(started.keepalive_interval_ms, 100);
    let targets: Vec<u64> = started.targets.iter().map(|t| t.through_sequence_id).collect();
    assert_eq!(targets, [0, second], "in request order");
    let Response::Messages(messages) = next().await else { panic!("history") };
    assert_eq!(messages.envelopes.iter().map(envelope_id).collect::<Vec<_>>(), [second]);
    for _ in 0..6 {
        assert!(matches!(next().await, Response::Keepalive(_)), "no answer is needed");
    }
    let live = client.put_one(welcome(2, b"c")).await;
    loop {
        match next().await {
            Response::Keepalive(_) => {}
            Response::Messages(messages) => {
                assert_eq!(messages.envelopes.iter().map(envelope_id).collect::<Vec<_>>(), [live]);
                break;
            }
            Response::Started(_) => panic!("started once"),
        }
    }
    server.stop().await;
}

/// Shows: STR-035, STR-052.
#[tokio::test]
async fn a_static_stream_that_its_reader_drops_is_gone() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let request = SubscribeStaticRequest { topics: vec![at(welcome_topic(1), 0)] };
    let stream = client.subscribe.clone().subscribe_static(request).await;
    let mut stream = stream.expect("a stream").into_inner();
    soon("Started", stream.message()).await.expect("a healthy stream");
    // The request ended long ago, and that ends nothing.
    assert_eq!((server.activity.streams(), server.activity.registrations()), (1, 1));
    drop(stream);
    until("no stream", || server.activity.streams() == 0).await;
    assert_eq!(server.activity.registrations(), 0);
    server.stop().await;
}

/// Shows: STR-035, STR-010.
#[tokio::test]
async fn a_failing_tailer_ends_streams_and_skips_nothing() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, |_| {}).await;
    let client = server.client().await;
    let mut stream = Stream::open(&client).await;
    stream.update(1, &[(welcome_topic(1), 0)], &[]).await;
    stream.applied(1).await;
    let first = client.put_one(welcome(1, b"a")).await;
    assert_eq!(stream.ids(1).await, [first]);
    faults.tail.store(true, Ordering::SeqCst);
    let unseen = client.put_one(welcome(1, b"b")).await;
    stream.ends_with(Code::Unavailable).await;
    faults.tail.store(false, Ordering::SeqCst);
    // Streams that come while it still failed are ended too; the one that stays misses nothing.
    let mut stream = soon("a stream that stays", async {
        loop {
            let mut stream = Stream::unread(&client).await;
            let request = Request::Update(update(1, &[(welcome_topic(1), first)], &[]));
            stream.send(request).await;
            match (stream.responses.message().await, stream.responses.message().await) {
                (Ok(_), Ok(Some(_))) => return stream,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
    assert_eq!(stream.ids(1).await, [unseen]);
    let live = client.put_one(welcome(1, b"c")).await;
    assert_eq!(stream.ids(1).await, [live]);
    server.stop().await;
}

/// Shows: STR-035.
#[tokio::test]
async fn a_failing_read_ends_the_stream_unavailable() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, |_| {}).await;
    let client = server.client().await;
    let mut stream = Stream::open(&client).await;
    faults.reads.store(true, Ordering::SeqCst);
    stream.update(1, &[(welcome_topic(1), 0)], &[]).await;
    stream.ends_with(Code::Unavailable).await;
    let status = client.page(&[(welcome_topic(1), 0)], 0).await.expect_err("no store");
    assert_eq!(status.code(), Code::Unavailable);
    faults.reads.store(false, Ordering::SeqCst);
    server.stop().await;
}

/// Shows: STR-002, STR-034.
#[tokio::test]
async fn a_pong_that_is_there_in_time_counts_even_if_nothing_reads_it_yet() {
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, quick).await;
    let client = server.client().await;
    let mut stream = Stream::open(&client).await;
    let Response::Ping(Ping { nonce }) = stream.next().await else { panic!("a challenge") };
    // The heads of an update take so long that frames behind it wait past the deadline.
    faults.heads_wait.send_replace(true);
    stream.update(1, &[(welcome_topic(1), 0)], &[]).await;
    stream.update(2, &[], &[welcome_topic(1)]).await;
    stream.send(Request::Pong(Pong { nonce })).await;
    // The next challenge shows that the first was met.
    let Response::Ping(_) = stream.next().await else { panic!("a second challenge") };
    faults.heads_wait.send_replace(false);
    assert_eq!(stream.applied(1).await.1.len(), 1);
    stream.applied(2).await;
    assert_eq!(server.activity.registrations(), 0);
    server.stop().await;
}

/// Shows: STR-050.
#[tokio::test]
async fn static_topics_must_be_some_few_and_different() {
    let (_home, server) = server_with(|config| config.limits.max_static_topics = 2).await;
    let client = server.client().await;
    let t = |number| at(welcome_topic(number), 0);
    for topics in [vec![], vec![t(1), t(1)], vec![t(1), t(2), t(3)]] {
        let request = SubscribeStaticRequest { topics };
        let status = client.subscribe.clone().subscribe_static(request).await;
        assert_eq!(status.expect_err("refused").code(), Code::InvalidArgument);
    }
    server.stop().await;
}
