//! An index of filters.

use super::filter::{FilterError, IntentFilter};
use super::intent::Intent;
use std::sync::Arc;

/// The name of a registration in its resolver. A later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

/// Whose filter it is, which explicit intents ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The package of the application.
    pub package: Option<String>,
    /// The class, of a component.
    pub class: Option<String>,
}

/// Filters with values, indexed by action, scheme and MIME type. A clone shares all with its
/// original, and takes constant time.
#[derive(Clone, Debug)]
pub struct Resolver<T> {
    next: u64,
    entries: Arc<Vec<(Key, Owner, IntentFilter, Arc<T>)>>,
}

impl<T> Default for Resolver<T> {
    fn default() -> Resolver<T> {
        Resolver { next: 0, entries: Arc::default() }
    }
}

impl<T> Resolver<T> {
    /// Adds a filter.
    ///
    /// # Errors
    /// The filter cannot be registered.
    pub fn insert(
        &mut self,
        _owner: Owner,
        _filter: IntentFilter,
        _value: T,
    ) -> Result<Key, FilterError> {
        todo!()
    }

    /// Removes a registration. False if it is gone.
    pub fn remove(&mut self, _key: Key) -> bool {
        todo!()
    }

    /// The registrations that match: those of a higher filter priority first, then in the order in
    /// which they were registered.
    pub fn query(&self, _intent: &Intent) -> Vec<(&IntentFilter, &T)> {
        todo!()
    }
}

/// A resolver that threads read without a lock while others change it.
#[derive(Debug)]
pub struct SharedResolver<T> {
    current: std::sync::Mutex<Arc<Resolver<T>>>,
}

impl<T> SharedResolver<T> {
    /// The resolver as it is now. Later changes do not change it.
    pub fn snapshot(&self) -> Arc<Resolver<T>> {
        todo!()
    }

    /// Changes the resolver. Changes of several threads come one after the other.
    pub fn update<R>(&self, _change: impl FnOnce(&mut Resolver<T>) -> R) -> R {
        todo!()
    }
}
