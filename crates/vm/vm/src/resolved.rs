//! A reference that is found once and kept in one atomic word.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Empty, or a reference to something that lives until the process ends.
#[derive(Debug)]
pub struct Resolved<T: Sync + 'static> {
    to: AtomicPtr<T>,
    of: PhantomData<&'static T>,
}

impl<T: Sync> Resolved<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Resolved { to: AtomicPtr::new(std::ptr::null_mut()), of: PhantomData }
    }

    /// Empty ones.
    pub fn table(n: usize) -> Box<[Self]> {
        (0..n).map(|_| Self::new()).collect()
    }

    /// The reference, once somebody has set it.
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T`, by `set`. Acquire pairs with the
        // release there, so that the value is complete.
        unsafe { self.to.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the reference. Threads that race set equal ones, or any of them is good.
    pub fn set(&self, to: &'static T) {
        self.to.store(std::ptr::from_ref(to).cast_mut(), Ordering::Release);
    }
}

impl<T: Sync> Default for Resolved<T> {
    fn default() -> Self {
        Self::new()
    }
}
