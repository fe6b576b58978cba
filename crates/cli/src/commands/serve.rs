use highwater_backend::{Server, ServerConfig};
use serde_json::json;

use crate::Ended;
use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Interrupt;

pub(crate) async fn run(args: ServeArgs, output: &Output) -> Result<Ended, Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut config = ServerConfig::new(args.database);
    config.listen = args.listen;
    let server = Server::bind(config).await?;
    let address = server.local_addr();
    output.say(&json!({"event": "listening", "address": address.to_string()}), || {
        format!("listening on {address}")
    })?;
    server.serve(async move { interrupt.caught().await }).await?;
    output.say(&json!({"event": "stopped"}), || "stopped".into())?;
    Ok(Ended::Done)
}
