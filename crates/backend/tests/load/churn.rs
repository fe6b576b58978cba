//! Case: the server kept registrations of clients that were gone.

use std::time::Duration;

use highwater_wire::{
    InstallationKey, Topic,
    proto::backend::{
        SubscribeRequest, SubscribeStaticRequest,
        subscribe_request::{Request, Update},
        subscribe_response::Response,
    },
};
use prost::Message as _;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, runtime::Handle, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    deaf::DeafLink,
    fixture::{Client, Running, at, server_with, soon},
    size,
};

const TOPICS: u32 = 20;

fn topics(client: u32) -> Vec<Topic> {
    let numbered = |number: u32| {
        let mut key = [3; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        Topic::welcome(InstallationKey::from_bytes(key))
    };
    (client * TOPICS..(client + 1) * TOPICS).map(numbered).collect()
}

/// A native stream over the client's topics, acknowledged.
async fn follow(
    url: &str,
    client: u32,
) -> (mpsc::Sender<SubscribeRequest>, tonic::Streaming<highwater_wire::proto::backend::SubscribeResponse>) {
    let (requests, outgoing) = mpsc::channel(4);
    let adds = topics(client).into_iter().map(|topic| at(topic, 0)).collect();
    let update = Update { id: 1, adds, removes: Vec::new() };
    requests.send(SubscribeRequest { request: Some(Request::Update(update)) }).await.expect("sent");
    let mut service = Client::connect(url).await.subscribe;
    let mut stream = service.subscribe(ReceiverStream::new(outgoing)).await.expect("a stream").into_inner();
    loop {
        let frame = soon("a frame", stream.message()).await.expect("a healthy stream").expect("a frame");
        if matches!(frame.response, Some(Response::Applied(_))) {
            return (requests, stream);
        }
    }
}

/// As a browser that gives up before the first byte: the request is out, and the connection is closed.
async fn give_up_at_once(url: &str, client: u32) {
    let topics = topics(client).into_iter().map(|topic| at(topic, 0)).collect();
    let message = SubscribeStaticRequest { topics }.encode_to_vec();
    let address = url.strip_prefix("http://").expect("a plain url");
    let head = format!(
        "POST /xmtp.backend.v1.SubscribeService/SubscribeStatic HTTP/1.1\r\nhost: {address}\r\n\
         content-type: application/grpc-web+proto\r\ncontent-length: {}\r\n\r\n",
        message.len() + 5
    );
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(&[0]).await.expect("sent");
    stream.write_all(&u32::try_from(message.len()).expect("short").to_be_bytes()).await.expect("sent");
    stream.write_all(&message).await.expect("sent");
}

async fn empty(server: &Running) {
    let gone = async {
        while server.activity.streams() > 0 || server.activity.registrations() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Keepalive and pong wait, with room for a busy machine.
    let bound = Duration::from_secs(size(20, 180) as u64);
    tokio::time::timeout(bound, gone).await.expect("no stream and no registration in time");
}

/// Half of the clients close, a quarter vanish behind a deaf network, a quarter give up before the first
/// frame. Their topics are always quiet.
///
/// Shows: STR-035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_gone_leave_nothing_behind() {
    let clients = u32::try_from(size(200, 10_000)).expect("a few");
    let (_home, server) = server_with(|config| {
        // The soak waits for the real times.
        config.timing.keepalive = Duration::from_millis(size(300, 30_000) as u64);
        config.timing.pong_wait = config.timing.keepalive * 3;
    })
    .await;
    let mut tasks_after_the_first = None;
    for _ in 0..3 {
        let link = DeafLink::to(&server.url).await;
        let mut open = Vec::new();
        // A few hundred connections at a time.
        for client in 0..clients {
            match client % 4 {
                0 | 1 => open.push(follow(&server.url, client).await),
                2 => open.push(follow(&link.url, client).await),
                _ => give_up_at_once(&server.url, client).await,
            }
            if open.len() == 300 {
                open.clear();
            }
        }
        link.go_deaf();
        open.clear();
        empty(&server).await;
        // The deaf network's own tasks end with it.
        drop(link);
        // New clients on the same topics are served.
        let (_requests, stream) = follow(&server.url, 0).await;
        let client = server.client().await;
        drop(stream);
        empty(&server).await;
        drop(client);
        let baseline =
            *tasks_after_the_first.get_or_insert_with(|| Handle::current().metrics().num_alive_tasks());
        soon("as many tasks as after the first round", async {
            while Handle::current().metrics().num_alive_tasks() > baseline + 5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    server.stop().await;
}

/// A static stream's reader owes no answer; HTTP/2's own PING finds that it is gone.
///
/// Shows: STR-035, STR-053.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_stream_behind_a_network_that_went_quiet_ends() {
    let (_home, server) = server_with(|config| {
        config.timing.http2_ping_interval = Duration::from_millis(200);
        config.timing.http2_ping_timeout = Duration::from_millis(400);
    })
    .await;
    let link = DeafLink::to(&server.url).await;
    let request =
        SubscribeStaticRequest { topics: topics(0).into_iter().map(|topic| at(topic, 0)).collect() };
    let mut service = Client::connect(&link.url).await.subscribe;
    let mut stream = service.subscribe_static(request).await.expect("a stream").into_inner();
    soon("Started", stream.message()).await.expect("a healthy stream").expect("a frame");
    assert_eq!(server.activity.registrations(), TOPICS as usize);
    link.go_deaf();
    empty(&server).await;
    drop((stream, link));
    server.stop().await;
}

/// Shows: STR-007, STR-008.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_added_and_removed_without_end_leaves_nothing_behind() {
    let rounds = size(3_000, 100_000) as u64;
    let (_home, server) = server_with(|config| {
        config.limits.updates_per_second = 1_000_000;
        config.limits.update_burst = 1_000_000;
    })
    .await;
    let (requests, mut stream) = follow(&server.url, 0).await;
    let topic = topics(1)[0];
    for round in 0..rounds {
        for (id, adds, removes) in [
            (2 * round + 2, vec![at(topic, 0)], Vec::new()),
            (2 * round + 3, Vec::new(), vec![topic.to_proto()]),
        ] {
            let request = Some(Request::Update(Update { id, adds, removes }));
            requests.send(SubscribeRequest { request }).await.expect("sent");
            let frame = soon("a frame", stream.message()).await.expect("a healthy stream").expect("a frame");
            assert!(matches!(frame.response, Some(Response::Applied(applied)) if applied.id == id));
        }
    }
    assert_eq!(server.activity.registrations(), TOPICS as usize);
    server.stop().await;
}
