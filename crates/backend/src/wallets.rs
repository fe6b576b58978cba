//! Contract wallets: signatures that only a chain can judge.
//!
//! A deployment without a route to a chain can neither confirm nor refute such a signature, so it
//! answers UNAVAILABLE, never "invalid".

use highwater_identity::{Verdicts, VerificationRequest};
use tonic::Status;

/// The routes to chains. None can be configured yet.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub(crate) struct ContractWallets;

impl ContractWallets {
    /// Verdicts on all of `needed`.
    pub(crate) fn verdicts(&self, needed: &[VerificationRequest]) -> Result<Verdicts, Status> {
        if needed.is_empty() { Ok(Verdicts::default()) } else { Err(Self::no_route()) }
    }

    /// The answer for a chain that no route leads to.
    pub(crate) fn no_route() -> Status {
        Status::unavailable("no verifier is configured for contract wallet signatures")
    }
}
