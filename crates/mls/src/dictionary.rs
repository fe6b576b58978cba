//! Applying the payload of an update to the bytes before it.
//!
//! It works on bytes and not on decoded values: members agree on the bytes of the dictionary, and another client may
//! have encoded a value in its own way.

use std::collections::BTreeMap;

use openmls::extensions::AppDataDictionary;
use openmls::messages::proposals::{AppDataUpdateOperation, AppDataUpdateProposal};

use crate::codec::{Key, Malformed, Mutation};
use crate::components::{Shape, shape};
use crate::{InputFailure, PolicyViolation};

/// What a dictionary is after some updates, and what they did.
pub(crate) struct Updated {
    pub(crate) dictionary: AppDataDictionary,
    /// Components with their new bytes, `None` where they were removed.
    pub(crate) changes: BTreeMap<u16, Option<Vec<u8>>>,
}

/// Applies updates in their order.
pub(crate) fn apply<'a>(
    before: &AppDataDictionary,
    updates: impl IntoIterator<Item = &'a AppDataUpdateProposal>,
) -> Result<Updated, InputFailure> {
    let mut updated = Updated { dictionary: before.clone(), changes: BTreeMap::new() };
    for update in updates {
        let component = update.component_id();
        let value = match update.operation() {
            AppDataUpdateOperation::Update(payload) => {
                let old = updated.dictionary.get(&component);
                Some(updated_value(component, old, payload.as_slice())?)
            }
            AppDataUpdateOperation::Remove => {
                removable(component)?;
                None
            }
        };
        match &value {
            Some(value) => drop(updated.dictionary.insert(component, value.clone())),
            None => drop(updated.dictionary.remove(&component)),
        }
        updated.changes.insert(component, value);
    }
    Ok(updated)
}

/// Only a scalar can be absent. A collection is emptied by its mutations.
fn removable(component: u16) -> Result<(), InputFailure> {
    match known(component)? {
        Shape::Scalar => Ok(()),
        Shape::Collection(_) => Err(PolicyViolation::ComponentRemoved { component }.into()),
        Shape::WriteOnce => Err(PolicyViolation::WriteOnce { component }.into()),
    }
}

fn updated_value(component: u16, old: Option<&[u8]>, payload: &[u8]) -> Result<Vec<u8>, InputFailure> {
    let malformed = |Malformed| PolicyViolation::MalformedUpdate { component };
    match known(component)? {
        Shape::Scalar => Ok(payload.to_vec()),
        Shape::WriteOnce => Err(PolicyViolation::WriteOnce { component }.into()),
        Shape::Collection(collection) => {
            let old = old.map(|old| collection.read(old)).transpose().map_err(malformed)?;
            let mutations = collection.read_mutations(payload).map_err(malformed)?;
            let new = mutated(old.unwrap_or_default(), mutations).map_err(malformed)?;
            Ok(collection.write(&new))
        }
    }
}

/// A component that this version doesn't know may mean something to a later one, so it is held like any unknown kind.
fn known(component: u16) -> Result<Shape, InputFailure> {
    shape(component).ok_or(InputFailure::HeldProposal("app_data_update of an unknown component"))
}

/// A mutation that doesn't fit what is there would leave members of two minds about what it meant.
fn mutated(old: Vec<(Key, Vec<u8>)>, mutations: Vec<Mutation>) -> Result<BTreeMap<Key, Vec<u8>>, Malformed> {
    let mut items: BTreeMap<Key, Vec<u8>> = old.into_iter().collect();
    for mutation in mutations {
        let fits = match mutation {
            Mutation::Insert(key, value) => items.insert(key, value).is_none(),
            Mutation::Update(key, value) => items.insert(key, value).is_some(),
            Mutation::Delete(key) => items.remove(&key).is_some(),
        };
        if !fits {
            return Err(Malformed);
        }
    }
    Ok(items)
}
