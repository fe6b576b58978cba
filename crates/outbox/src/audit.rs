use highwater_store::{Audit, Reads};
use highwater_wire::PayloadIdentity;
use highwater_wire::proto::backend::{ClientEnvelope, client_envelope};
use prost::Message as _;
use sqlx::Row as _;

use crate::OutboxError;

/// Checks this crate's invariants.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, OutboxError> {
    let mut audit = Audit::new("outbox");
    let rules: [(&'static str, &str); 4] = [
        (
            "a prepared intent has a current attempt, any other has none",
            "SELECT count(*) FROM outbox_intents i WHERE (i.state = 1) <> \
             EXISTS (SELECT 1 FROM outbox_attempts a WHERE a.intent_id = i.id AND a.current = 1)",
        ),
        (
            "at most one change of a group is prepared",
            "SELECT count(*) FROM (SELECT 1 FROM outbox_intents WHERE state = 1 AND change IS NOT NULL \
             GROUP BY group_id HAVING count(*) > 1)",
        ),
        (
            "only an applied change owes Welcomes",
            "SELECT count(*) FROM outbox_welcomes w JOIN outbox_intents i ON i.id = w.intent_id \
             WHERE w.state = 0 AND i.state <> 2",
        ),
        (
            "a published change owes at least one Welcome",
            "SELECT count(*) FROM outbox_intents i WHERE i.state = 2 AND NOT EXISTS \
             (SELECT 1 FROM outbox_welcomes w WHERE w.intent_id = i.id AND w.state = 0)",
        ),
    ];
    for (rule, sql) in rules {
        let broken = sqlx::query(sql).fetch_one(tx.conn()).await?.get::<i64, _>(0);
        audit.check(rule, broken == 0, || format!("{broken} rows"));
    }
    let attempts =
        sqlx::query("SELECT id, payload_identity, envelope FROM outbox_attempts WHERE current = 1")
            .fetch_all(tx.conn())
            .await?;
    for row in attempts {
        let envelope: &[u8] = row.get(2);
        let matches = matches!(
            ClientEnvelope::decode(envelope),
            Ok(ClientEnvelope { payload: Some(client_envelope::Payload::GroupMessage(message)) })
                if PayloadIdentity::of(&message.data).as_bytes().as_slice() == row.get::<&[u8], _>(1)
        );
        audit.check("an attempt's payload identity is that of its bytes", matches, || {
            format!("attempt {}", row.get::<i64, _>(0))
        });
    }
    Ok(audit)
}
