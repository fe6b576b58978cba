use highwater::Client;
use serde_json::json;

use crate::Ended;
use crate::args::{HomeArgs, InitArgs};
use crate::commands::with_client;
use crate::failure::Failure;
use crate::home::Home;
use crate::output::Output;

/// Makes a home and registers it. Everything it needs is durable before it is used, so that running it again after any
/// interruption ends with the same inbox.
pub(crate) async fn init(args: InitArgs, output: &Output) -> Result<Ended, Failure> {
    let home = Home::make(&args.home, args.backend.as_deref())?;
    let client = home.open_and_register().await?;
    // An earlier attempt may have been cut short between the registration and the key package.
    let registered = client.register().await;
    let said = identify(&client, output);
    client.close().await;
    registered?;
    said
}

pub(crate) async fn whoami(args: HomeArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args, async |client| identify(client, output)).await
}

fn identify(client: &Client, output: &Output) -> Result<Ended, Failure> {
    let (inbox, installation) = (client.inbox_id(), client.installation_id().to_hex());
    output.say(&json!({"inbox_id": inbox.to_string(), "installation_id": installation}), || {
        format!("inbox         {inbox}\ninstallation  {installation}")
    })?;
    Ok(Ended::Done)
}
