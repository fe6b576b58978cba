//! What a reader asked for, and the SQL that finds it.
//!
//! Scope and filter differ in what they do to D: outside the scope a group keeps its backlog, inside
//! it a message that the filter excludes is consumed (STR-092, STR-093, PROC-047).

use std::collections::BTreeSet;

use highwater_wire::GroupId;
use sqlx::{QueryBuilder, Sqlite};

use crate::{Consent, ConversationType};

/// Which groups a reader is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them, those to come included.
    #[default]
    All,
    /// These.
    Groups(BTreeSet<GroupId>),
}

/// Scope and filters of a reader. Evaluated against the conversation as it is at the handoff
/// (PROC-046); everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Which groups.
    pub scope: Scope,
    /// Only conversations with one of these consents.
    pub consent: Option<BTreeSet<Consent>>,
    /// Only conversations of one of these types.
    pub kinds: Option<BTreeSet<ConversationType>>,
}

impl Selection {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Everything of some groups.
    pub fn groups(groups: impl IntoIterator<Item = GroupId>) -> Self {
        Self { scope: Scope::Groups(groups.into_iter().collect()), ..Self::default() }
    }

    /// Only conversations with one of these consents.
    #[must_use]
    pub fn with_consent(mut self, consent: impl IntoIterator<Item = Consent>) -> Self {
        self.consent = Some(consent.into_iter().collect());
        self
    }

    /// Only conversations of one of these types.
    #[must_use]
    pub fn of_kinds(mut self, kinds: impl IntoIterator<Item = ConversationType>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Whether a message in scope can be excluded.
    pub(crate) fn filters(&self) -> bool {
        self.consent.is_some() || self.kinds.is_some()
    }

    /// Appends a condition on `m`: within the scope.
    pub(crate) fn push_scope(&self, query: &mut QueryBuilder<Sqlite>) {
        match &self.scope {
            Scope::All => {
                query.push("1");
            }
            Scope::Groups(groups) if groups.len() == 1 => {
                // One group is read along its own index.
                query.push("m.group_id = ");
                query.push_bind(groups.iter().flat_map(|group| group.to_bytes()).collect::<Vec<_>>());
            }
            Scope::Groups(groups) => {
                // The plus keeps the read in delivery order, whatever the number of groups; one
                // value for all of them keeps clear of the limit on bound values.
                let list: Vec<_> = groups.iter().map(|group| format!("\"{group}\"")).collect();
                query.push("+m.group_id IN (SELECT unhex(value) FROM json_each(");
                query.push_bind(format!("[{}]", list.join(","))).push("))");
            }
        }
    }

    /// Appends a condition on `c`: not excluded by the filter.
    pub(crate) fn push_filter(&self, query: &mut QueryBuilder<Sqlite>) {
        query.push("(1");
        let consents = self.consent.iter().map(|set| set.iter().map(|it| it.stored()).collect());
        let kinds = self.kinds.iter().map(|set| set.iter().map(|it| it.stored()).collect());
        let parts = consents.map(|set| ("consent", set)).chain(kinds.map(|set| ("kind", set)));
        for (column, set) in parts {
            let set: Vec<i64> = set;
            query.push(format_args!(" AND c.{column} IN ("));
            let mut list = query.separated(", ");
            for value in set {
                list.push_bind(value);
            }
            list.push_unseparated(")");
        }
        query.push(")");
    }
}

/// What [`Selection`]'s conditions speak of.
pub(crate) const FROM: &str = " FROM delivery_messages AS m \
     JOIN delivery_conversations AS c ON c.group_id = m.group_id ";

/// Appends a condition on `m`: Published, retained, not past its time (PROC-025, STR-103).
pub(crate) fn push_eligible(query: &mut QueryBuilder<Sqlite>, now_ns: i64) {
    query.push("m.delivery_number IS NOT NULL AND m.status = 2 AND m.deleted = 0 ");
    query.push("AND (m.expires_ns IS NULL OR m.expires_ns > ").push_bind(now_ns).push(")");
}
