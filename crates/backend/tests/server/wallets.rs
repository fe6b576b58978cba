//! Contract wallets, judged by a scripted chain.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use highwater_backend::WalletRoute;
use highwater_identity::sign;
use highwater_wire::{
    InstallationKey, Topic,
    proto::{
        associations::{IdentifierKind, IdentityUpdate, Signature, SmartContractWalletSignature, signature},
        backend::{
            GetInboxIdsRequest, VerifySmartContractWalletSignaturesRequest, get_inbox_ids_request,
            publish_error::Reason, verify_smart_contract_wallet_signatures_request::Signature as Asked,
            verify_smart_contract_wallet_signatures_response::Response as Answer,
        },
    },
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::fixture::{Home, Running, identity, publish_error, server_with, welcome};
use crate::people::Person;

const WALLET: &str = "0x00000000000000000000000000000000000000aa";
const ACCOUNT: &str = "eip155:1:0x00000000000000000000000000000000000000aa";
const MULTICALL: &str = "0xca11bde05977b3631167028862be2a173976ca11";
/// `bytes4` of acceptance, as a word.
const ACCEPTS: &str = "0x1626ba7e00000000000000000000000000000000000000000000000000000000";

/// What a node answers: a result, an error, or no JSON-RPC at all.
enum Says {
    Result(Value),
    Error(i64, &'static str),
    Http(StatusCode),
}

type Script = Arc<dyn Fn(&str, &Value) -> Says + Send + Sync>;

/// A chain's node that does as it is told, and remembers what it was asked.
#[derive(Clone)]
struct Node {
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Calls under way, and the most there were at once.
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    url: String,
}

impl Node {
    async fn start(script: impl Fn(&str, &Value) -> Says + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Arc::new(script)));
        let node = Self { script, asked: Arc::default(), open: Arc::default(), most: Arc::default(), url };
        let routes = Router::new().route("/", post(answer)).with_state(node.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.expect("served") });
        node
    }

    fn rescript(&self, script: impl Fn(&str, &Value) -> Says + Send + Sync + 'static) {
        *self.script.lock().expect("no panic") = Arc::new(script);
    }

    fn asked(&self, method: &str) -> usize {
        self.asked.lock().expect("no panic").iter().filter(|(asked, _)| asked == method).count()
    }
}

async fn answer(State(node): State<Node>, Json(request): Json<Value>) -> (StatusCode, Json<Value>) {
    let (method, params) =
        (request["method"].as_str().expect("a method").to_owned(), request["params"].clone());
    let now = node.open.fetch_add(1, Ordering::SeqCst) + 1;
    node.most.fetch_max(now, Ordering::SeqCst);
    // Long enough for calls to overlap if they may.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    node.open.fetch_sub(1, Ordering::SeqCst);
    let script = Arc::clone(&node.script.lock().expect("no panic"));
    node.asked.lock().expect("no panic").push((method.clone(), params.clone()));
    let says = if method == "eth_chainId" { Says::Result(json!("0x1")) } else { script(&method, &params) };
    let (status, mut body) = match says {
        Says::Result(result) => (StatusCode::OK, json!({"result": result})),
        Says::Error(code, message) => (StatusCode::OK, json!({"error": {"code": code, "message": message}})),
        Says::Http(status) => (status, json!({})),
    };
    body["jsonrpc"] = json!("2.0");
    body["id"] = request["id"].clone();
    (status, Json(body))
}

/// A deployed wallet that answers `isValidSignature` so.
fn deployed(answer: &'static str) -> impl Fn(&str, &Value) -> Says + Send + Sync + 'static {
    move |method, params| match method {
        "eth_blockNumber" => Says::Result(json!("0x64")),
        "eth_getCode" => Says::Result(json!("0x6001")),
        "eth_call" if params[0]["to"] == WALLET => Says::Result(json!(answer)),
        _ => Says::Error(-32601, "not in the script"),
    }
}

async fn server_for(node: &Node) -> (Home, Running) {
    let route = WalletRoute { chain_id: 1, url: node.url.clone() };
    server_with(|config| config.wallets = vec![route]).await
}

fn question(account_id: &str, signature: &[u8]) -> Asked {
    Asked {
        account_id: account_id.to_owned(),
        block_number: Some(7),
        hash: vec![9; 32],
        signature: signature.to_vec(),
    }
}

async fn verify(running: &Running, signatures: Vec<Asked>) -> Result<Vec<Answer>, Status> {
    let request = VerifySmartContractWalletSignaturesRequest { signatures };
    let client = running.client().await;
    Ok(client.identity.clone().verify_smart_contract_wallet_signatures(request).await?.into_inner().responses)
}

async fn verdict(node: &Node, signature: &[u8]) -> bool {
    let (_home, running) = server_for(node).await;
    let answers = verify(&running, vec![question(ACCOUNT, signature)]).await.expect("answers");
    assert_eq!((answers.len(), answers[0].block_number), (1, Some(7)));
    running.stop().await;
    answers[0].is_valid
}

/// An ERC-6492 wrapper around a signature.
fn wrapped(signature: &[u8]) -> Vec<u8> {
    let word = |number: usize| {
        let mut word = [0; 32];
        word[24..].copy_from_slice(&(number as u64).to_be_bytes());
        word
    };
    let mut bytes = vec![0; 12];
    bytes.extend([0xfa; 20]);
    for number in [96, 160] {
        bytes.extend(word(number));
    }
    for part in [&b"deploy it"[..], signature] {
        bytes.extend(word(part.len()));
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    bytes.extend([0x64, 0x92].repeat(16));
    bytes
}

#[tokio::test]
async fn a_deployed_wallet_is_asked_itself() {
    for (answer, valid) in [
        (ACCEPTS, true),
        ("0x", false),
        ("0x1626ba7e", false),
        ("0xffffffff00000000000000000000000000000000000000000000000000000000", false),
    ] {
        let node = Node::start(deployed(answer)).await;
        assert_eq!(verdict(&node, b"signed").await, valid, "{answer}");
        let asked = node.asked.lock().expect("no panic").clone();
        let call = asked.iter().find(|(method, _)| method == "eth_call").expect("a call");
        let data = call.1[0]["data"].as_str().expect("data");
        // isValidSignature(bytes32,bytes) of the hash and the signature, at the block that was named.
        assert!(data.starts_with(&format!("0x1626ba7e{}", hex::encode([9; 32]))), "{data}");
        assert!(data.contains(&hex::encode(b"signed")), "{data}");
        assert_eq!(call.1[1], "0x7");
    }
    let node = Node::start(|method: &str, _: &Value| match method {
        "eth_getCode" => Says::Result(json!("0x6001")),
        _ => Says::Error(3, "execution reverted"),
    })
    .await;
    assert!(!verdict(&node, b"signed").await, "a revert refuses");
}

#[tokio::test]
async fn a_wallet_that_is_not_there_yet_is_asked_after_its_deployment() {
    for (accepts, valid) in [(true, true), (false, false)] {
        let node = Node::start(move |method: &str, params: &Value| match method {
            "eth_getCode" => Says::Result(json!("0x")),
            "eth_call" if params[0]["to"] == MULTICALL => Says::Result(json!(both_calls(accepts))),
            _ => Says::Error(-32601, "not in the script"),
        })
        .await;
        assert_eq!(verdict(&node, &wrapped(b"signed")).await, valid);
    }
    // Deployed already: the wrapper isn't needed.
    let node = Node::start(deployed(ACCEPTS)).await;
    assert!(verdict(&node, &wrapped(b"signed")).await);
    let mut broken = wrapped(b"signed");
    broken.drain(..32);
    assert!(!verdict(&node, &broken).await, "marked as wrapped, without being it");
}

/// What `aggregate3` returns for two calls that succeeded: nothing, and the wallet's answer.
fn both_calls(accepts: bool) -> String {
    let word = |number: u64| format!("{number:064x}");
    let answer = if accepts { ACCEPTS[2..].to_owned() } else { word(0) };
    let first = [word(1), word(64), word(0)].concat();
    let second = [word(1), word(64), word(32), answer].concat();
    format!("0x{}", [word(32), word(2), word(64), word(64 + 96), first, second].concat())
}

#[tokio::test]
async fn what_a_node_cannot_say_is_unavailable_and_never_invalid() {
    let failures: [fn() -> Says; 6] = [
        || Says::Error(-32000, "header not found"),
        || Says::Error(-32005, "limit exceeded"),
        || Says::Error(-32603, "internal error"),
        || Says::Http(StatusCode::TOO_MANY_REQUESTS),
        || Says::Http(StatusCode::BAD_GATEWAY),
        || Says::Result(Value::Null),
    ];
    for failure in failures {
        let node = Node::start(move |_: &str, _: &Value| failure()).await;
        let (_home, running) = server_for(&node).await;
        let status = verify(&running, vec![question(ACCOUNT, b"signed")]).await.expect_err("no verdict");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(!status.message().contains("127.0.0.1"), "{status:?}");
        running.stop().await;
    }
    // Nobody there, and no route to the chain.
    let node = Node::start(deployed(ACCEPTS)).await;
    let (_home, running) = server_with(|config| {
        let url = "http://127.0.0.1:9/".to_owned();
        config.wallets =
            vec![WalletRoute { chain_id: 1, url }, WalletRoute { chain_id: 2, url: node.url.clone() }];
    })
    .await;
    for account in [ACCOUNT, "eip155:3:0x00000000000000000000000000000000000000aa"] {
        let status = verify(&running, vec![question(account, b"signed")]).await.expect_err("no verdict");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    }
    // The node behind the second route serves chain 1.
    let account = "eip155:2:0x00000000000000000000000000000000000000aa";
    let status = verify(&running, vec![question(account, b"signed")]).await.expect_err("another chain");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    running.stop().await;
}

#[tokio::test]
async fn many_are_answered_in_order_and_asked_a_few_at_a_time() {
    let node = Node::start(|method: &str, params: &Value| match method {
        "eth_getCode" => Says::Result(json!("0x6001")),
        _ => {
            let data = params[0]["data"].as_str().expect("data");
            let good = data.contains(&hex::encode(b"good"));
            Says::Result(json!(if good { ACCEPTS } else { "0x" }))
        }
    })
    .await;
    let (_home, running) = server_for(&node).await;
    let mut questions: Vec<Asked> = (0..40)
        .map(|number| {
            question(ACCOUNT, format!("{} {number}", if number % 3 == 0 { "good" } else { "bad" }).as_bytes())
        })
        .collect();
    questions[5] = question("eip155:1:nobody", b"good");
    questions[6].hash.pop();
    let answers = verify(&running, questions).await.expect("answers");
    for (number, answer) in answers.iter().enumerate() {
        match number {
            5 | 6 => assert!(!answer.is_valid && answer.error.is_some(), "{number}: {answer:?}"),
            _ => assert_eq!((answer.is_valid, &answer.error), (number % 3 == 0, &None), "{number}"),
        }
    }
    let most = node.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} calls at once");
    // The same verdict at the same block isn't asked for again.
    let before = node.asked("eth_call");
    verify(&running, vec![question(ACCOUNT, b"good 0")]).await.expect("answers");
    assert_eq!(node.asked("eth_call"), before);
    running.stop().await;
}

#[tokio::test]
async fn without_a_block_the_newest_is_taken_and_told() {
    let node = Node::start(deployed(ACCEPTS)).await;
    let (_home, running) = server_for(&node).await;
    let asked = Asked { block_number: None, ..question(ACCOUNT, b"signed") };
    let answers = verify(&running, vec![asked]).await.expect("answers");
    assert_eq!((answers[0].is_valid, answers[0].block_number), (true, Some(100)));
    running.stop().await;
}

/// The registration of an inbox that a contract wallet owns, and its identity topic.
fn registration(signature: &[u8]) -> (IdentityUpdate, Topic) {
    let seed = [4; 32];
    let key = sign::sign_as_installation(&seed, "");
    let Some(signature::Signature::InstallationKey(key)) = key.signature else { panic!("an installation's") };
    let key = InstallationKey::try_from(key.public_key.as_slice()).expect("32 bytes");
    let unsigned = sign::registration(WALLET.parse().expect("an address"), 0, key, 1);
    let topic = Topic::identity(unsigned.inbox_id());
    let text = unsigned.text().to_owned();
    let by_wallet = Signature {
        signature: Some(signature::Signature::Erc6492(SmartContractWalletSignature {
            account_id: ACCOUNT.to_owned(),
            block_number: 7,
            signature: signature.to_vec(),
        })),
    };
    (unsigned.finish(by_wallet, sign::sign_as_installation(&seed, &text)), topic)
}

#[tokio::test]
async fn an_inbox_of_a_contract_wallet_is_published_once_its_chain_can_be_asked() {
    let down = || |_: &str, _: &Value| Says::Http(StatusCode::SERVICE_UNAVAILABLE);
    let node = Node::start(down()).await;
    let (_home, running) = server_for(&node).await;
    let client = running.client().await;
    let (update, topic) = registration(b"signed");
    let publish = async || client.put(vec![welcome(1, b"beside"), identity(update.clone())]).await;
    let status = publish().await.expect_err("no verdict");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(client.all(topic).await, Vec::<u64>::new());
    // A refusal for another reason doesn't wait for the chain.
    let stale = Person::new(1).add(2);
    let refused = client.put(vec![identity(stale), identity(update.clone())]).await.expect_err("refused");
    assert_eq!(publish_error(&refused).index, Some(0));

    node.rescript(deployed("0x"));
    let refused = publish().await.expect_err("the wallet didn't sign");
    let error = publish_error(&refused);
    assert_eq!((error.index, error.reason()), (Some(1), Reason::InvalidSignature));

    let (update, topic) = registration(b"signed by the wallet");
    node.rescript(deployed(ACCEPTS));
    client.put(vec![identity(update)]).await.expect("published");
    assert_eq!(client.all(topic).await.len(), 1);
    let request = get_inbox_ids_request::Request {
        identifier: WALLET.to_owned(),
        identifier_kind: IdentifierKind::Ethereum.into(),
    };
    let request = GetInboxIdsRequest { requests: vec![request] };
    let found = client.identity.clone().get_inbox_ids(request).await.expect("an answer").into_inner();
    assert!(found.responses[0].inbox_id.is_some());
    running.stop().await;
}
