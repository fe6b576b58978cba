//! Contract wallets: signatures that only a chain can judge (ERC-1271, ERC-6492).
//!
//! Each chain has a route, one node, from the configuration. Without a route, or while its node gives
//! no usable answer, a signature is neither confirmed nor refuted: the answer is UNAVAILABLE, never
//! "invalid".

mod abi;
mod cache;
mod node;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _};
use highwater_identity::{Address, Verdicts, VerificationRequest};
use highwater_wire::proto::backend::{
    verify_smart_contract_wallet_signatures_request::Signature as Asked,
    verify_smart_contract_wallet_signatures_response::Response as Answer,
};
use tonic::Status;

use self::{
    abi::{Signature, Wrapped},
    cache::Cache,
    node::{Called, Node, NodeError},
};
use crate::config::{ConfigError, WalletRoute};

/// Questions of one request in flight.
const QUESTIONS_IN_FLIGHT: usize = 8;

/// A contract wallet's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    /// `None` for a number that is no chain's: CAIP-2 allows for more digits than any chain id has.
    chain_id: Option<u64>,
    address: Address,
}

impl Account {
    /// Reads a CAIP-10 account of an Ethereum chain. A checksummed address is as good as any.
    fn read(account_id: &str) -> Option<Self> {
        let (chain, address) = account_id.strip_prefix("eip155:")?.split_once(':')?;
        let decimal = chain.bytes().all(|digit| digit.is_ascii_digit());
        if !decimal || !(1..=32).contains(&chain.len()) {
            return None;
        }
        let address = address.strip_prefix("0x")?.to_ascii_lowercase();
        Some(Self { chain_id: chain.parse().ok(), address: format!("0x{address}").parse().ok()? })
    }
}

/// Did this account sign this hash?
#[derive(Debug, Clone, Copy)]
struct Question<'a> {
    account: Account,
    /// `None` for the newest block.
    block: Option<u64>,
    hash: &'a [u8; 32],
    signature: &'a [u8],
}

impl<'a> Question<'a> {
    fn read(asked: &'a Asked) -> Result<Self, &'static str> {
        Ok(Self {
            account: Account::read(&asked.account_id)
                .ok_or("the account must be eip155:CHAIN:0x and 40 hex characters")?,
            block: asked.block_number,
            hash: asked.hash.as_slice().try_into().map_err(|_| "the hash must be 32 bytes")?,
            signature: &asked.signature,
        })
    }
}

/// A chain's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Judged {
    valid: bool,
    /// The block it holds at; `None` if none was asked for and none bears on it.
    block: Option<u64>,
}

/// There is no verdict now, and may be one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("no verifier is configured for contract wallet signatures of this chain")]
    NoRoute,
    #[error(
        "the verifier of contract wallet signatures can't be reached or can't answer; retry with backoff"
    )]
    NoAnswer,
}

impl From<Unavailable> for Status {
    fn from(unavailable: Unavailable) -> Self {
        Self::unavailable(unavailable.to_string())
    }
}

/// What a publish learned of the chains.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) verdicts: Verdicts,
    /// Why verdicts are missing, if some are.
    pub(crate) missing: Option<Unavailable>,
}

/// The routes to chains.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContractWallets {
    nodes: Arc<BTreeMap<u64, Node>>,
    cache: Arc<Cache>,
}

impl ContractWallets {
    /// `call_timeout` bounds one call of a node.
    ///
    /// # Errors
    /// If a route is malformed, or TLS can't be set up for it.
    pub(crate) fn new(routes: &[WalletRoute], call_timeout: Duration) -> Result<Self, ConfigError> {
        if routes.is_empty() {
            return Ok(Self::default());
        }
        let client = Node::client(call_timeout).map_err(|error| {
            tracing::error!(%error, "no HTTP client for the chains' nodes");
            ConfigError::WalletTls
        })?;
        let mut nodes = BTreeMap::new();
        for route in routes {
            nodes.insert(route.chain_id, Node::new(client.clone(), route.chain_id, route.parsed_url()?));
        }
        Ok(Self { nodes: Arc::new(nodes), cache: Arc::default() })
    }

    /// Verdicts on `needed`, in this order, up to the first that can't be had.
    pub(crate) async fn verdicts(&self, needed: Vec<VerificationRequest>) -> Findings {
        let mut findings = Findings::default();
        let asked: Vec<_> = needed.into_iter().map(|request| self.verdict(request)).collect();
        let mut answers = futures::stream::iter(asked).buffered(QUESTIONS_IN_FLIGHT);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((request, valid)) => findings.verdicts.insert(request, valid),
                Err(unavailable) => {
                    findings.missing = Some(unavailable);
                    break;
                }
            }
        }
        findings
    }

    async fn verdict(
        &self,
        request: VerificationRequest,
    ) -> Result<(VerificationRequest, bool), Unavailable> {
        // Only accounts of the right form are asked about; a route to any other is as good as none.
        let account = Account::read(&request.account_id).ok_or(Unavailable::NoRoute)?;
        let block = Some(request.block_number);
        let question = Question { account, block, hash: &request.hash, signature: &request.signature };
        let Judged { valid, .. } = self.judge(question).await?;
        Ok((request, valid))
    }

    /// The answers to a request, in its order. What can't be a question is answered with an error.
    ///
    /// # Errors
    /// If a question has no verdict now.
    pub(crate) async fn answers(&self, signatures: &[Asked]) -> Result<Vec<Answer>, Unavailable> {
        if self.nodes.is_empty() && !signatures.is_empty() {
            return Err(Unavailable::NoRoute);
        }
        let questions: Vec<_> = signatures.iter().map(Question::read).collect();
        // Nothing is asked if some question can't be.
        for question in questions.iter().flatten() {
            self.node(question.account.chain_id)?;
        }
        let answers: Vec<_> = questions.into_iter().map(|question| self.answer(question)).collect();
        futures::stream::iter(answers).buffered(QUESTIONS_IN_FLIGHT).try_collect().await
    }

    async fn answer(&self, question: Result<Question<'_>, &str>) -> Result<Answer, Unavailable> {
        Ok(match question {
            Ok(question) => {
                let Judged { valid, block } = self.judge(question).await?;
                Answer { is_valid: valid, block_number: block, error: None }
            }
            Err(error) => Answer { is_valid: false, block_number: None, error: Some(error.to_owned()) },
        })
    }

    fn node(&self, chain_id: Option<u64>) -> Result<&Node, Unavailable> {
        chain_id.and_then(|chain_id| self.nodes.get(&chain_id)).ok_or(Unavailable::NoRoute)
    }

    async fn judge(&self, question: Question<'_>) -> Result<Judged, Unavailable> {
        let node = self.node(question.account.chain_id)?;
        let key = cache::key(&question);
        if let Some(valid) = key.as_ref().and_then(|key| self.cache.get(key)) {
            return Ok(Judged { valid, block: question.block });
        }
        let judged = judge(node, question).await.map_err(|error| {
            tracing::warn!(?node, %error, "a contract wallet's signature can't be judged now");
            Unavailable::NoAnswer
        })?;
        if let Some(key) = key {
            self.cache.put(key, judged.valid);
        }
        Ok(judged)
    }
}

/// ERC-6492: what the contract says comes first, so that a deployed wallet whose keys have changed is
/// judged by its present keys; then what it says once the wrapped call has readied it; and an account
/// without code and without a wrapper is a key's own.
async fn judge(node: &Node, question: Question<'_>) -> Result<Judged, NodeError> {
    let Question { account: Account { address, .. }, block, hash, signature } = question;
    let (plain, wrapped) = match Signature::read(signature) {
        Signature::Malformed => return Ok(Judged { valid: false, block }),
        Signature::Plain(signature) => (signature, None),
        Signature::Wrapped(wrapped) => (wrapped.signature, Some(wrapped)),
    };
    let block = match block {
        Some(block) => block,
        None => node.head().await?,
    };
    let has_code = node.has_code(address, block).await?;
    let asked = abi::is_valid_signature(hash, plain);
    let mut valid = false;
    if has_code && let Called::Returned(returned) = node.call(address, &asked, block).await? {
        valid = abi::accepts(&returned);
    }
    if !valid {
        valid = match wrapped {
            Some(wrapped) => accepts_once_ready(node, address, &wrapped, &asked, block).await?,
            None => !has_code && Address::recover(hash, plain) == Some(address),
        };
    }
    Ok(Judged { valid, block: Some(block) })
}

/// Asks the wallet on the state that the wrapped call leaves. Nothing of it stays.
///
/// To both calls Multicall3 is `msg.sender`. That gives nobody any power, since anyone can call through
/// it on the chain too, and it owns nothing that a signer could want. ERC-6492 names no caller, so a
/// factory that serves only some, or a wallet that answers callers differently, isn't verifiable by it.
/// The first call may fail: the wallet may be there already.
async fn accepts_once_ready(
    node: &Node,
    address: Address,
    wrapped: &Wrapped<'_>,
    asked: &[u8],
    block: u64,
) -> Result<bool, NodeError> {
    let calls = abi::aggregate3(&[(wrapped.factory, wrapped.calldata), (address, asked)]);
    match node.call(abi::MULTICALL3, &calls, block).await? {
        Called::Reverted => Ok(false),
        // Calling an address without code succeeds and returns nothing.
        Called::Returned(returned) if returned.is_empty() => Err(NodeError::NoMulticall),
        Called::Returned(returned) => {
            let answer = abi::aggregate3_result(&returned, 1);
            // A call of an address that still has no code returns nothing, which doesn't accept.
            answer
                .map(|returned| returned.is_some_and(abi::accepts))
                .ok_or(NodeError::Malformed("no results"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_of_ethereum_chains() {
        let hex = "00112233445566778899aabbccddeeff00112233";
        let read = Account::read(&format!("eip155:8453:0x{hex}")).expect("an account");
        assert_eq!(read.chain_id, Some(8453));
        assert_eq!(read.address.to_string(), format!("0x{hex}"));
        let checksummed = format!("eip155:8453:0x{}", hex.to_uppercase());
        assert_eq!(Account::read(&checksummed), Some(read));
        let nowhere = Account::read(&format!("eip155:{}:0x{hex}", "9".repeat(32))).expect("an account");
        assert_eq!(nowhere.chain_id, None);
        for malformed in [
            String::new(),
            format!("eip155:1:{hex}"),
            format!("eip155:1:0X{hex}"),
            format!("eip155:1:0x{}", &hex[1..]),
            format!("eip155:1:0x{hex}00"),
            format!("eip155::0x{hex}"),
            format!("eip155:+1:0x{hex}"),
            format!("eip155:{}:0x{hex}", "1".repeat(33)),
            format!("solana:1:0x{hex}"),
            format!("0x{hex}"),
        ] {
            assert_eq!(Account::read(&malformed), None, "{malformed}");
        }
    }
}
