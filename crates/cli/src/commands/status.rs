use highwater::{GroupProgress, Status, TopicProgress};
use serde_json::{Value, json};

use crate::Ended;
use crate::args::HomeArgs;
use crate::commands::group::state;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(args: HomeArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args, async |client| {
        let status = client.status().await?;
        let value = json!({
            "database_id": status.database_id.to_string(),
            "inbox_id": status.inbox_id.to_string(),
            "unsettled": status.unsettled,
            "topics": status.topics.iter().map(topic).collect::<Vec<_>>(),
            "groups": status.groups.iter().map(group).collect::<Vec<_>>(),
        });
        output.say(&value, || for_people(&status))?;
        Ok(Ended::Done)
    })
    .await
}

pub(crate) fn topic(topic: &TopicProgress) -> Value {
    json!({
        "topic": topic.topic.to_hex(),
        "kind": topic.topic.kind().name(),
        "f": topic.received,
        "p": topic.processed,
        "pending": topic.pending,
        "held": topic.held.as_ref().map(|held| json!({
            "sequence_id": held.sequence_id.get(),
            "cause": held.cause,
            "detail": held.detail,
        })),
    })
}

fn group(group: &GroupProgress) -> Value {
    json!({
        "group_id": group.group_id.to_string(),
        "name": group.name,
        "d": group.delivered,
        "epoch": group.epoch,
        "state": state(group.state),
    })
}

fn for_people(status: &Status) -> String {
    let mut lines = vec![
        format!("database {}  inbox {}", status.database_id, status.inbox_id),
        format!("{} of your own not settled", status.unsettled),
        format!("{:12} {:>8} {:>8} {:>8}  topic", "kind", "F", "P", "pending"),
    ];
    for topic in &status.topics {
        let processed = topic.processed.map_or_else(|| "-".to_owned(), |p| p.to_string());
        lines.push(format!(
            "{:12} {:>8} {:>8} {:>8}  {}",
            topic.topic.kind().name(),
            topic.received,
            processed,
            topic.pending,
            topic.topic.to_hex()
        ));
        if let Some(held) = &topic.held {
            lines.push(format!("{:12} held at {}: {}", "", held.sequence_id, held.detail));
        }
    }
    if !status.groups.is_empty() {
        lines.push(format!("{:32} {:>8} {:>8}  {:8}  name", "group", "D", "epoch", "state"));
    }
    for group in &status.groups {
        let epoch = group.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
        lines.push(format!(
            "{} {:>8} {epoch:>8}  {:8}  {}",
            group.group_id,
            group.delivered,
            state(group.state),
            group.name.as_deref().unwrap_or_default()
        ));
    }
    lines.join("\n")
}
