//! The rows of `mls_values`: one query in, a few multi-row statements out.

use std::collections::BTreeMap;

use highwater_store::{Reads, WriteTx};
use highwater_wire::GroupId;
use sqlx::{QueryBuilder, Row as _};

use crate::MlsError;
use crate::overlay::{Change, Label, Overlay};

/// What stands for "of no group".
const NO_GROUP: &[u8] = &[];

/// Rows per statement. SQLite binds at most 32,766 values at once.
const ROWS_PER_STATEMENT: usize = 500;

/// A group's rows and the rows of no group, in one query.
pub(crate) async fn load(tx: &mut impl Reads, group: GroupId) -> Result<Overlay, MlsError> {
    let rows = sqlx::query("SELECT label, key, value FROM mls_values WHERE group_id IN (x'', ?)")
        .bind(group.as_bytes().as_slice())
        .fetch_all(tx.conn())
        .await?;
    let rows = rows.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    Ok(Overlay::new(Some(group), rows))
}

/// [`load`] for several groups, in one query. Groups without rows are there, too.
pub(crate) async fn load_together(
    tx: &mut impl Reads,
    groups: &[GroupId],
) -> Result<Vec<(GroupId, Overlay)>, MlsError> {
    let mut found = Vec::new();
    for groups in groups.chunks(ROWS_PER_STATEMENT) {
        let mut query =
            QueryBuilder::new("SELECT label, key, value, group_id FROM mls_values WHERE group_id IN (x''");
        for group in groups {
            query.push(", ").push_bind(group.as_bytes().as_slice());
        }
        let rows = query.push(")").build().fetch_all(tx.conn()).await?;
        let mut of_groups: BTreeMap<&[u8], Vec<Stored>> = BTreeMap::new();
        for row in &rows {
            of_groups.entry(row.get(3)).or_default().push(decode(row)?);
        }
        for group in groups {
            let of_none = of_groups.get(NO_GROUP).into_iter().flatten().cloned();
            let of_group = of_groups.get(group.as_bytes().as_slice()).into_iter().flatten().cloned();
            found.push((*group, Overlay::new(Some(*group), of_none.chain(of_group))));
        }
    }
    Ok(found)
}

/// The rows of no group.
pub(crate) async fn load_groupless(tx: &mut impl Reads) -> Result<Overlay, MlsError> {
    let rows = sqlx::query("SELECT label, key, value FROM mls_values WHERE group_id = x''")
        .fetch_all(tx.conn())
        .await?;
    let rows = rows.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
    Ok(Overlay::new(None, rows))
}

type Stored = (Label, Vec<u8>, Vec<u8>);

fn decode(row: &sqlx::sqlite::SqliteRow) -> Result<Stored, MlsError> {
    let label = Label::from_name(row.get(0)).ok_or(MlsError::Damaged("label"))?;
    Ok((label, row.get(1), row.get(2)))
}

/// Writes what changed, of several groups together.
pub(crate) async fn store(
    tx: &mut WriteTx,
    overlays: impl IntoIterator<Item = &Overlay>,
) -> Result<(), MlsError> {
    let mut upserts = Vec::new();
    let mut deletions = Vec::new();
    for overlay in overlays {
        let group = overlay.group();
        for change in overlay.take_changes() {
            let owner = owner(&change, group)?;
            match change.value {
                Some(value) => upserts.push((owner, change.label, change.key, value)),
                None => deletions.push((owner, change.label, change.key)),
            }
        }
    }
    for rows in upserts.chunks(ROWS_PER_STATEMENT) {
        let mut insert = QueryBuilder::new("INSERT INTO mls_values (group_id, label, key, value) ");
        insert.push_values(rows, |mut row, (owner, label, key, value)| {
            row.push_bind(owner.as_slice())
                .push_bind(label.name())
                .push_bind(key.as_slice())
                .push_bind(value.as_slice());
        });
        insert.push(" ON CONFLICT (group_id, label, key) DO UPDATE SET value = excluded.value");
        insert.build().execute(tx.conn()).await?;
    }
    for rows in deletions.chunks(ROWS_PER_STATEMENT) {
        let mut delete = QueryBuilder::new("DELETE FROM mls_values WHERE (group_id, label, key) IN (");
        delete.push_values(rows, |mut row, (owner, label, key)| {
            row.push_bind(owner.as_slice()).push_bind(label.name()).push_bind(key.as_slice());
        });
        delete.push(")");
        delete.build().execute(tx.conn()).await?;
    }
    Ok(())
}

fn owner(change: &Change, group: Option<GroupId>) -> Result<Vec<u8>, MlsError> {
    match (change.label.of_group(), group) {
        (false, _) => Ok(NO_GROUP.to_vec()),
        (true, Some(group)) => Ok(group.as_bytes().to_vec()),
        (true, None) => Err(MlsError::Damaged("a group's value without a group")),
    }
}

/// Removes a group's rows.
pub(crate) async fn delete_group(tx: &mut WriteTx, group: GroupId) -> Result<(), MlsError> {
    sqlx::query("DELETE FROM mls_values WHERE group_id = ?")
        .bind(group.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Writes one row of no group.
pub(crate) async fn put_groupless(
    tx: &mut WriteTx,
    label: Label,
    key: &[u8],
    value: &[u8],
) -> Result<(), MlsError> {
    sqlx::query("INSERT INTO mls_values (group_id, label, key, value) VALUES (x'', ?, ?, ?)")
        .bind(label.name())
        .bind(key)
        .bind(value)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Reads one row of no group.
pub(crate) async fn get_groupless(
    tx: &mut impl Reads,
    label: Label,
    key: &[u8],
) -> Result<Option<Vec<u8>>, MlsError> {
    let row = sqlx::query("SELECT value FROM mls_values WHERE group_id = x'' AND label = ? AND key = ?")
        .bind(label.name())
        .bind(key)
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|row| row.get(0)))
}

/// Deletes one row of no group.
pub(crate) async fn delete_groupless(tx: &mut WriteTx, label: Label, key: &[u8]) -> Result<(), MlsError> {
    sqlx::query("DELETE FROM mls_values WHERE group_id = x'' AND label = ? AND key = ?")
        .bind(label.name())
        .bind(key)
        .execute(tx.conn())
        .await?;
    Ok(())
}
