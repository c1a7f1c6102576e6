//! An index of filters, and its sharing among threads.
//!
//! A query looks at the filters that have the intent's action, its scheme and its base type, and at
//! no others:
//!
//! ```text
//! action -> scheme, or none -> no type
//!                           -> base type -> filters, by priority and age
//! ```
//!
//! A filter stands at each combination of its own, at most [`MAX_COMBINATIONS`]. All maps are
//! persistent (`rpds`): a copy shares every node with its original until one of them changes, and a
//! change copies the nodes from a root to a leaf. So a registration takes time logarithmic in their
//! number, and a snapshot is one pointer. Sorted vectors in `Arc`s would make a query faster by a
//! constant, and would copy all receivers of an action at each registration.
//!
//! **Threads.** [`SharedResolver`] has one pointer to the current resolver (`arc-swap`). Readers
//! load it without a lock and keep their snapshot. Writers take turns, at a mutex that no reader
//! sees. The last owner of a map's node frees it, which takes as long as there are nodes: so
//! writers keep old resolvers until no reader has them, and a reader frees nothing.

use super::component::ComponentName;
use super::filter::{FilterError, IntentFilter};
use super::intent::Intent;
use arc_swap::ArcSwap;
use rpds::{HashTrieMapSync, RedBlackTreeMapSync};
use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};

/// Combinations of action, scheme and base type that one filter may have.
pub const MAX_COMBINATIONS: usize = 2048;

/// The name of a registration in its resolver. A later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

/// The owner of a filter, which intents with a package or a component ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A process of no application.
    Process,
    /// An application, by its package.
    Package(String),
    /// A component of an application.
    Component(ComponentName),
}

impl Owner {
    fn package(&self) -> Option<&str> {
        match self {
            Owner::Process => None,
            Owner::Package(package) => Some(package),
            Owner::Component(component) => Some(&component.package),
        }
    }
}

/// A registration.
#[derive(Debug)]
pub struct Entry<T> {
    /// Its name.
    pub key: Key,
    /// The owner of the filter.
    pub owner: Owner,
    /// The filter.
    pub filter: IntentFilter,
    /// The value that was registered.
    pub value: T,
}

/// The order in which receivers get a broadcast.
type Order = (Reverse<i32>, Key);
type Bucket<T> = RedBlackTreeMapSync<Order, Arc<Entry<T>>>;

impl<T> Entry<T> {
    fn order(&self) -> Order {
        (Reverse(self.filter.priority), self.key)
    }
}

/// Filters with the same action and scheme.
struct ByType<T> {
    untyped: Bucket<T>,
    /// All filters with types.
    typed: Bucket<T>,
    bases: HashTrieMapSync<String, Bucket<T>>,
}

/// Filters with the same action.
struct ByScheme<T> {
    without: ByType<T>,
    schemes: HashTrieMapSync<String, ByType<T>>,
}

/// Filters with values. A clone shares all with its original, and takes constant time.
pub struct Resolver<T> {
    next: u64,
    entries: RedBlackTreeMapSync<Key, Arc<Entry<T>>>,
    actions: HashTrieMapSync<String, ByScheme<T>>,
    /// All filters, for intents without an action.
    any_action: ByScheme<T>,
    components: HashTrieMapSync<ComponentName, Bucket<T>>,
}

/// A copy that shares all with its original, and a default, whatever `T` is.
macro_rules! persistent {
    ($($name:ident { $($field:ident),* })*) => { $(
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                $name { $($field: self.$field.clone()),* }
            }
        }

        impl<T> Default for $name<T> {
            fn default() -> Self {
                $name { $($field: Default::default()),* }
            }
        }
    )* };
}

persistent! {
    ByType { untyped, typed, bases }
    ByScheme { without, schemes }
    Resolver { next, entries, actions, any_action, components }
}

/// Changes the value of a key, and removes it if it is empty then.
fn change<K, V>(
    map: &mut HashTrieMapSync<K, V>,
    key: &K,
    is_empty: impl Fn(&V) -> bool,
    change: impl FnOnce(&mut V),
) where
    K: Clone + Eq + std::hash::Hash,
    V: Clone + Default,
{
    let mut value = map.get(key).cloned().unwrap_or_default();
    change(&mut value);
    if is_empty(&value) {
        map.remove_mut(key);
    } else {
        map.insert_mut(key.clone(), value);
    }
}

/// Adds a registration to a bucket, or removes it.
enum Change<'a, T> {
    Insert(&'a Arc<Entry<T>>),
    Remove(&'a Arc<Entry<T>>),
}

impl<T> Change<'_, T> {
    fn entry(&self) -> &Entry<T> {
        let (Change::Insert(entry) | Change::Remove(entry)) = self;
        entry
    }

    fn apply(&self, bucket: &mut Bucket<T>) {
        match self {
            Change::Insert(entry) => bucket.insert_mut(entry.order(), Arc::clone(entry)),
            Change::Remove(entry) => {
                bucket.remove_mut(&entry.order());
            }
        }
    }
}

/// The type before the slash.
fn base(mime_type: &str) -> &str {
    mime_type.split_once('/').map_or(mime_type, |(base, _)| base)
}

impl<T> ByType<T> {
    fn is_empty(&self) -> bool {
        self.untyped.is_empty() && self.typed.is_empty()
    }

    fn change(&mut self, step: &Change<'_, T>) {
        let types = &step.entry().filter.mime_types;
        step.apply(if types.is_empty() { &mut self.untyped } else { &mut self.typed });
        for base in types.iter().map(|it| base(it).to_owned()) {
            change(&mut self.bases, &base, Bucket::is_empty, |bucket| step.apply(bucket));
        }
    }

    /// The buckets that may have filters for a type.
    fn candidates(&self, mime_type: Option<&str>) -> impl Iterator<Item = &Bucket<T>> {
        let buckets = match mime_type {
            None => [Some(&self.untyped), None],
            Some("*/*") => [Some(&self.typed), None],
            Some(mime_type) => [self.bases.get(base(mime_type)), self.bases.get("*")],
        };
        buckets.into_iter().flatten()
    }
}

impl<T> ByScheme<T> {
    fn is_empty(&self) -> bool {
        self.without.is_empty() && self.schemes.is_empty()
    }

    fn change(&mut self, step: &Change<'_, T>) {
        let schemes = &step.entry().filter.schemes;
        if schemes.is_empty() {
            self.without.change(step);
        }
        for scheme in schemes {
            change(&mut self.schemes, scheme, ByType::is_empty, |by_type| by_type.change(step));
        }
    }

    /// The buckets that may have filters for an intent.
    fn candidates(&self, intent: &Intent) -> impl Iterator<Item = &Bucket<T>> {
        let scheme = self.schemes.get(intent.scheme().unwrap_or_default());
        let by_types = [Some(&self.without), scheme].into_iter().flatten();
        by_types.flat_map(|by_type| by_type.candidates(intent.mime_type.as_deref()))
    }
}

impl<T> Resolver<T> {
    /// The number of registrations.
    pub fn len(&self) -> usize {
        self.entries.size()
    }

    /// Whether there are no registrations.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All registrations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.values().map(|entry| &**entry)
    }

    /// A registration, unless it has been removed.
    pub fn get(&self, key: Key) -> Option<&Entry<T>> {
        self.entries.get(&key).map(|entry| &**entry)
    }

    /// Adds a filter.
    ///
    /// # Errors
    /// The filter cannot be registered.
    pub fn insert(
        &mut self,
        owner: Owner,
        filter: IntentFilter,
        value: T,
    ) -> Result<Key, FilterError> {
        filter.check()?;
        let IntentFilter { actions, schemes, mime_types, .. } = &filter;
        let combinations = actions.len() * schemes.len().max(1) * mime_types.len().max(1);
        if combinations > MAX_COMBINATIONS {
            return Err(FilterError::TooManyCombinations(combinations));
        }
        Ok(self.add(owner, filter, value))
    }

    /// Adds a component without a filter, which explicit intents alone reach.
    pub fn insert_explicit(&mut self, component: ComponentName, value: T) -> Key {
        self.add(Owner::Component(component), IntentFilter::default(), value)
    }

    fn add(&mut self, owner: Owner, filter: IntentFilter, value: T) -> Key {
        let key = Key(self.next);
        self.next += 1;
        let entry = Arc::new(Entry { key, owner, filter, value });
        self.change(&Change::Insert(&entry));
        self.entries.insert_mut(key, entry);
        key
    }

    /// Removes a registration. False if it is gone.
    pub fn remove(&mut self, key: Key) -> bool {
        let Some(entry) = self.entries.get(&key).cloned() else { return false };
        self.change(&Change::Remove(&entry));
        self.entries.remove_mut(&key);
        true
    }

    fn change(&mut self, step: &Change<'_, T>) {
        for action in &step.entry().filter.actions {
            change(&mut self.actions, action, ByScheme::is_empty, |it| it.change(step));
        }
        if !step.entry().filter.actions.is_empty() {
            self.any_action.change(step);
        }
        if let Owner::Component(component) = &step.entry().owner {
            change(&mut self.components, component, Bucket::is_empty, |it| step.apply(it));
        }
    }

    /// The registrations that an intent reaches: those of a higher filter priority first, then in
    /// the order in which they were registered.
    ///
    /// An intent with a component reaches that component, whatever its filters are: its first
    /// registration. An intent with a package reaches registrations of that package. One without
    /// action, scheme and type reaches nobody, as on Android.
    pub fn query(&self, intent: &Intent) -> Vec<&Entry<T>> {
        if let Some(component) = &intent.component {
            let bucket = self.components.get(component);
            return bucket.and_then(Bucket::first).map(|(_, entry)| &**entry).into_iter().collect();
        }
        let by_scheme = match &intent.action {
            Some(action) => self.actions.get(action),
            None if intent.scheme().is_none() && intent.mime_type.is_none() => None,
            None => Some(&self.any_action),
        };
        let buckets = by_scheme.into_iter().flat_map(|it| it.candidates(intent));
        let mut found = Vec::new();
        let mut n_buckets = 0;
        for bucket in buckets.filter(|bucket| !bucket.is_empty()) {
            n_buckets += 1;
            found.extend(bucket.values().map(|entry| &**entry).filter(|entry| {
                let is_package =
                    intent.package.is_none() || entry.owner.package() == intent.package.as_deref();
                is_package && entry.filter.matches(intent).is_ok()
            }));
        }
        if n_buckets > 1 {
            // Each bucket is in order. A filter with several types may stand in two.
            found.sort_by_key(|entry| entry.order());
            found.dedup_by_key(|entry| entry.key);
        }
        found
    }
}

/// A resolver that threads read without a lock while others change it: see the module.
pub struct SharedResolver<T> {
    current: ArcSwap<Resolver<T>>,
    /// Resolvers that were current, and that a reader may have. Writers take turns at it.
    retired: Mutex<Vec<Arc<Resolver<T>>>>,
}

impl<T> Default for SharedResolver<T> {
    fn default() -> SharedResolver<T> {
        SharedResolver { current: ArcSwap::default(), retired: Mutex::default() }
    }
}

impl<T> SharedResolver<T> {
    /// An empty resolver.
    pub fn new() -> SharedResolver<T> {
        SharedResolver::default()
    }

    /// The resolver as it is now, which later changes leave as it is. Takes no lock, and waits for
    /// no writer.
    pub fn snapshot(&self) -> Arc<Resolver<T>> {
        self.current.load_full()
    }

    /// Changes the resolver. Changes of several threads come one after the other. If `change`
    /// panics, nothing has changed.
    pub fn update<R>(&self, change: impl FnOnce(&mut Resolver<T>) -> R) -> R {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Resolver::clone(&self.current.load());
        let result = change(&mut next);
        retired.push(self.current.swap(Arc::new(next)));
        // No reader gets a retired resolver: one with a single owner has it for good.
        retired.retain(|resolver| Arc::strong_count(resolver) > 1);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::Uri;

    #[test]
    fn a_query_looks_at_its_own_action_scheme_and_type_only() {
        let mut resolver = Resolver::default();
        let filters = ["a", "b"].into_iter().flat_map(|action| {
            ["http", "tel"].into_iter().flat_map(move |scheme| {
                let of = move || IntentFilter::new(action).scheme(scheme);
                let types = ["image/png", "text/plain", "*/*"].into_iter();
                types.map(move |it| of().mime_type(it)).chain([of(), IntentFilter::new(action)])
            })
        });
        let keys: Vec<Key> =
            filters.map(|filter| resolver.insert(Owner::Process, filter, ()).unwrap()).collect();
        for (action, uri, mime_type, expected) in [
            ("a", None, None, 2),
            ("a", Some("http://h"), None, 3),
            ("a", Some("ftp://h"), None, 2),
            ("a", Some("tel:1"), Some("image/png"), 2),
            ("a", Some("tel:1"), Some("*/*"), 3),
            ("c", Some("tel:1"), None, 0),
        ] {
            let mut intent = Intent::new(action);
            intent.data = uri.map(Uri::from);
            intent.mime_type = mime_type.map(str::to_owned);
            let by_scheme = resolver.actions.get(action).into_iter();
            let buckets = by_scheme.flat_map(|it| it.candidates(&intent));
            assert_eq!(buckets.map(Bucket::size).sum::<usize>(), expected, "{intent}");
        }
        // Nothing stays of what is gone.
        keys.into_iter().for_each(|key| assert!(resolver.remove(key)));
        assert!(resolver.actions.is_empty() && resolver.any_action.is_empty());
    }
}
