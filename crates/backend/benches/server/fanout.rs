//! Live delivery of one topic to 100 streams, against a bare tonic service that pushes the same bytes in
//! frames of the same size.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use highwater_wire::proto::backend::{
    ServerEnvelope, SubscribeStaticResponse,
    subscribe_static_response::{Messages, Response},
};
use tokio::sync::watch;
use tonic::{Streaming, transport::Channel};

use crate::{
    bare::Pusher,
    loopback::{self, Backend},
    report::Pair,
};

const STREAMS: usize = 100;
/// Streams that share a connection.
const PER_CONNECTION: usize = 10;
const ENVELOPES: usize = 2_000;
const PER_PUBLISH: usize = 20;
const BYTES: usize = 1_024;

pub(crate) async fn round() -> Pair {
    let (ours, frames) = ours().await;
    let floor = floor(ENVELOPES.div_ceil(frames)).await;
    Pair { floor, ours, count: ENVELOPES * STREAMS, unit: "per delivered envelope" }
}

async fn streams(connect: impl AsyncFn() -> Channel) -> Vec<Streaming<SubscribeStaticResponse>> {
    let mut streams = Vec::new();
    for _ in 0..STREAMS / PER_CONNECTION {
        let channel = connect().await;
        for _ in 0..PER_CONNECTION {
            streams.push(loopback::subscribe(&channel, &[loopback::topic(1)]).await);
        }
    }
    streams
}

/// Lets every stream receive everything; how long the slowest took, and the frames of an average stream.
async fn receive_all(
    streams: Vec<Streaming<SubscribeStaticResponse>>,
    start: impl Future<Output = ()>,
) -> (Duration, usize) {
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { loopback::receive(&mut stream, ENVELOPES).await }))
        .collect();
    let began = Instant::now();
    start.await;
    let mut frames = 0;
    for reader in readers {
        frames += reader.await.expect("received");
    }
    (began.elapsed(), (frames / STREAMS).max(1))
}

async fn ours() -> (Duration, usize) {
    let backend = Backend::start().await;
    let streams = streams(async || loopback::connect(backend.address).await).await;
    let publisher = loopback::connect(backend.address).await;
    let publish = async {
        for first in (0..ENVELOPES).step_by(PER_PUBLISH) {
            let serials = first..first + PER_PUBLISH;
            let envelopes = serials.map(|serial| loopback::welcome(1, serial as u64, BYTES)).collect();
            loopback::put(&publisher, envelopes).await;
        }
    };
    let measured = receive_all(streams, publish).await;
    backend.stop().await;
    measured
}

async fn floor(per_frame: usize) -> Duration {
    let envelopes = stored().await;
    let frames = envelopes
        .chunks(per_frame)
        .map(|chunk| SubscribeStaticResponse {
            response: Some(Response::Messages(Messages { envelopes: chunk.to_vec() })),
        })
        .collect();
    let (go, wait) = watch::channel(false);
    let (address, serving) = Pusher { frames: Arc::new(frames), go: wait }.serve().await;
    let streams = streams(async || loopback::connect(address).await).await;
    let (took, _) = receive_all(streams, async {
        go.send_replace(true);
    })
    .await;
    serving.abort();
    took
}

/// The envelopes as the server delivers them.
async fn stored() -> Vec<ServerEnvelope> {
    let backend = Backend::start().await;
    let channel = loopback::connect(backend.address).await;
    let envelopes: Vec<_> = (0..ENVELOPES).map(|serial| loopback::welcome(1, serial as u64, BYTES)).collect();
    let metas = loopback::put(&channel, envelopes.clone()).await;
    backend.stop().await;
    metas
        .into_iter()
        .zip(envelopes)
        .map(|(meta, envelope)| ServerEnvelope { meta: Some(meta), envelope: Some(envelope) })
        .collect()
}
