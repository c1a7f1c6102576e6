//! A lock whose holder runs at the priority of a real-time thread that waits for it.
//!
//! ```text
//!   word   0, or the holder's thread id, with the kernel's mark for waiters, in the form of its
//!          priority-inheriting futexes
//!   bed    1 while ordinary threads sleep on it, or are about to
//! ```
//!
//! Without a contender either way is one compare-and-swap. A real-time thread waits in the kernel
//! on `word`: the holder inherits its priority, and hands the lock to the highest waiter. So does a
//! thread that holds another lock, as somebody may wait for that one with a priority for it to pass
//! on. To hand a lock to a thread that has yet to wake up keeps it from everybody who runs, which
//! costs nine calls in ten where many contend; hence all others wait on `bed`, and take the lock
//! when they are awake, if nobody was faster.
//!
//! Memory order: letting go releases, by the swap here or in the kernel, to the acquire of who
//! takes it. A fence on either side between `word` and `bed` (Dekker): whoever lets go sees that
//! somebody went to bed, or that one sees that the lock is free.
//!
//! **Invariant**: a word that is not 0 names a thread of this process that has a [`Guard`] of this
//! lock.
//!
//! A panic leaves it usable, unlike std's: whoever panics under it had better not have broken what
//! it guards.

use crate::futex;
use crate::sync::{AtomicU32, LOOKS, Ordering, fence_after_update, spin_loop};
use crate::thread;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A value that one thread at a time uses.
pub struct Lock<T> {
    word: AtomicU32,
    bed: AtomicU32,
    value: UnsafeCell<T>,
}

/// The lock is held; it is let go of when this is dropped, by the thread that took it.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    holder: u32,
    of_this_thread: PhantomData<*mut ()>,
}

// SAFETY: `value` is reached by guards alone, of which there is one at a time: the invariant.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: a shared guard gives shared references to the value and nothing else.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Lock<T> {
    /// Nobody holds it.
    pub fn new(value: T) -> Lock<T> {
        Lock { word: AtomicU32::new(0), bed: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds it.
    ///
    /// # Panics
    /// The calling thread holds it and is a real-time one or holds another lock, or a thread that
    /// has ended holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let holder = thread::id();
        if !self.take(holder) {
            self.wait(holder);
        }
        self.guard(holder)
    }

    /// `None` if somebody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let holder = thread::id();
        self.take(holder).then(|| self.guard(holder))
    }

    /// Whether a real-time thread waits for it, or one that holds another lock: whoever holds it
    /// long is to let go.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & futex::WAITERS != 0
    }

    /// Whether anybody sleeps for it.
    pub fn is_contended(&self) -> bool {
        self.is_awaited() || self.bed.load(Ordering::Relaxed) != 0
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
    fn wait(&self, holder: u32) {
        for _ in 0..LOOKS {
            if self.word.load(Ordering::Relaxed) == 0 && self.take(holder) {
                return;
            }
            spin_loop();
        }
        if thread::held().with(|held| held.get()) != 0 || thread::is_real_time() {
            return futex::lock(&self.word, holder);
        }
        loop {
            // For those too who sleep already: whoever was woken of them keeps the others' mark.
            self.bed.swap(1, Ordering::SeqCst);
            fence_after_update();
            if self.take(holder) {
                return;
            }
            futex::wait(&self.bed, 1, None);
        }
    }

    #[cold]
    fn wake(&self) {
        if self.bed.swap(0, Ordering::Relaxed) != 0 {
            futex::wake(&self.bed, 1);
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
        let Lock { word, bed, .. } = self.lock;
        // Release pairs with the acquire in `take`, and with the kernel's.
        if word.compare_exchange(self.holder, 0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            futex::unlock(word);
        }
        fence_after_update();
        if bed.load(Ordering::Relaxed) != 0 {
            self.lock.wake();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by this guard, which is borrowed for as long as the reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed by nobody else.
        unsafe { &mut *self.lock.value.get() }
    }
}
