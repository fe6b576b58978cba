//! The chains whose contract wallets can be judged.

use std::{collections::BTreeSet, fmt};

use reqwest::Url;

use super::ConfigError;

/// A chain's node, which judges contract wallets' signatures over JSON-RPC.
///
/// Signatures name the block they hold at, so a node that keeps only recent state can't judge all of
/// an older inbox's.
#[derive(Clone, PartialEq, Eq)]
pub struct WalletRoute {
    /// The chain's EIP-155 id. The node is asked for its own before it is believed.
    pub chain_id: u64,
    /// The node, http or https. A secret, as it may hold a key.
    pub url: String,
}

impl WalletRoute {
    pub(crate) fn parsed_url(&self) -> Result<Url, ConfigError> {
        let url = Url::parse(&self.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        url.ok_or(ConfigError::WalletUrl { chain_id: self.chain_id })
    }
}

impl fmt::Debug for WalletRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalletRoute").field("chain_id", &self.chain_id).finish_non_exhaustive()
    }
}

pub(super) fn validate(routes: &[WalletRoute]) -> Result<(), ConfigError> {
    let mut chains = BTreeSet::new();
    for route in routes {
        route.parsed_url()?;
        if !chains.insert(route.chain_id) {
            return Err(ConfigError::WalletChainTwice { chain_id: route.chain_id });
        }
    }
    Ok(())
}
