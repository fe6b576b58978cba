//! gRPC-Web over HTTP/1.1, byte by byte: what a browser gets, and when.

use std::{collections::HashMap, time::Duration};

use highwater_backend::CorsOrigins;
use highwater_wire::proto::backend::{
    QueryRequest, QueryResponse, SubscribeStaticRequest, SubscribeStaticResponse,
    subscribe_static_response::Response,
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::fixture::{at, envelope_id, publish_error_of, server, server_with, soon, welcome, welcome_topic};

/// One HTTP/1.1 connection with one request on it.
struct Call {
    stream: TcpStream,
    status: u16,
    headers: HashMap<String, String>,
    /// Of the body, what came and was not taken.
    body: Vec<u8>,
    raw: Vec<u8>,
}

/// A gRPC-Web frame.
#[derive(Debug)]
enum Frame {
    Message(Vec<u8>),
    Trailers(String),
}

impl Call {
    async fn send(url: &str, head: &str, body: &[u8]) -> Self {
        let address = url.strip_prefix("http://").expect("a plain url");
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let head = format!("{head}\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(body).await.expect("sent");
        let mut call = Self { stream, status: 0, headers: HashMap::new(), body: Vec::new(), raw: Vec::new() };
        soon("the head of the answer", call.read_head()).await;
        call
    }

    async fn post(url: &str, method: &str, message: &impl Message) -> Self {
        let head = format!(
            "POST /xmtp.backend.v1.{method} HTTP/1.1\r\ncontent-type: application/grpc-web+proto\r\n\
             x-grpc-web: 1\r\norigin: https://chat.example"
        );
        let message = message.encode_to_vec();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
        body.extend_from_slice(&message);
        Self::send(url, &head, &body).await
    }

    async fn read_head(&mut self) {
        let end = loop {
            if let Some(end) = self.raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            assert!(self.read_more().await, "the connection ended in the head");
        };
        let head = String::from_utf8(self.raw.drain(..end + 4).collect()).expect("text");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        self.status = status.parse().expect("a number");
        self.headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
    }

    async fn read_more(&mut self) -> bool {
        self.stream.read_buf(&mut self.raw).await.expect("read") > 0
    }

    /// Takes the next chunk of the body, if there is another.
    async fn read_chunk(&mut self) -> bool {
        loop {
            if let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") {
                let size = std::str::from_utf8(&self.raw[..line]).expect("text");
                let size = usize::from_str_radix(size.trim(), 16).expect("a size");
                if self.raw.len() >= line + 2 + size + 2 {
                    self.body.extend_from_slice(&self.raw[line + 2..line + 2 + size]);
                    self.raw.drain(..line + 2 + size + 2);
                    return size > 0;
                }
            }
            if !self.read_more().await {
                return false;
            }
        }
    }

    /// The next frame; `None` at the end of the body.
    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((head, rest)) = self.body.split_at_checked(5) {
                let size = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
                if let Some(content) = rest.get(..size) {
                    let content = content.to_vec();
                    let trailers = head[0] & 0x80 != 0;
                    self.body.drain(..5 + size);
                    return Some(match trailers {
                        true => Frame::Trailers(String::from_utf8(content).expect("text")),
                        false => Frame::Message(content),
                    });
                }
            }
            if !self.read_chunk().await {
                return None;
            }
        }
    }

    async fn message<M: Message + Default>(&mut self) -> M {
        match soon("a message", self.frame()).await {
            Some(Frame::Message(bytes)) => M::decode(bytes.as_slice()).expect("a message"),
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// The status and its details, wherever they are told.
    async fn ended(&mut self) -> HashMap<String, String> {
        if self.headers.contains_key("grpc-status") {
            return self.headers.clone();
        }
        match soon("the trailers", self.frame()).await {
            Some(Frame::Trailers(text)) => text
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
                .collect(),
            other => panic!("{other:?} instead of trailers"),
        }
    }
}

fn subscription(number: u8) -> SubscribeStaticRequest {
    SubscribeStaticRequest { topics: vec![at(welcome_topic(number), 0)] }
}

const STATIC: &str = "SubscribeService/SubscribeStatic";

/// Shows: STR-050, STR-051, STR-055.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_stream_reaches_an_http_1_client_frame_by_frame() {
    let (_home, running) = server_with(|config| config.timing.keepalive = Duration::from_millis(50)).await;
    let client = running.client().await;
    let first = client.put_one(welcome(1, b"history")).await;
    let mut call = Call::post(&running.url, STATIC, &subscription(1)).await;
    assert_eq!((call.status, call.headers["content-type"].as_str()), (200, "application/grpc-web+proto"));
    assert_eq!(call.headers["access-control-allow-origin"], "*");
    let exposed = &call.headers["access-control-expose-headers"];
    for name in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
        assert!(exposed.contains(name), "{exposed}");
    }
    let started: SubscribeStaticResponse = call.message().await;
    assert!(matches!(started.response, Some(Response::Started(_))), "{started:?}");
    let mut received = Vec::new();
    let (mut second, mut keepalives) = (0, 0);
    // History, signs of life while nothing happens, and what is published then.
    while received.len() < 2 {
        let frame: SubscribeStaticResponse = call.message().await;
        match frame.response {
            Some(Response::Messages(messages)) => received.extend(messages.envelopes.iter().map(envelope_id)),
            Some(Response::Keepalive(_)) => {
                keepalives += 1;
                if keepalives == 2 {
                    second = client.put_one(welcome(1, b"live")).await;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, [first, second]);
    running.stop().await;
    assert_eq!(call.ended().await["grpc-status"], "14");
}

/// Shows: STR-055.
#[tokio::test]
async fn unary_calls_and_errors_come_through() {
    let (_home, running) = server().await;
    let id = running.client().await.put_one(welcome(1, b"a")).await;
    let query = QueryRequest { queries: vec![at(welcome_topic(1), 0)], limit: 0 };
    let mut call = Call::post(&running.url, "QueryService/Query", &query).await;
    let page: QueryResponse = call.message().await;
    assert_eq!(page.envelopes.iter().map(envelope_id).collect::<Vec<_>>(), [id]);
    assert_eq!(call.ended().await["grpc-status"], "0");

    let mut refused = Call::post(&running.url, STATIC, &SubscribeStaticRequest::default()).await;
    assert_eq!(refused.ended().await["grpc-status"], "3");

    let request = highwater_wire::proto::backend::PublishRequest { envelopes: vec![Default::default()] };
    let mut refused = Call::post(&running.url, "PublishService/Publish", &request).await;
    let told = refused.ended().await;
    assert_eq!(told["grpc-status"], "3");
    let error = publish_error_of(&told["grpc-status-details-bin"]);
    assert_eq!(error.index, Some(0));
}

#[tokio::test]
async fn a_preflight_is_answered_for_the_configured_origins() {
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /xmtp.backend.v1.{STATIC} HTTP/1.1\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\n\
             access-control-request-headers: content-type,x-grpc-web,x-user-agent"
        )
    };
    let allowed = "https://chat.example";
    let (_home, running) =
        server_with(|config| config.cors = CorsOrigins::List(vec![allowed.to_owned()])).await;
    let call = Call::send(&running.url, &preflight(allowed), b"").await;
    assert_eq!(call.status, 200);
    assert_eq!(call.headers["access-control-allow-origin"], allowed);
    assert!(call.headers["access-control-allow-methods"].contains("POST"));
    assert!(call.headers.contains_key("access-control-max-age"));
    let other = Call::send(&running.url, &preflight("https://elsewhere.example"), b"").await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
}

/// A client that goes before anything is published, and one that goes without a word.
///
/// Shows: STR-035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_leaves_no_registration() {
    let (_home, running) = server_with(|config| config.timing.keepalive = Duration::from_millis(50)).await;
    let mut calls = Vec::new();
    for number in 0..20 {
        let mut call = Call::post(&running.url, STATIC, &subscription(number)).await;
        if number % 2 == 0 {
            let _: SubscribeStaticResponse = call.message().await;
        }
        calls.push(call);
    }
    assert_eq!(running.activity.streams(), 20);
    drop(calls);
    soon("all registrations gone", async {
        while running.activity.streams() > 0 || running.activity.registrations() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Case: a proxy on the way ends connections that are quiet for a while.
///
/// Shows: STR-053.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_survives_a_proxy_with_an_idle_limit() {
    let soak = std::env::var_os("HIGHWATER_SOAK").is_some();
    let (limit, limits) = if soak { (Duration::from_secs(60), 10) } else { (Duration::from_millis(600), 4) };
    // Well inside the limit; and with the signal far outside, to prove that the proxy would cut.
    for (keepalive, survives) in [(limit / 4, true), (limit * 100, false)] {
        let (_home, running) = server_with(|config| {
            config.timing.keepalive = keepalive;
            config.timing.pong_wait = keepalive * 3;
        })
        .await;
        let proxy = idle_limited(running.url.clone(), limit).await;
        let mut call = Call::post(&proxy, STATIC, &subscription(1)).await;
        let _: SubscribeStaticResponse = call.message().await;
        let quiet =
            tokio::time::timeout(limit * limits, async { while call.frame().await.is_some() {} }).await;
        assert_eq!(quiet.is_err(), survives, "cut or not within a few limits");
        if survives {
            let id = running.client().await.put_one(welcome(1, b"late")).await;
            let received = soon("the message", async {
                loop {
                    let frame: SubscribeStaticResponse = call.message().await;
                    if let Some(Response::Messages(messages)) = frame.response {
                        return envelope_id(&messages.envelopes[0]);
                    }
                }
            });
            assert_eq!(received.await, id);
        }
    }
}

/// A proxy that cuts a connection on which nothing came from the server for `limit`.
async fn idle_limited(url: String, limit: Duration) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(url.strip_prefix("http://").expect("a plain url")).await;
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.expect("connected").into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(Ok(size @ 1..)) = tokio::time::timeout(limit, far_read.read(&mut buffer)).await {
                    if near_write.write_all(&buffer[..size]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// A request whose body never comes to an end holds nothing for ever.
#[tokio::test]
async fn a_request_that_stalls_is_ended() {
    let (_home, running) = server_with(|config| {
        config.timing.publish_lifetime = Duration::from_millis(200);
        config.timing.request_timeout = Duration::from_millis(400);
    })
    .await;
    let address = running.url.strip_prefix("http://").expect("a plain url").to_owned();
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let head = format!(
        "POST /xmtp.backend.v1.PublishService/Publish HTTP/1.1\r\nhost: {address}\r\n\
         content-type: application/grpc-web+proto\r\ncontent-length: 1000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(&[0, 0, 15, 0, 0]).await.expect("sent");
    let mut answer = vec![0; 1];
    // An answer, or the end of the connection: the server let go.
    let _ = soon("the server's patience to end", stream.read(&mut answer)).await;
    running.stop().await;
}
