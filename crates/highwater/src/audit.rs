//! Every owner's invariants, checked in one snapshot.

use highwater_store::{Audit, ReadTx, Violation};
use highwater_wire::Topic;

use crate::{Client, Error};

/// What an audit found.
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    /// How many checks were made.
    pub checks: u64,
    /// What is broken. Empty for a database in order.
    pub violations: Vec<Violation>,
}

impl AuditReport {
    /// Whether nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl Client {
    /// Checks the invariants of every part of the database, in one snapshot. Needs no network and changes nothing.
    ///
    /// # Errors
    /// When the database can't be read at all.
    pub async fn audit(&self) -> Result<AuditReport, Error> {
        let welcomes = Topic::welcome(self.installation_id());
        let audits = self
            .store()
            .read("audit", move |tx: &mut ReadTx| {
                Box::pin(async move {
                    let audits: [Audit; 7] = [
                        highwater_store::audit(tx).await?,
                        highwater_receipt::audit(tx).await?,
                        highwater_delivery::audit(tx).await?,
                        highwater_mls::audit(tx).await?,
                        highwater_outbox::audit(tx).await?,
                        highwater_processing::audit(tx).await?,
                        highwater_join::audit(tx, welcomes).await?,
                    ];
                    Ok::<_, Error>(audits)
                })
            })
            .await?;
        Ok(audits.into_iter().fold(AuditReport::default(), |mut report, audit| {
            report.checks += audit.checks;
            report.violations.extend(audit.violations);
            report
        }))
    }
}
