//! What only a chain can say about a contract wallet's signature.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use highwater_wire::proto::associations::{IdentityUpdate, SmartContractWalletSignature, signature};
use serde::{Deserialize, Serialize};

use crate::{Address, Invalid, MemberIdentifier, signature::SignedText, update::Update};

/// One question to a verifier. Its answer never changes: the block is fixed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VerificationRequest {
    /// CAIP-10: `eip155:{chain}:{address}`.
    pub account_id: String,
    /// The block at which the wallet must accept the signature.
    pub block_number: u64,
    /// The EIP-191 hash of the update's text.
    pub hash: [u8; 32],
    /// The signature, opaque to everyone but the wallet.
    pub signature: Vec<u8>,
}

impl VerificationRequest {
    pub(crate) fn of(text: &SignedText, signature: &SmartContractWalletSignature) -> Self {
        Self {
            account_id: signature.account_id.clone(),
            block_number: signature.block_number,
            hash: text.hash(),
            signature: signature.signature.clone(),
        }
    }

    /// The wallet's address.
    ///
    /// # Errors
    /// [`Invalid::AccountForm`] or [`Invalid::AddressForm`].
    pub(crate) fn wallet(&self) -> Result<MemberIdentifier, Invalid> {
        let (chain, address) = self
            .account_id
            .strip_prefix("eip155:")
            .and_then(|rest| rest.split_once(':'))
            .ok_or(Invalid::AccountForm)?;
        // CAIP-2 allows a chain reference of 1 to 32 characters; those of eip155 are decimal.
        let decimal = chain.bytes().all(|byte| byte.is_ascii_digit());
        if !decimal || !(1..=32).contains(&chain.len()) {
            return Err(Invalid::AccountForm);
        }
        address.parse::<Address>().map(MemberIdentifier::Ethereum)
    }
}

impl fmt::Debug for VerificationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerificationRequest")
            .field("account_id", &self.account_id)
            .field("block_number", &self.block_number)
            .finish_non_exhaustive()
    }
}

/// Answers of a verifier. Only answers belong here: a verifier that couldn't be reached, or didn't
/// know, leaves its question out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts(BTreeMap<VerificationRequest, bool>);

impl Verdicts {
    /// Records an answer.
    pub fn insert(&mut self, request: VerificationRequest, valid: bool) {
        self.0.insert(request, valid);
    }

    /// The answer, if there is one.
    pub fn get(&self, request: &VerificationRequest) -> Option<bool> {
        self.0.get(request).copied()
    }
}

impl FromIterator<(VerificationRequest, bool)> for Verdicts {
    fn from_iter<I: IntoIterator<Item = (VerificationRequest, bool)>>(answers: I) -> Self {
        Self(answers.into_iter().collect())
    }
}

/// Every question that applying `updates` can ask, each once.
///
/// # Errors
/// [`Invalid`] if an update is unreadable or names a malformed account.
pub fn required_verifications(updates: &[IdentityUpdate]) -> Result<Vec<VerificationRequest>, Invalid> {
    let mut required = BTreeSet::new();
    for update in updates {
        let update = Update::parse(update)?;
        let text = SignedText::new(update.text());
        for signature in update.actions.iter().flat_map(|action| action.signatures()) {
            if let Some(signature::Signature::Erc6492(wallet)) = &signature.signature {
                let request = VerificationRequest::of(&text, wallet);
                request.wallet()?;
                required.insert(request);
            }
        }
    }
    Ok(required.into_iter().collect())
}
