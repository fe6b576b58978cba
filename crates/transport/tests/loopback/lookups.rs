//! Look-ups of inboxes and of signatures.

use crate::scripted::{Script, Scripted, answer};
use highwater_transport::{TransportError, WalletSignature};
use highwater_wire::InboxId;
use highwater_wire::limits::{MAX_LOOKUP_IDENTIFIERS, MAX_SCW_SIGNATURES};
use highwater_wire::proto::associations::IdentifierKind;
use highwater_wire::proto::backend::{
    GetInboxIdsRequest, GetInboxIdsResponse, VerifySmartContractWalletSignaturesRequest,
    VerifySmartContractWalletSignaturesResponse, get_inbox_ids_request, get_inbox_ids_response,
    verify_smart_contract_wallet_signatures_response as verified,
};
use tonic::Status;

#[tokio::test]
async fn inboxes_are_looked_up_in_parts_and_matched_by_identifier() {
    let inbox = InboxId::from_bytes([3; 32]);
    let backend = Scripted::start(Script {
        get_inbox_ids: answer(move |request: GetInboxIdsRequest| {
            if request.requests.len() > MAX_LOOKUP_IDENTIFIERS {
                return Err(Status::invalid_argument("too many"));
            }
            let response = |request: &get_inbox_ids_request::Request| get_inbox_ids_response::Response {
                identifier: request.identifier.clone(),
                identifier_kind: IdentifierKind::Ethereum as i32,
                inbox_id: request.identifier.ends_with('7').then(|| inbox.to_string()),
            };
            let responses = request.requests.iter().rev().map(response).collect();
            Ok(GetInboxIdsResponse { responses })
        }),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (0..600).map(|n| (format!("0x{n}"), IdentifierKind::Unspecified)).collect();
    let found = backend.connect().get_inbox_ids(&asked).await.unwrap();
    assert_eq!(found.len(), 600);
    for (n, found) in found.into_iter().enumerate() {
        assert_eq!(found, (n % 10 == 7).then_some(inbox));
    }
}

#[tokio::test]
async fn an_identifier_without_an_answer_is_a_broken_protocol() {
    let backend = Scripted::start(Script {
        get_inbox_ids: answer(|_| Ok(GetInboxIdsResponse::default())),
        ..Script::default()
    })
    .await;
    let asked = [("0x1".to_owned(), IdentifierKind::Ethereum)];
    let error = backend.connect().get_inbox_ids(&asked).await.unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
}

fn wallet_signature(n: u64) -> WalletSignature {
    WalletSignature {
        account_id: format!("eip155:1:0x{n}"),
        block_number: Some(n),
        hash: vec![1; 32],
        signature: vec![2; 65],
    }
}

#[tokio::test]
async fn verdicts_come_in_the_order_asked_and_no_verdict_is_no_no() {
    let backend = Scripted::start(Script {
        verify: answer(|request: VerifySmartContractWalletSignaturesRequest| {
            if request.signatures.len() > MAX_SCW_SIGNATURES {
                return Err(Status::invalid_argument("too many"));
            }
            let response = |block: u64| verified::Response {
                is_valid: block.is_multiple_of(2),
                block_number: Some(block),
                error: block.is_multiple_of(3).then(|| "unreachable".to_owned()),
            };
            let blocks = request.signatures.iter().filter_map(|asked| asked.block_number);
            let responses = blocks.map(response).collect();
            Ok(VerifySmartContractWalletSignaturesResponse { responses })
        }),
        ..Script::default()
    })
    .await;
    let asked: Vec<_> = (1..=250).map(wallet_signature).collect();
    let verdicts = backend.connect().verify_signatures(&asked).await.unwrap();
    assert_eq!(verdicts.len(), 250);
    assert_eq!(verdicts[..4], [Ok(false), Ok(true), Err("unreachable".to_owned()), Ok(true)]);
}

#[tokio::test]
async fn a_verdict_at_another_block_is_refused() {
    let backend = Scripted::start(Script {
        verify: answer(|_| {
            let response = verified::Response { is_valid: true, block_number: Some(99), error: None };
            Ok(VerifySmartContractWalletSignaturesResponse { responses: vec![response] })
        }),
        ..Script::default()
    })
    .await;
    let error = backend.connect().verify_signatures(&[wallet_signature(7)]).await.unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error:?}");
}
