use highwater::{Cause, Client, Error, Obligation, SyncReport};
use serde_json::{Value, json};

use crate::Ended;
use crate::args::SyncArgs;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(args: SyncArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.home, async |client| match client.sync_within(args.timeout).await {
        Ok(report) => synced(&report, output),
        Err(error) if !error.obligations().is_empty() => incomplete(client, &error, output).await,
        Err(error) => Err(error.into()),
    })
    .await
}

fn synced(report: &SyncReport, output: &Output) -> Result<Ended, Failure> {
    let value = json!({
        "event": "synced",
        "topics": report.topics,
        "discovered": report.discovered,
        "unsettled": report.unsettled,
    });
    output.say(&value, || {
        let mut text = format!("synced {} topics, {} groups discovered", report.topics, report.discovered);
        if report.unsettled > 0 {
            text.push_str(&format!("; {} of your own still on their way", report.unsettled));
        }
        text
    })?;
    Ok(Ended::Done)
}

async fn incomplete(client: &Client, error: &Error, output: &Output) -> Result<Ended, Failure> {
    let obligations = error.obligations();
    let value = json!({
        "event": "incomplete",
        "retryable": error.is_retryable(),
        "unsettled": client.unsettled().await?,
        "obligations": obligations.iter().map(obligation).collect::<Vec<_>>(),
    });
    output.say(&value, || {
        let line = |obligation: &Obligation| {
            let (cause, detail) = cause(&obligation.cause);
            format!("  {} {}: {cause} {detail}", obligation.topic.kind().name(), obligation.topic.to_hex())
        };
        let lines: Vec<_> = obligations.iter().map(line).collect();
        format!("incomplete, {} topics are unfinished:\n{}", lines.len(), lines.join("\n"))
    })?;
    Ok(Ended::Incomplete)
}

fn obligation(obligation: &Obligation) -> Value {
    let (cause, detail) = cause(&obligation.cause);
    json!({
        "topic": obligation.topic.to_hex(),
        "kind": obligation.topic.kind().name(),
        "h": obligation.target.map(highwater::Cursor::get),
        "f": obligation.received.cursor().get(),
        "p": obligation.processed.map(|processed| processed.cursor().get()),
        "unresolved": obligation.unresolved.iter().map(|id| id.get()).collect::<Vec<_>>(),
        "cause": cause,
        "detail": detail,
    })
}

fn cause(cause: &Cause) -> (String, String) {
    let (name, detail) = match cause {
        Cause::TargetMissing(reason) => ("target_missing", reason.clone()),
        Cause::NotReceived => ("not_received", String::new()),
        Cause::NotProcessed => ("not_processed", String::new()),
        Cause::Capacity => ("capacity", String::new()),
        Cause::Held { code, detail, .. } => (code.as_str(), detail.clone()),
        Cause::Connection(reason) => ("connection", reason.clone()),
        _ => ("unknown", String::new()),
    };
    (name.to_owned(), detail)
}
