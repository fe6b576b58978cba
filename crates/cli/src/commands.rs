//! One module per command.

pub(crate) mod audit;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod replay;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod sync;

use highwater::Client;

use crate::args::HomeArgs;
use crate::failure::Failure;
use crate::home::Home;

/// Runs something with the client of a home, and closes it whatever came of it.
async fn with_client<T>(
    args: &HomeArgs,
    run: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let client = Home::existing(args)?.open().await?;
    let result = run(&client).await;
    client.close().await;
    result
}
