//! One chain's node, over JSON-RPC.

use std::{fmt, time::Duration};

use highwater_identity::Address;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

/// Above any contract's code and any honest answer.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;
/// Calls in flight to one node, over all requests.
const CALLS_IN_FLIGHT: usize = 32;

/// Why a node gave no usable answer. Says nothing about the signature: each is worth a retry. The
/// texts hold neither the URL, which is a secret, nor what the node wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error("{0}")]
    Transport(#[source] reqwest::Error),
    #[error("HTTP status {0}")]
    Status(StatusCode),
    #[error("more than {MAX_RESPONSE_BYTES} bytes")]
    TooLarge,
    #[error("unreadable answer: {0}")]
    Malformed(&'static str),
    #[error("JSON-RPC error {code}")]
    Rpc { code: i64 },
    #[error("the node serves chain {found}")]
    WrongChain { found: u64 },
    #[error("the chain has no Multicall3 at that block")]
    NoMulticall,
}

impl From<reqwest::Error> for NodeError {
    fn from(error: reqwest::Error) -> Self {
        Self::Transport(error.without_url())
    }
}

/// How a call of a contract ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Called {
    Returned(Vec<u8>),
    /// The contract refused; the chain's answer, not a failure of the node.
    Reverted,
}

pub(super) struct Node {
    client: Client,
    url: Url,
    chain_id: u64,
    /// Set once the node has shown that it serves `chain_id`: a wrong route would put wrong verdicts
    /// into logs that are never judged again.
    chain_confirmed: OnceCell<()>,
    calls: Semaphore,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("chain_id", &self.chain_id).finish_non_exhaustive()
    }
}

impl Node {
    pub(super) fn new(client: Client, chain_id: u64, url: Url) -> Self {
        Self {
            client,
            url,
            chain_id,
            chain_confirmed: OnceCell::new(),
            calls: Semaphore::new(CALLS_IN_FLIGHT),
        }
    }

    /// The client for all nodes. A redirect or a proxy could lead the key in a URL astray.
    ///
    /// # Errors
    /// If TLS can't be set up: the system's root certificates can't be read.
    pub(super) fn client(call_timeout: Duration) -> Result<Client, reqwest::Error> {
        // An error says that the process has a provider already, which will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .timeout(call_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(reqwest::Error::without_url)
    }

    /// The newest block.
    pub(super) async fn head(&self) -> Result<u64, NodeError> {
        quantity(&self.asked("eth_blockNumber", json!([])).await??)
    }

    /// Whether a contract stands at the address.
    pub(super) async fn has_code(&self, address: Address, block: u64) -> Result<bool, NodeError> {
        let code = self.asked("eth_getCode", json!([address.to_string(), tag(block)])).await??;
        Ok(!data(&code)?.is_empty())
    }

    /// Calls a contract without changing anything.
    pub(super) async fn call(&self, to: Address, input: &[u8], block: u64) -> Result<Called, NodeError> {
        let call = json!({ "to": to.to_string(), "data": format!("0x{}", hex::encode(input)) });
        match self.asked("eth_call", json!([call, tag(block)])).await? {
            Ok(returned) => data(&returned).map(Called::Returned),
            Err(error) if error.is_revert() => Ok(Called::Reverted),
            Err(error) => Err(error.into()),
        }
    }

    async fn asked(&self, method: &str, params: Value) -> Result<Result<Value, RpcError>, NodeError> {
        self.chain_confirmed
            .get_or_try_init(|| async {
                match quantity(&self.send("eth_chainId", json!([])).await??)? {
                    found if found == self.chain_id => Ok(()),
                    found => Err(NodeError::WrongChain { found }),
                }
            })
            .await?;
        self.send(method, params).await
    }

    async fn send(&self, method: &str, params: Value) -> Result<Result<Value, RpcError>, NodeError> {
        let _permit = self.calls.acquire().await.expect("the semaphore is never closed");
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut response = self.client.post(self.url.clone()).json(&request).send().await?;
        if !response.status().is_success() {
            return Err(NodeError::Status(response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(NodeError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|_| NodeError::Malformed("no JSON-RPC response"))?;
        match answer {
            Answer { error: Some(error), .. } => Ok(Err(error)),
            Answer { result: Some(result), id, .. } if id == 1 => Ok(Ok(result)),
            // Some nodes answer `null` for a block that they don't have.
            _ => Err(NodeError::Malformed("neither result nor error")),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    id: Value,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Debug, Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

impl RpcError {
    /// Whether the contract ended the call, as each kind of node words it. Everything else, running
    /// out of the node's own gas limit included, is the node's and proves nothing.
    fn is_revert(&self) -> bool {
        const HALTS: [&str; 3] = ["revert", "invalid opcode", "invalid jump destination"];
        let message = self.message.to_ascii_lowercase();
        match self.code {
            3 => true,
            -32000 => HALTS.iter().any(|halt| message.contains(halt)),
            -32015 => self.data.as_str().is_some_and(|data| data.starts_with("Reverted")),
            _ => message.contains("execution reverted"),
        }
    }
}

impl From<RpcError> for NodeError {
    fn from(error: RpcError) -> Self {
        Self::Rpc { code: error.code }
    }
}

fn tag(block: u64) -> String {
    format!("{block:#x}")
}

fn quantity(value: &Value) -> Result<u64, NodeError> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(NodeError::Malformed("no quantity"))
}

fn data(value: &Value) -> Result<Vec<u8>, NodeError> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits.and_then(|digits| hex::decode(digits).ok()).ok_or(NodeError::Malformed("no data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_contract_did_is_a_revert() {
        let error = |code: i64, message: &str, data: Value| {
            let error = json!({ "code": code, "message": message, "data": data });
            serde_json::from_value::<RpcError>(error).expect("an error")
        };
        for (code, message, data) in [
            (3, "execution reverted: no", json!("0x08c379a0")),
            (-32000, "execution reverted", Value::Null),
            (-32000, "VM Exception while processing transaction: revert", Value::Null),
            (-32000, "invalid opcode: INVALID", Value::Null),
            (-32603, "Execution reverted", Value::Null),
            (-32015, "VM execution error.", json!("Reverted 0x")),
        ] {
            assert!(error(code, message, data).is_revert(), "{code} {message}");
        }
        for (code, message) in [
            (-32000, "header not found"),
            (-32000, "missing trie node"),
            (-32000, "out of gas"),
            (-32001, "block not found"),
            (-32005, "limit exceeded"),
            (-32015, "VM execution error."),
            (-32601, "the method does not exist"),
            (-32603, "internal error"),
        ] {
            assert!(!error(code, message, Value::Null).is_revert(), "{code} {message}");
        }
    }

    #[test]
    fn numbers_and_data_have_one_form() {
        assert_eq!(quantity(&json!("0x1b4")).expect("a quantity"), 436);
        assert_eq!(data(&json!("0x")).expect("data"), Vec::<u8>::new());
        assert_eq!(data(&json!("0x01ff")).expect("data"), [1, 255]);
        for value in [json!("0x"), json!("0x+1"), json!("12"), json!(12), json!("0x10000000000000000")] {
            assert!(quantity(&value).is_err(), "{value}");
        }
        for value in [json!("0x1"), json!("01"), json!("0xzz"), json!([]), Value::Null] {
            assert!(data(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn clients_can_be_made_again_and_again() {
        for _ in 0..2 {
            Node::client(Duration::from_secs(1)).expect("a client");
        }
    }
}
