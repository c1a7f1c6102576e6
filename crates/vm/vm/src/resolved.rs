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

    /// Sets the reference, unless another thread has been first; returns the one that stays. For
    /// what has to be one and the same for all.
    pub fn set_first(&self, to: &'static T) -> &'static T {
        let own = std::ptr::from_ref(to).cast_mut();
        let none = std::ptr::null_mut();
        // Release pairs with the acquire in `get`, and acquire with another thread's release.
        match self.to.compare_exchange(none, own, Ordering::Release, Ordering::Acquire) {
            Ok(_) => to,
            // SAFETY: as in `get`, and it is not null.
            Err(first) => unsafe { &*first },
        }
    }

    /// Empties it: whoever needs the reference finds it anew.
    pub fn clear(&self) {
        self.to.store(std::ptr::null_mut(), Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_threads_that_race_wins_for_all() {
        static NUMBERS: [usize; 4] = [0, 1, 2, 3];
        let word: Resolved<usize> = Resolved::new();
        let start = std::sync::Barrier::new(NUMBERS.len());
        let race = |own| {
            start.wait();
            word.set_first(own)
        };
        let won: Vec<&usize> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                NUMBERS.iter().map(|own| scope.spawn(move || race(own))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let stays = word.get().unwrap();
        assert!(won.iter().all(|it| std::ptr::eq(*it, stays)));
        assert!(std::ptr::eq(word.set_first(&NUMBERS[0]), stays));
    }
}
