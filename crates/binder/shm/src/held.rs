//! A reference to a part of a shared object, together with the share that keeps the object alive.
//! Saves looking the part up at each use.

use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

/// A reference to a part of `O` that is valid as long as this value lives.
#[derive(Debug)]
pub struct Held<O, T> {
    part: NonNull<T>,
    _owner: Arc<O>,
}

// SAFETY: equivalent to a shared reference to the part and a share of the owner.
unsafe impl<O: Send + Sync, T: Sync> Send for Held<O, T> {}
// SAFETY: as above.
unsafe impl<O: Send + Sync, T: Sync> Sync for Held<O, T> {}

impl<O, T> Held<O, T> {
    /// A reference to the part that `find` returns.
    pub fn new(owner: Arc<O>, find: impl for<'a> FnOnce(&'a O) -> &'a T) -> Held<O, T> {
        let part = NonNull::from(find(&owner));
        Held { part, _owner: owner }
    }
}

impl<O, T> Deref for Held<O, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: borrowed from the owner. The owner does not move and is not borrowed mutably
        // while this share exists.
        unsafe { self.part.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_outlives_the_other_shares_of_its_owner() {
        let owner = Arc::new([String::from("first"), String::from("second")]);
        let index = 1;
        let held = Held::new(Arc::clone(&owner), |owner| &owner[index]);
        drop(owner);
        assert_eq!(*held, "second");
    }
}
