//! Delivery numbers and D as values, and the SQL that moves them.

use std::{collections::BTreeMap, fmt};

use highwater_store::{Reads, WriteTx};
use highwater_wire::GroupId;
use sqlx::Row as _;

use crate::DeliveryError;

/// The place of a message in this database's one order of deliverable messages, from 1. Immutable;
/// means nothing in another database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryNumber(pub(crate) u64);

impl DeliveryNumber {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn as_i64(self) -> i64 {
        self.0 as i64
    }

    pub(crate) fn from_stored(number: i64) -> Result<Self, DeliveryError> {
        match u64::try_from(number) {
            Ok(number @ 1..) => Ok(Self(number)),
            _ => Err(DeliveryError::Damaged("a delivery number is not positive")),
        }
    }
}

impl fmt::Display for DeliveryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// D of one group: the last delivery number that the app acknowledged or the default consumer's
/// filter excluded. Never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveredPosition(u64);

impl DeliveredPosition {
    /// Nothing delivered.
    pub const ZERO: Self = Self(0);

    /// The number, 0 before the first acknowledgement.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Whether the item lies at or below D.
    pub fn covers(self, number: DeliveryNumber) -> bool {
        number.0 <= self.0
    }

    fn from_stored(number: i64) -> Result<Self, DeliveryError> {
        u64::try_from(number).map(Self).map_err(|_| DeliveryError::Damaged("D is negative"))
    }
}

/// D of a group; zero when nothing of it was ever delivered.
///
/// # Errors
/// When the database fails.
pub async fn delivered(tx: &mut impl Reads, group: GroupId) -> Result<DeliveredPosition, DeliveryError> {
    let row = sqlx::query("SELECT delivered FROM delivery_positions WHERE group_id = ?")
        .bind(group.as_bytes().as_slice())
        .fetch_optional(tx.conn())
        .await?;
    match row {
        Some(row) => DeliveredPosition::from_stored(row.try_get(0)?),
        None => Ok(DeliveredPosition::ZERO),
    }
}

/// D of every group that has one above zero.
///
/// # Errors
/// When the database fails.
pub async fn positions(tx: &mut impl Reads) -> Result<BTreeMap<GroupId, DeliveredPosition>, DeliveryError> {
    let rows = sqlx::query("SELECT group_id, delivered FROM delivery_positions").fetch_all(tx.conn()).await?;
    rows.iter()
        .map(|row| {
            let group = GroupId::try_from(row.try_get::<&[u8], _>(0)?)?;
            Ok((group, DeliveredPosition::from_stored(row.try_get(1)?)?))
        })
        .collect()
}

/// The last delivery number given out, 0 before the first.
///
/// # Errors
/// When the database fails.
pub async fn last_number(tx: &mut impl Reads) -> Result<u64, DeliveryError> {
    let row = sqlx::query("SELECT last FROM delivery_counter").fetch_one(tx.conn()).await?;
    u64::try_from(row.try_get::<i64, _>(0)?)
        .map_err(|_| DeliveryError::Damaged("the delivery counter is negative"))
}

/// Takes `count` numbers; returns the first of them. Only for messages that become deliverable in
/// this transaction.
pub(crate) async fn take_numbers(tx: &mut WriteTx, count: usize) -> Result<u64, DeliveryError> {
    let count = count as i64;
    let row = sqlx::query("UPDATE delivery_counter SET last = last + ? RETURNING last")
        .bind(count)
        .fetch_one(tx.conn())
        .await?;
    u64::try_from(row.try_get::<i64, _>(0)? - count + 1)
        .map_err(|_| DeliveryError::Damaged("the delivery counter is negative"))
}

/// Moves D of a group up to an acknowledged item. The caller has checked the owner's token in this
/// transaction.
pub(crate) async fn advance(
    tx: &mut WriteTx,
    group: GroupId,
    number: DeliveryNumber,
) -> Result<(), DeliveryError> {
    sqlx::query(
        "INSERT INTO delivery_positions (group_id, delivered) VALUES (?, ?) \
         ON CONFLICT (group_id) DO UPDATE SET delivered = excluded.delivered \
         WHERE excluded.delivered > delivery_positions.delivered",
    )
    .bind(group.as_bytes().as_slice())
    .bind(number.as_i64())
    .execute(tx.conn())
    .await?;
    Ok(())
}
