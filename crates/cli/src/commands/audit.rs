use serde_json::{Value, json};

use crate::Ended;
use crate::args::HomeArgs;
use crate::commands::with_client;
use crate::failure::Failure;
use crate::output::Output;

pub(crate) async fn run(args: HomeArgs, output: &Output) -> Result<Ended, Failure> {
    with_client(&args, async |client| {
        let report = client.audit().await?;
        let violations: Vec<Value> = report
            .violations
            .iter()
            .map(|found| json!({"owner": found.owner, "rule": found.rule, "detail": found.detail}))
            .collect();
        let value = json!({
            "clean": report.is_clean(),
            "checks": report.checks,
            "violations": violations,
        });
        output.say(&value, || {
            let line =
                |found: &highwater::Violation| format!("  {}: {}: {}", found.owner, found.rule, found.detail);
            let mut lines = vec![match report.is_clean() {
                true => format!("clean: {} checks", report.checks),
                false => format!("{} of {} checks failed", report.violations.len(), report.checks),
            }];
            lines.extend(report.violations.iter().map(line));
            lines.join("\n")
        })?;
        Ok(if report.is_clean() { Ended::Done } else { Ended::Failed })
    })
    .await
}
