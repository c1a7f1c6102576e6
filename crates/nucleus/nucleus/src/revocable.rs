//! A reference that other OS threads use until its owner revokes it.
//!
//! **Invariant**: a user dereferences the pointer only while `n_users` counts it. The owner first
//! clears the pointer and then waits until `n_users` is 0. The owner reads the count by a
//! read-modify-write, so a user that counts itself later finds the pointer cleared.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, yield_now};
use std::ptr;

/// See the module.
#[derive(Debug)]
pub(crate) struct Revocable<T> {
    pointer: AtomicPtr<T>,
    n_users: AtomicU32,
}

impl<T: Sync> Revocable<T> {
    pub(crate) fn empty() -> Revocable<T> {
        Revocable { pointer: AtomicPtr::new(ptr::null_mut()), n_users: AtomicU32::new(0) }
    }

    /// # Safety
    /// `target` stays valid until `revoke` has returned.
    pub(crate) unsafe fn set(&self, target: *const T) {
        self.pointer.store(target.cast_mut(), Ordering::Release);
    }

    /// Clears the reference and waits until no thread uses it.
    pub(crate) fn revoke(&self) {
        self.pointer.store(ptr::null_mut(), Ordering::Release);
        while self.n_users.fetch_add(0, Ordering::AcqRel) != 0 {
            yield_now();
        }
    }

    /// Calls `act` with the target, unless the reference is empty or revoked.
    pub(crate) fn with(&self, act: impl FnOnce(&T)) {
        self.n_users.fetch_add(1, Ordering::AcqRel);
        // SAFETY: null, or valid until `revoke` has seen no user, of which this thread is one.
        if let Some(target) = unsafe { self.pointer.load(Ordering::Acquire).as_ref() } {
            act(target);
        }
        self.n_users.fetch_sub(1, Ordering::Release);
    }
}
