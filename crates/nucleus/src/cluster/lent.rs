//! A place that is lent to other OS threads until its owner takes it back.
//!
//! **Invariant**: the place is used only between a user's count and its end, and the owner waits,
//! after it has hidden the place, until there are no users. It asks by a read-modify-write: a user
//! that counts itself after that sees what was before it, and finds the place hidden.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, give_way};
use std::ptr;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lent<T> {
    place: AtomicPtr<T>,
    n_users: AtomicU32,
}

impl<T: Sync> Lent<T> {
    pub(crate) fn nothing() -> Lent<T> {
        Lent { place: AtomicPtr::new(ptr::null_mut()), n_users: AtomicU32::new(0) }
    }

    /// # Safety
    /// The place is there until `take_back` has returned.
    pub(crate) unsafe fn lend(&self, place: *const T) {
        self.place.store(place.cast_mut(), Ordering::Release);
    }

    pub(crate) fn take_back(&self) {
        self.place.store(ptr::null_mut(), Ordering::Release);
        while self.n_users.fetch_add(0, Ordering::AcqRel) != 0 {
            give_way();
        }
    }

    /// Does something with the place, if it is lent.
    pub(crate) fn with(&self, act: impl FnOnce(&T)) {
        self.n_users.fetch_add(1, Ordering::AcqRel);
        // SAFETY: null, or there until `take_back` has seen no user, of which this is one.
        if let Some(place) = unsafe { self.place.load(Ordering::Acquire).as_ref() } {
            act(place);
        }
        self.n_users.fetch_sub(1, Ordering::Release);
    }
}
