use highwater::Outcome;
use serde_json::json;

use crate::Ended;
use crate::args::SendArgs;
use crate::commands::group::ended;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::{Output, outcome};

pub(crate) async fn run(args: SendArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.of.home, async |client| {
        let group = client.group(args.of.group).await?.within(args.wait.timeout);
        let content = highwater::text_content(&args.text);
        let sent = group.send(content, args.idempotency_key.clone()).await?;
        let (name, sequence_id, detail) = outcome(&sent.outcome);
        let mut value = json!({
            "message_id": sent.message_id.to_string(),
            "sequence_id": sequence_id,
            "outcome": name,
        });
        if let Some(detail) = &detail {
            value["detail"] = detail.as_str().into();
        }
        output.say(&value, || match sent.outcome {
            Outcome::Queued => format!(
                "{} queued: the backend can't be reached; the next `send` or `sync` sends it",
                sent.message_id
            ),
            _ => format!("{} {name}", sent.message_id),
        })?;
        ended(&sent.outcome, detail)
    })
    .await
}
