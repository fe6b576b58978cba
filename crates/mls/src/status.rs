//! What is known of groups without decoding them.

use highwater_store::{Reads, WriteTx};
use highwater_wire::GroupId;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::{MlsError, rows};

/// The outline of a group's MLS state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The current epoch; for an inactive group, the one its removal led to.
    pub epoch: u64,
    /// The epoch this installation joined in, 0 for the creator.
    pub join_epoch: u64,
    /// Whether this installation is a member.
    pub active: bool,
}

/// The current epoch of a group, if there is MLS state of it.
pub async fn epoch(tx: &mut impl Reads, group: GroupId) -> Result<Option<u64>, MlsError> {
    Ok(group_state(tx, group).await?.map(|state| state.epoch))
}

/// The outline of a group, if there is MLS state of it.
pub async fn group_state(tx: &mut impl Reads, group: GroupId) -> Result<Option<GroupState>, MlsError> {
    let row = sqlx::query("SELECT epoch, join_epoch, active FROM mls_groups WHERE group_id = ?")
        .bind(group.as_bytes().as_slice())
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|row| read(&row)))
}

/// Every group with MLS state, by id.
pub async fn groups(tx: &mut impl Reads) -> Result<Vec<(GroupId, GroupState)>, MlsError> {
    sqlx::query("SELECT epoch, join_epoch, active, group_id FROM mls_groups ORDER BY group_id")
        .fetch_all(tx.conn())
        .await?
        .iter()
        .map(|row| {
            let group = GroupId::try_from(row.get::<&[u8], _>(3));
            Ok((group.map_err(|_| MlsError::Damaged("group id"))?, read(row)))
        })
        .collect()
}

fn read(row: &SqliteRow) -> GroupState {
    GroupState {
        epoch: row.get::<i64, _>(0).cast_unsigned(),
        join_epoch: row.get::<i64, _>(1).cast_unsigned(),
        active: row.get(2),
    }
}

pub(crate) async fn put(tx: &mut WriteTx, group: GroupId, state: &GroupState) -> Result<(), MlsError> {
    sqlx::query(
        "INSERT INTO mls_groups (group_id, join_epoch, epoch, active) VALUES (?, ?, ?, ?) \
         ON CONFLICT (group_id) DO UPDATE SET join_epoch = excluded.join_epoch, epoch = excluded.epoch, \
         active = excluded.active \
         WHERE (join_epoch, epoch, active) <> (excluded.join_epoch, excluded.epoch, excluded.active)",
    )
    .bind(group.as_bytes().as_slice())
    .bind(state.join_epoch.cast_signed())
    .bind(state.epoch.cast_signed())
    .bind(state.active)
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Forgets a group's MLS state. Messages of it can't be read any more.
pub async fn delete_group(tx: &mut WriteTx, group: GroupId) -> Result<(), MlsError> {
    rows::delete_group(tx, group).await?;
    sqlx::query("DELETE FROM mls_groups WHERE group_id = ?")
        .bind(group.as_bytes().as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}
