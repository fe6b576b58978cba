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
        let server = tokio::select! {
            server = Server::bind(self.config) => server?,
            () = interrupt.caught() => return Ok(Ended::Done),
        };
        let address = server.local_addr();
        let metrics = server.metrics_addr().map(|metrics| metrics.to_string());
        output.say(
            &json!({"event": "listening", "address": address.to_string(), "metrics": metrics}),
            || format!("listening on {address}"),
        )?;
        let (end, ended) = tokio::sync::oneshot::channel();
        let serving = server.serve(async { ended.await.unwrap_or_default() });
        tokio::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => Some(served),
            () = interrupt.caught() => None,
        };
        match served {
            Some(served) => served?,
            None => {
                // The serving future listens until its end.
                let _ = end.send(());
                tokio::select! {
                    served = &mut serving => served?,
                    // Asked a second time: what is under way is cut.
                    () = interrupt.caught() => {}
                }
            }
        }
        output.say(&json!({"event": "stopped"}), || "stopped".into())?;
        Ok(Ended::Done)
    }
}

fn read(file: &Path) -> Result<Settings, Failure> {
    Settings::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}
