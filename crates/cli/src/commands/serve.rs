use std::path::Path;

use highwater_backend::{LogSettings, Server, ServerConfig, Settings};
use serde_json::json;

use crate::Ended;
use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Interrupt;

/// What `serve` was told, before anything is started or logged.
pub(crate) struct Serve {
    config: ServerConfig,
    /// Absent without a file: then logs are as for every other command.
    pub(crate) logs: Option<LogSettings>,
    check: bool,
}

impl Serve {
    pub(crate) fn prepare(args: ServeArgs) -> Result<Self, Failure> {
        if let Some(file) = &args.config {
            let Settings { server: config, logs, .. } = read(file)?;
            return Ok(Self { config, logs: Some(logs), check: args.check });
        }
        let database = args.database.ok_or_else(|| Failure::usage("name a --database or a --config"))?;
        let mut config = ServerConfig::new(database);
        config.listen = args.listen;
        Ok(Self { config, logs: None, check: false })
    }

    pub(crate) async fn run(self, output: &Output) -> Result<Ended, Failure> {
        if self.check {
            let listen = self.config.listen.to_string();
            output.say(&json!({"event": "checked", "listen": listen}), || {
                format!("the configuration is good; it would listen on {listen}")
            })?;
            return Ok(Ended::Done);
        }
        let mut interrupt = Interrupt::catch()?;
        let server = Server::bind(self.config).await?;
        let address = server.local_addr();
        output.say(&json!({"event": "listening", "address": address.to_string()}), || {
            format!("listening on {address}")
        })?;
        server.serve(async move { interrupt.caught().await }).await?;
        output.say(&json!({"event": "stopped"}), || "stopped".into())?;
        Ok(Ended::Done)
    }
}

fn read(file: &Path) -> Result<Settings, Failure> {
    Settings::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}
