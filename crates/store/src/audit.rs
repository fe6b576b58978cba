use sqlx::Row as _;

use crate::{Reads, StoreError};

/// An invariant that doesn't hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The crate whose invariant it is.
    pub owner: &'static str,
    /// The invariant.
    pub rule: &'static str,
    /// Where it is broken. Holds no content.
    pub detail: String,
}

/// What an owner's audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The crate that was audited.
    pub owner: &'static str,
    /// How many checks were made.
    pub checks: u64,
    /// Those that failed.
    pub violations: Vec<Violation>,
}

impl Audit {
    /// An audit of `owner` without checks.
    pub fn new(owner: &'static str) -> Self {
        Self { owner, checks: 0, violations: Vec::new() }
    }

    /// Counts one check, and notes a violation if it doesn't hold.
    pub fn check(&mut self, rule: &'static str, holds: bool, detail: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.violations.push(Violation { owner: self.owner, rule, detail: detail() });
        }
    }

    /// Takes over another owner's findings.
    pub fn merge(&mut self, other: Self) {
        self.checks += other.checks;
        self.violations.extend(other.violations);
    }
}

/// Checks the file itself: pages, indices and foreign keys.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, StoreError> {
    let mut audit = Audit::new("store");
    let found = sqlx::query("PRAGMA integrity_check(1)").fetch_one(tx.conn()).await?;
    let found: String = found.get(0);
    audit.check("the file is intact", found == "ok", || found.clone());
    let dangling = sqlx::query("PRAGMA foreign_key_check").fetch_all(tx.conn()).await?.len();
    audit.check("every reference leads somewhere", dangling == 0, || format!("{dangling} rows"));
    Ok(audit)
}
