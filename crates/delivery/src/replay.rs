//! Reading from a cursor of the app's own.

use highwater_store::{DatabaseId, Reads, Store};
use sqlx::QueryBuilder;
use tokio::sync::watch;

use crate::{
    DeliveryCursor, DeliveryError, Item, Selection, last_number,
    message::{COLUMNS, from_row},
    selection::{FROM, push_eligible},
};

/// Hands out the eligible messages after a cursor, in delivery order, then those to come. It
/// neither reads nor moves D, and owns nothing: any number of them can be open (STR-100, PROC-034).
/// The app restarts it from the cursor of the last item it is done with.
#[derive(Debug)]
pub struct ReplayReader {
    store: Store,
    database: DatabaseId,
    selection: Selection,
    /// Everything at or below it was handed out or passed over.
    position: u64,
    wakes: watch::Receiver<u64>,
}

impl ReplayReader {
    /// Starts strictly after `from`.
    ///
    /// # Errors
    /// [`DeliveryError::Cursor`] when `from` isn't of this database (PROC-033); when the database
    /// fails.
    pub async fn new(
        store: Store,
        from: DeliveryCursor,
        selection: Selection,
    ) -> Result<Self, DeliveryError> {
        let database = store.database_id();
        let position = store
            .read("replay open", move |tx| Box::pin(async move { from.check(tx, database).await }))
            .await?;
        let wakes = store.wakes();
        Ok(Self { store, database, selection, position, wakes })
    }

    /// The next item that is stored now, or `None`. Scope, filter and eligibility are those of this
    /// moment; a message that a filter excludes is passed over for good.
    ///
    /// Cancel-safe: a dropped call hands out nothing, and the next one finds the same item.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn next(&mut self) -> Result<Option<Item>, DeliveryError> {
        let (position, selection) = (self.position, self.selection.clone());
        let (found, last) = self
            .store
            .read("replay next", move |tx| Box::pin(async move { find(tx, &selection, position).await }))
            .await?;
        let Some(message) = found else {
            self.position = self.position.max(last);
            return Ok(None);
        };
        let number = message
            .delivery_number
            .ok_or(DeliveryError::Damaged("an eligible message has no delivery number"))?;
        self.position = number.get();
        Ok(Some(Item { message, cursor: DeliveryCursor::after(self.database, number) }))
    }

    /// The next item, waiting for one to be stored if need be: by this process, by another or by an
    /// import, with or without a network (STR-101).
    ///
    /// Cancel-safe as [`ReplayReader::next`] is.
    ///
    /// # Errors
    /// When the database fails or is closed.
    pub async fn next_wait(&mut self) -> Result<Item, DeliveryError> {
        loop {
            // Marked seen before looking, so that a commit in between wakes again.
            self.wakes.borrow_and_update();
            if let Some(item) = self.next().await? {
                return Ok(item);
            }
            if self.wakes.changed().await.is_err() {
                return Err(DeliveryError::Store(highwater_store::StoreError::Closed));
            }
        }
    }
}

async fn find(
    tx: &mut impl Reads,
    selection: &Selection,
    position: u64,
) -> Result<(Option<crate::StoredMessage>, u64), DeliveryError> {
    let mut query = QueryBuilder::new("SELECT ");
    query.push(COLUMNS).push(FROM).push("WHERE m.delivery_number > ").push_bind(position as i64);
    query.push(" AND ");
    push_eligible(&mut query, tx.now_ns());
    query.push(" AND ");
    selection.push_scope(&mut query);
    query.push(" AND ");
    selection.push_filter(&mut query);
    query.push(" ORDER BY m.delivery_number LIMIT 1");
    let row = query.build().fetch_optional(tx.conn()).await?;
    match row.as_ref().map(from_row).transpose()? {
        Some(message) => Ok((Some(message), position)),
        None => Ok((None, last_number(tx).await?)),
    }
}
