use sqlx::Row as _;

use crate::{Reads, StoreError};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Whose invariant.
    pub owner: &'static str,
    /// What should hold.
    pub rule: &'static str,
    /// What was found instead. No payloads, no keys.
    pub detail: String,
}

/// What an owner's audit found.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    owner: &'static str,
    /// How many checks were made.
    pub checks: u64,
    /// What is broken. Empty when all is well.
    pub violations: Vec<Violation>,
}

impl Audit {
    /// An audit of this owner's invariants that has checked nothing yet.
    pub fn new(owner: &'static str) -> Self {
        Self { owner, checks: 0, violations: Vec::new() }
    }

    /// Counts a check, and keeps a violation when the rule doesn't hold.
    pub fn check(&mut self, rule: &'static str, holds: bool, detail: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.violations.push(Violation { owner: self.owner, rule, detail: detail() });
        }
    }

    /// Whether nothing is broken.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Checks the file itself: every page can be read and fits the others, every reference is met, and the database says
/// which one it is. Reads the whole file.
///
/// # Errors
/// When the database can't be read at all.
pub async fn audit(tx: &mut impl Reads) -> Result<Audit, StoreError> {
    let mut audit = Audit::new("store");
    let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check").fetch_all(tx.conn()).await?;
    audit.check("the file is whole", found == ["ok"], || found.join("; "));
    let dangling = sqlx::query("PRAGMA foreign_key_check").fetch_all(tx.conn()).await?;
    audit.check("every reference is met", dangling.is_empty(), || {
        let tables = dangling.iter().map(|row| row.try_get(0).unwrap_or("?"));
        format!("rows of {}", tables.collect::<Vec<&str>>().join(", "))
    });
    let identities: Vec<i64> =
        sqlx::query_scalar("SELECT length(database_id) FROM store_meta").fetch_all(tx.conn()).await?;
    audit.check("the database has one identity", identities == [16], || format!("lengths {identities:?}"));
    let unversioned: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
         AND substr(name, 1, instr(name, '_') - 1) NOT IN (SELECT owner FROM store_schema)",
    )
    .fetch_one(tx.conn())
    .await?;
    audit.check("every table has a known owner", unversioned == 0, || format!("{unversioned} tables"));
    Ok(audit)
}
