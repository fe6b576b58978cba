//! Look-ups that the backend makes on the client's behalf.

use std::collections::BTreeMap;

use highwater_wire::InboxId;
use highwater_wire::limits::{MAX_LOOKUP_IDENTIFIERS, MAX_SCW_SIGNATURES};
use highwater_wire::proto::associations::IdentifierKind;
use highwater_wire::proto::backend::{
    GetInboxIdsRequest, VerifySmartContractWalletSignaturesRequest, get_inbox_ids_request,
    verify_smart_contract_wallet_signatures_request as verify,
};

use crate::{Connection, TransportError};

/// A smart contract wallet's signature, to be judged by its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletSignature {
    /// The account, CAIP-10.
    pub account_id: String,
    /// The block to judge at; the chain's head when absent.
    pub block_number: Option<u64>,
    /// The hash that was signed.
    pub hash: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

impl Connection {
    /// The inbox that each identifier belongs to at present, in the order asked.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] when an identifier got no answer or an unreadable one; the
    /// backend's own.
    pub async fn get_inbox_ids(
        &self,
        identifiers: &[(String, IdentifierKind)],
    ) -> Result<Vec<Option<InboxId>>, TransportError> {
        let mut inboxes = Vec::with_capacity(identifiers.len());
        for chunk in identifiers.chunks(MAX_LOOKUP_IDENTIFIERS) {
            inboxes.extend(self.look_up(chunk).await?);
        }
        Ok(inboxes)
    }

    async fn look_up(
        &self,
        identifiers: &[(String, IdentifierKind)],
    ) -> Result<Vec<Option<InboxId>>, TransportError> {
        let request = |(identifier, kind): &(String, IdentifierKind)| get_inbox_ids_request::Request {
            identifier: identifier.clone(),
            identifier_kind: *kind as i32,
        };
        let request = GetInboxIdsRequest { requests: identifiers.iter().map(request).collect() };
        let response = self.answered(self.identities().get_inbox_ids(request)).await?;
        let mut found = BTreeMap::new();
        for answer in response.responses {
            let kind = effective(answer.identifier_kind());
            let inbox = answer.inbox_id.map(|inbox| inbox.parse()).transpose();
            let inbox = inbox.map_err(|error| TransportError::protocol(format!("{error}")))?;
            found.insert((answer.identifier, kind), inbox);
        }
        let answer = |(identifier, kind): &(String, IdentifierKind)| {
            found
                .get(&(identifier.clone(), effective(*kind)))
                .copied()
                .ok_or_else(|| TransportError::protocol("an identifier got no answer"))
        };
        identifiers.iter().map(answer).collect()
    }

    /// Has smart contract wallets' signatures judged, in the order asked: valid or not, or why no
    /// verdict could be reached, which may change.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] when the answers don't match the questions; the backend's own.
    pub async fn verify_signatures(
        &self,
        signatures: &[WalletSignature],
    ) -> Result<Vec<Result<bool, String>>, TransportError> {
        let mut verdicts = Vec::with_capacity(signatures.len());
        for chunk in signatures.chunks(MAX_SCW_SIGNATURES) {
            verdicts.extend(self.verify(chunk).await?);
        }
        Ok(verdicts)
    }

    async fn verify(
        &self,
        signatures: &[WalletSignature],
    ) -> Result<Vec<Result<bool, String>>, TransportError> {
        let signature = |signature: &WalletSignature| verify::Signature {
            account_id: signature.account_id.clone(),
            block_number: signature.block_number,
            hash: signature.hash.clone(),
            signature: signature.signature.clone(),
        };
        let request = VerifySmartContractWalletSignaturesRequest {
            signatures: signatures.iter().map(signature).collect(),
        };
        let mut identities = self.identities();
        let call = identities.verify_smart_contract_wallet_signatures(request);
        let response = self.answered(call).await?;
        if response.responses.len() != signatures.len() {
            return Err(TransportError::protocol(format!(
                "{} verdicts for {} signatures",
                response.responses.len(),
                signatures.len()
            )));
        }
        let mut verdicts = Vec::with_capacity(signatures.len());
        for (asked, answer) in signatures.iter().zip(response.responses) {
            // A verdict at another block is a verdict on another question.
            if let (Some(asked), Some(judged)) = (asked.block_number, answer.block_number)
                && asked != judged
            {
                return Err(TransportError::protocol(format!(
                    "asked for a verdict at block {asked}, got one at {judged}"
                )));
            }
            verdicts.push(match answer.error {
                Some(error) => Err(error),
                None => Ok(answer.is_valid),
            });
        }
        Ok(verdicts)
    }
}

/// An unspecified kind is read as Ethereum.
fn effective(kind: IdentifierKind) -> i32 {
    match kind {
        IdentifierKind::Unspecified => IdentifierKind::Ethereum as i32,
        kind => kind as i32,
    }
}
