use highwater::Client;

/// Checks every invariant of a client's database.
///
/// # Panics
/// With each violation on a line of its own.
pub async fn assert_clean(client: &Client) {
    let report = client.audit().await.expect("the database can be audited");
    let violations: Vec<_> = report
        .violations
        .iter()
        .map(|found| format!("{}: {}: {}", found.owner, found.rule, found.detail))
        .collect();
    assert!(violations.is_empty(), "the audit found:\n{}", violations.join("\n"));
    assert!(report.checks > 0, "the audit checked nothing");
}
