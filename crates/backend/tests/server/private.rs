//! Nothing that passes through the server is found in what it says about itself.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock, atomic::Ordering},
};

use highwater_wire::{
    GroupId, Topic,
    proto::backend::{GetInboxIdsRequest, get_inbox_ids_request},
};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::people::{MlsMember, Person};
use crate::{fault::FaultyStore, fixture::*, subscribe::Stream};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while writing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Everything that this process logs from now on, the other tests' lines included.
fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("info,highwater_backend=trace,sqlx=trace"))
            .with_ansi(false)
            .with_writer(log.clone())
            .init();
        log
    })
}

const MARK: &[u8] = b"no-eye-may-see-this-payload";

/// Every form in which bytes may end up in a line.
fn forms(bytes: &[u8]) -> Vec<String> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{bytes:?}");
    vec![
        hex.to_uppercase(),
        hex,
        list.trim_matches(['[', ']']).to_owned(),
        bytes.escape_ascii().to_string(),
        String::from_utf8_lossy(bytes).into_owned(),
    ]
}

/// Shows: STR-031, STR-035.
#[tokio::test]
async fn logs_and_metrics_of_a_busy_server_name_no_payload_topic_inbox_or_key() {
    let log = log();
    let home = Home::new();
    let (store, faults) = FaultyStore::open(&home).await;
    let server = Running::start_over(store, &home, with_metrics).await;
    let client = server.client().await;

    let group = GroupId::try_from(&[0xa7; 16][..]).expect("an id");
    let mut member = MlsMember::new(group.as_bytes());
    let person = Person::new(0xb3);
    let mut stream = Stream::open(&client).await;
    let topics = [Topic::group(group), welcome_topic(0xc5), Topic::identity(person.inbox)];
    stream.update(1, &topics.map(|topic| (topic, 0)), &[]).await;
    stream.applied(1).await;

    client.put_one(group_message(member.message(MARK))).await;
    client.put_one(welcome(0xc5, MARK)).await;
    client.put_one(commit_log(group)).await;
    client.put_one(identity(person.registration.clone())).await;
    // Every kind of failure.
    client.put(vec![group_message(MARK.to_vec())]).await.expect_err("no MLS message");
    client.put(vec![key_package(MARK.to_vec())]).await.expect_err("no key package");
    let mut unsigned = person.add(0xd1);
    unsigned.inbox_id = person.inbox.to_string();
    unsigned.actions.clear();
    client.put(vec![identity(unsigned)]).await.expect_err("no valid update");
    stream.update(1, &[(welcome_topic(0xc5), 0)], &[]).await;
    let request = GetInboxIdsRequest {
        requests: vec![get_inbox_ids_request::Request {
            identifier: person.wallet.address().to_string(),
            ..Default::default()
        }],
    };
    client.identity.clone().get_inbox_ids(request.clone()).await.expect("looked up");
    for fault in [&faults.reads, &faults.tail] {
        fault.store(true, Ordering::SeqCst);
        let page = client.page(&topics.map(|topic| (topic, 0)), 0).await;
        assert_eq!(page.is_err(), faults.reads.load(Ordering::SeqCst));
    }
    client.identity.clone().get_inbox_ids(request).await.expect_err("the store fails");
    faults.reads.store(false, Ordering::SeqCst);
    faults.tail.store(false, Ordering::SeqCst);
    let metrics = server.get("/metrics").await.1;
    server.stop().await;

    let mut secrets = forms(MARK);
    for topic in topics.iter().chain([&Topic::commit_log(group)]) {
        secrets.extend(forms(&topic.to_bytes()));
    }
    secrets.extend(forms(group.as_bytes()));
    secrets.extend(forms(installation(0xc5).as_bytes()));
    secrets.extend(forms(member.installation().as_bytes()));
    secrets.push(person.inbox.to_string());
    secrets.push(person.wallet.address().to_string().trim_start_matches("0x").to_ascii_lowercase());
    let logged = String::from_utf8_lossy(&log.0.lock().expect("no panic while writing")).into_owned();
    assert!(logged.contains("store unavailable"), "something was logged:\n{logged}");
    for (what, text) in [("metrics", metrics), ("logs", logged)] {
        for secret in &secrets {
            let line = text.lines().find(|line| line.contains(secret.as_str()));
            assert!(line.is_none(), "{secret} is in the {what}: {line:?}");
        }
    }
}
