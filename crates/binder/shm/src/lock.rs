//! A lock whose holder inherits the priority of real-time threads that wait for it.
//!
//! ```text
//!   word      0, or the holder's thread id and the kernel's bit for waiters: a
//!             priority-inheriting futex
//!   sleepers  a mark while ordinary threads sleep on it, or are about to; above it, how often
//!             one of them was made to compete anew
//! ```
//!
//! Without contention, taking and releasing are one compare-and-swap each.
//!
//! A real-time thread waits in the kernel on `word`: the holder inherits its priority and passes
//! the lock to the waiter with the highest priority. A thread that holds another lock waits there
//! too, because a real-time thread may wait for that other lock.
//!
//! Ordinary threads sleep on `sleepers` and compete for the lock once they are awake. Passing the
//! lock to a thread that still has to wake up would block all running threads meanwhile. Under
//! contention that costs nine of ten calls. Who gives a sleeper a real-time policy calls
//! [`Lock::wake`], and it waits on `word` then.
//!
//! Memory order: a release, by the swap here or in the kernel, pairs with the acquire of the thread
//! that takes the lock. Fences on both sides separate the accesses to `word` and `sleepers`
//! (Dekker): either the releasing thread sees that a thread is going to sleep, or that thread sees
//! that the lock is free.
//!
//! **Invariant**: a nonzero word names a thread of this process that has a [`Guard`] of this lock.
//!
//! Unlike std's, this lock is not poisoned by a panic. Code that panics while it holds the lock
//! must leave the value consistent.

use crate::futex;
use crate::sync::{AtomicU32, Ordering, SPINS, fence_after_update, spin_loop};
use crate::thread;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// In [`Lock::sleepers`]: the mark, and the unit of the number above it.
const MARK: u32 = 1;
const ANEW: u32 = 2;

/// A value that one thread at a time can use.
pub struct Lock<T> {
    word: AtomicU32,
    sleepers: AtomicU32,
    value: UnsafeCell<T>,
}

/// Proof that its thread holds the lock. Dropping it releases the lock.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    holder: u32,
    of_this_thread: PhantomData<*mut ()>,
}

// SAFETY: only guards give access to `value`, and the invariant allows one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: a shared guard gives only shared references to the value.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Lock<T> {
    /// A lock that no thread holds.
    pub fn new(value: T) -> Lock<T> {
        Lock { word: AtomicU32::new(0), sleepers: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, and waits while another thread holds it.
    ///
    /// # Panics
    /// Panics if the calling thread already holds the lock and is a real-time thread or holds
    /// another lock, or if the holder has ended.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let holder = thread::id();
        if !self.take(holder) {
            self.take_slowly(holder);
        }
        self.guard(holder)
    }

    /// Takes the lock if no thread holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let holder = thread::id();
        #[cfg(simulated)]
        crate::simulation::release_of_the_dead(&self.word);
        self.take(holder).then(|| self.guard(holder))
    }

    /// The value, of which this is the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether a real-time thread, or one that holds another lock, waits for this one. A long-time
    /// holder should release it then.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & futex::WAITERS != 0
    }

    /// Whether any thread sleeps until the lock is free.
    pub fn is_contended(&self) -> bool {
        self.is_awaited() || self.sleepers.load(Ordering::Relaxed) & MARK != 0
    }

    #[inline]
    fn guard(&self, holder: u32) -> Guard<'_, T> {
        thread::held().with(|held| held.set(held.get() + 1));
        Guard { lock: self, holder, of_this_thread: PhantomData }
    }

    #[inline]
    fn take(&self, holder: u32) -> bool {
        // Acquire pairs with the release in `drop`.
        self.word.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_slowly(&self, holder: u32) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == 0 && self.take(holder) {
                return;
            }
            spin_loop();
        }
        if thread::held().with(|held| held.get()) != 0 || thread::is_real_time() {
            return futex::lock(&self.word, holder);
        }
        loop {
            // Also for the threads that already sleep: the one that was woken must keep the mark
            // for the others.
            let sleepers = self.sleepers.fetch_or(MARK, Ordering::SeqCst) | MARK;
            fence_after_update();
            if self.take(holder) {
                return;
            }
            // It may have become one while it slept: see `wake`.
            if thread::is_real_time() {
                return futex::lock(&self.word, holder);
            }
            futex::wait_own(&self.sleepers, sleepers, holder);
        }
    }

    /// Has a thread that sleeps as an ordinary one compete anew. Called after it has become a
    /// real-time thread: it waits on `word` from then on.
    ///
    /// Memory order: that thread reads `sleepers` before it looks at its policy. The caller has set
    /// the policy before. So either this call changes what that thread has read, and that thread
    /// does not sleep, or that thread sees its policy.
    pub fn wake(&self, thread: u32) {
        self.sleepers.fetch_add(ANEW, Ordering::SeqCst);
        futex::wake_thread(&self.sleepers, thread);
    }

    #[cold]
    fn wake_sleeper(&self) {
        if self.sleepers.fetch_and(!MARK, Ordering::Relaxed) & MARK != 0 {
            futex::wake_own(&self.sleepers);
        }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => form.debug_tuple("Lock").field(&*value).finish(),
            None => form.write_str("Lock(held)"),
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        thread::held().with(|held| held.set(held.get() - 1));
        let Lock { word, sleepers, .. } = self.lock;
        // Release pairs with the acquire in `take`, and with the kernel's.
        if word.compare_exchange(self.holder, 0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            futex::unlock(word);
        }
        fence_after_update();
        if sleepers.load(Ordering::Relaxed) & MARK != 0 {
            self.lock.wake_sleeper();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, and is borrowed as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and no other borrow of the guard exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(any(loom, simulated))))]
mod tests {
    use super::*;
    use std::fs;
    use std::thread::{scope, yield_now};

    /// The one that a release has woken may not run for long.
    #[test]
    fn a_sleeper_competes_anew_before_the_woken_one_has_set_the_mark_again() {
        let (lock, sleeper) = (Lock::new(()), AtomicU32::new(0));
        let load = |word: &AtomicU32| word.load(Ordering::SeqCst);
        let is_marked = || load(&lock.sleepers) & MARK != 0;
        scope(|scope| {
            let held = lock.lock();
            scope.spawn(|| {
                sleeper.store(thread::id(), Ordering::SeqCst);
                drop(lock.lock());
            });
            while !is_marked() {
                yield_now();
            }
            let stat = format!("/proc/self/task/{}/stat", load(&sleeper));
            while !fs::read_to_string(&stat).unwrap().contains(") S ") {
                yield_now();
            }
            // As a release does.
            lock.sleepers.fetch_and(!MARK, Ordering::SeqCst);
            lock.wake(load(&sleeper));
            while !is_marked() {
                yield_now();
            }
            drop(held);
        });
    }
}
