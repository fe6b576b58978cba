//! What a registered topic costs in memory: growth of the process over a few streams of 100,000 topics each.

use highwater_wire::{
    Topic,
    proto::backend::{
        SubscribeRequest, TopicQuery,
        subscribe_request::{Request, Update},
        subscribe_response::Response,
        subscribe_service_client::SubscribeServiceClient,
    },
};
use tonic::{Streaming, transport::Channel};

use crate::loopback::{self, Backend};

const STREAMS: u32 = 5;
const TOPICS: u32 = 100_000;

pub(crate) async fn print() {
    let backend = Backend::start().await;
    let channel = loopback::connect(backend.address).await;
    // The first one pays for what stays allocated whatever is registered.
    let first = register(&channel, 0).await;
    let Some(before) = resident_bytes() else {
        println!("memory_per_topic: this system doesn't say how much memory a process has");
        return;
    };
    let mut streams = Vec::new();
    for number in 1..=STREAMS {
        streams.push(register(&channel, number * TOPICS).await);
    }
    let grown = resident_bytes().unwrap_or(before).saturating_sub(before);
    println!("memory_per_topic: {} bytes", grown / u64::from(STREAMS * TOPICS));
    drop((first, streams));
    backend.stop().await;
}

type Open = (
    tokio::sync::mpsc::Sender<SubscribeRequest>,
    Streaming<highwater_wire::proto::backend::SubscribeResponse>,
);

async fn register(channel: &Channel, first: u32) -> Open {
    let adds = (first..first + TOPICS)
        .map(|number| TopicQuery { topic: Some(Topic::to_proto(&loopback::topic(number))), cursor: None })
        .collect();
    let update = Update { id: 1, adds, removes: Vec::new() };
    let (send, requests) = tokio::sync::mpsc::channel(1);
    send.send(SubscribeRequest { request: Some(Request::Update(update)) }).await.expect("a stream");
    let mut client = SubscribeServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut stream = client.subscribe(requests).await.expect("subscribed").into_inner();
    loop {
        let frame = stream.message().await.expect("a frame").expect("a frame");
        if let Some(Response::Applied(applied)) = frame.response {
            assert_eq!(applied.added_targets.len(), TOPICS as usize);
            return (send, stream);
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
