//! What must be gone when the store is closed, though somebody may still hold on to it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Resources = BTreeMap<u64, Box<dyn Any + Send>>;

/// The resources of one store. `None` once it is closed.
#[derive(Debug)]
pub(crate) struct Keeper(Mutex<Option<Resources>>);

impl Keeper {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Resources::new()))))
    }

    pub(crate) fn keep(self: &Arc<Self>, resource: impl Any + Send) -> Kept {
        let mut resources = self.lock();
        // What comes after the closing is gone at once.
        let id = resources.as_mut().map(|resources| {
            let id = resources.last_key_value().map_or(0, |(last, _)| last + 1);
            resources.insert(id, Box::new(resource));
            id
        });
        Kept { keeper: Arc::clone(self), id }
    }

    /// Drops everything that is kept, now and from now on.
    pub(crate) fn close(&self) {
        let resources = self.lock().take();
        drop(resources);
    }

    fn drop_one(&self, id: u64) {
        let resource = self.lock().as_mut().and_then(|resources| resources.remove(&id));
        drop(resource);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Resources>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that lives until this is dropped or the store is closed, whichever comes first. Made by
/// [`Store::keep`](crate::Store::keep).
#[derive(Debug)]
pub struct Kept {
    keeper: Arc<Keeper>,
    id: Option<u64>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.keeper.drop_one(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_goes_with_its_holder_or_with_the_store() {
        let (keeper, resource) = (Keeper::new(), Arc::new(()));
        let held = || Arc::strong_count(&resource) - 1;
        let one = keeper.keep(Arc::clone(&resource));
        let two = keeper.keep(Arc::clone(&resource));
        drop(one);
        assert_eq!(held(), 1);
        let three = keeper.keep(Arc::clone(&resource));
        keeper.close();
        assert_eq!(held(), 0);
        let late = keeper.keep(Arc::clone(&resource));
        assert_eq!(held(), 0);
        drop((two, three, late));
    }
}
