//! Where to resume: a place in one database's order of messages.

use std::{fmt, str::FromStr};

use highwater_store::{DatabaseId, Reads};
use sha2::{Digest as _, Sha256};

use crate::{DeliveryError, DeliveryNumber, last_number};

const VERSION: u8 = 1;
/// Version, database, number.
const BODY: usize = 1 + 16 + 8;
const CHECKSUM: usize = 4;

/// "Strictly after this item", in the database that gave it out (STR-098, PROC-033). An app keeps
/// it as text; the text is opaque, and only one that a database gave out is accepted back.
/// Holding a cursor acknowledges nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryCursor {
    database: DatabaseId,
    number: u64,
}

impl DeliveryCursor {
    /// Before the first item of a database.
    pub fn beginning(database: DatabaseId) -> Self {
        Self { database, number: 0 }
    }

    pub(crate) fn at(database: DatabaseId, number: u64) -> Self {
        Self { database, number }
    }

    pub(crate) fn after(database: DatabaseId, number: DeliveryNumber) -> Self {
        Self { database, number: number.get() }
    }

    /// The database that gave it out.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The delivery number of the item it stands at; `None` at the beginning.
    pub fn number(&self) -> Option<DeliveryNumber> {
        (self.number > 0).then_some(DeliveryNumber(self.number))
    }

    /// The number to read above, if the cursor is one of this database.
    pub(crate) async fn check(
        &self,
        tx: &mut impl Reads,
        database: DatabaseId,
    ) -> Result<u64, DeliveryError> {
        if self.database != database {
            return Err(CursorError::OtherDatabase { expected: database, found: self.database }.into());
        }
        let last = last_number(tx).await?;
        if self.number > last {
            // An older copy of the file was put in place. Reading on from here would skip
            // everything that this copy has yet to number.
            return Err(CursorError::Ahead { number: self.number, last }.into());
        }
        Ok(self.number)
    }

    fn body(&self) -> [u8; BODY] {
        let mut body = [0; BODY];
        body[0] = VERSION;
        body[1..17].copy_from_slice(self.database.as_bytes());
        body[17..].copy_from_slice(&self.number.to_be_bytes());
        body
    }
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM] {
    let digest = Sha256::new().chain_update(b"highwater delivery cursor").chain_update(body).finalize();
    [digest[0], digest[1], digest[2], digest[3]]
}

impl fmt::Display for DeliveryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body();
        write!(f, "{}{}", hex::encode(body), hex::encode(checksum(&body)))
    }
}

impl fmt::Debug for DeliveryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeliveryCursor({})", self.number)
    }
}

impl FromStr for DeliveryCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let bytes = hex::decode(text).map_err(|_| CursorError::Malformed)?;
        let (body, sum) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM));
        // Whatever the version, a cursor ends with its checksum: that tells one from another id or a time in hex.
        match (body.first(), checksum(body) == sum) {
            (Some(&VERSION), true) if body.len() == BODY => {}
            (Some(&VERSION), false) if body.len() == BODY => return Err(CursorError::Checksum),
            (Some(&found), true) if found != VERSION => return Err(CursorError::Version { found }),
            _ => return Err(CursorError::Malformed),
        }
        let database: [u8; 16] = body[1..17].try_into().map_err(|_| CursorError::Malformed)?;
        let number: [u8; 8] = body[17..].try_into().map_err(|_| CursorError::Malformed)?;
        let number = u64::from_be_bytes(number);
        if i64::try_from(number).is_err() {
            return Err(CursorError::Malformed);
        }
        Ok(Self { database: DatabaseId::from_bytes(database), number })
    }
}

/// Why a text is no cursor, or a cursor not one to use here. Never worth a retry with the same one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// Not the text of a cursor: a sequence id or a time isn't one either.
    #[error("this is not a delivery cursor")]
    Malformed,
    /// Written by a newer version of this software.
    #[error("a delivery cursor of unknown version {found}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A character was changed or lost.
    #[error("the delivery cursor is damaged: its checksum doesn't match")]
    Checksum,
    /// Given out by another database.
    #[error("the delivery cursor belongs to database {found}, this is {expected}")]
    OtherDatabase {
        /// The database at hand.
        expected: DatabaseId,
        /// The one in the cursor.
        found: DatabaseId,
    },
    /// Given out by this database, at a later time than it has reached: the file is an older copy.
    #[error("the delivery cursor stands at {number}, but this database has only reached {last}")]
    Ahead {
        /// The number in the cursor.
        number: u64,
        /// The last number given out.
        last: u64,
    },
}

impl CursorError {
    /// Never.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
