use highwater::{ConversationKind, ConversationState, GroupId, Outcome};
use serde_json::{Value, json};

use crate::Ended;
use crate::args::{CreateArgs, GroupArgs, HomeArgs, MemberArgs, RenameArgs};
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::{Output, outcome, short};

pub(crate) async fn create(args: CreateArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.home, async |client| {
        let new = match args.dm {
            Some(peer) => client.new_dm(peer),
            None => client.new_group().members(args.member.iter().copied()),
        };
        let new = match &args.name {
            Some(name) => new.name(name),
            None => new,
        };
        let created = new.within(args.wait.timeout).create().await?;
        report(created.group.id(), "created", &created.outcome, output)
    })
    .await
}

pub(crate) async fn add(args: MemberArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.of.home, async |client| {
        let group = client.group(args.of.group).await?.within(args.wait.timeout);
        let outcome = group.add_members(args.member.iter().copied()).await?;
        report(group.id(), "members added", &outcome, output)
    })
    .await
}

pub(crate) async fn remove(args: MemberArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.of.home, async |client| {
        let group = client.group(args.of.group).await?.within(args.wait.timeout);
        let outcome = group.remove_members(args.member.iter().copied()).await?;
        report(group.id(), "members removed", &outcome, output)
    })
    .await
}

pub(crate) async fn rename(args: RenameArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.of.home, async |client| {
        let group = client.group(args.of.group).await?.within(args.wait.timeout);
        let outcome = group.set_name(&args.name).await?;
        report(group.id(), "renamed", &outcome, output)
    })
    .await
}

fn report(group: GroupId, done: &str, became: &Outcome, output: &Output) -> Result<Ended, Failure> {
    let (name, sequence_id, detail) = outcome(became);
    let mut value = json!({
        "group_id": group.to_string(),
        "outcome": name,
        "sequence_id": sequence_id,
    });
    if let Some(detail) = &detail {
        value["detail"] = detail.as_str().into();
    }
    output.say(&value, || match became {
        Outcome::Confirmed { .. } => format!("{group} {done}"),
        Outcome::Queued => format!("{group} queued: the backend can't be reached; `sync` sends it"),
        _ => format!("{group} {name}"),
    })?;
    ended(became, detail)
}

/// The exit status of an outcome. One that ended without success is an error for the person too.
pub(crate) fn ended(became: &Outcome, detail: Option<String>) -> Result<Ended, Failure> {
    match became {
        Outcome::Confirmed { .. } | Outcome::Queued => Ok(Ended::Done),
        Outcome::PublishedUnconfirmed { .. } => Ok(Ended::Incomplete),
        _ => Err(Failure::new(format!("not done: {}", detail.unwrap_or_else(|| "unknown".into())))),
    }
}

pub(crate) async fn list(args: HomeArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args, async |client| {
        for group in client.groups().await? {
            let (kind, peer) = match group.kind() {
                ConversationKind::Group => ("group", None),
                ConversationKind::Dm { peer } => ("dm", Some(peer.to_string())),
            };
            let value = json!({
                "group_id": group.id().to_string(),
                "kind": kind,
                "peer": peer,
                "name": group.name(),
                "state": state(group.state()),
                "added_by": group.added_by().map(|inbox| inbox.to_string()),
            });
            output.line(&value, || {
                let name = group.name().map(str::to_owned).or(peer.as_deref().map(short));
                format!("{}  {kind:5}  {:8}  {}", group.id(), state(group.state()), name.unwrap_or_default())
            })?;
        }
        Ok(Ended::Done)
    })
    .await
}

pub(crate) fn state(state: ConversationState) -> &'static str {
    match state {
        ConversationState::Active => "active",
        ConversationState::Inactive => "inactive",
        ConversationState::Restored => "restored",
    }
}

pub(crate) async fn members(args: GroupArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args.home, async |client| {
        let group = client.group(args.group).await?;
        let members = group.members().await?;
        let listed: Vec<Value> = members
            .iter()
            .map(|member| {
                json!({
                    "inbox_id": member.inbox_id.to_string(),
                    "installations": member.installations,
                    "role": role(member),
                })
            })
            .collect();
        output.say(&json!({"group_id": group.id().to_string(), "members": listed}), || {
            let line = |member: &highwater::Member| {
                format!("{}  {}  {} installations", member.inbox_id, role(member), member.installations)
            };
            members.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        Ok(Ended::Done)
    })
    .await
}

fn role(member: &highwater::Member) -> &'static str {
    match (member.is_super_admin, member.is_admin) {
        (true, _) => "super_admin",
        (false, true) => "admin",
        (false, false) => "member",
    }
}
