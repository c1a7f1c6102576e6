//! A lock whose holder inherits the priority of the threads that wait for it (`FUTEX_LOCK_PI`,
//! futex(2)). So a real-time thread waits no longer than the holder needs.

use rustix::io::Errno;
use rustix::thread::futex::{Flags, lock_pi, unlock_pi};
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A value that one thread at a time uses.
#[derive(Debug)]
pub struct Lock<T> {
    /// 0, or the thread that holds the lock, with a bit of the kernel's while others wait
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a reference to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

thread_local! {
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// Forgets the number of the calling thread: in a child of fork it has another one.
pub(crate) fn forget_thread() {
    OWN.set(0);
}

/// The calling thread's number.
fn own() -> u32 {
    OWN.with(|own| match own.get() {
        0 => {
            let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            own.set(number);
            number
        }
        number => number,
    })
}

/// The value, until this is dropped.
#[derive(Debug)]
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Lock<T> {
        Lock { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until no other thread holds the lock.
    ///
    /// # Panics
    /// If the calling thread holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.word.compare_exchange(0, own(), Acquire, Relaxed).is_err() {
            self.wait();
        }
        Guard(self)
    }

    #[cold]
    fn wait(&self) {
        loop {
            match lock_pi(&self.word, Flags::PRIVATE, None) {
                Ok(()) => return,
                // The holder is just ending, or a signal came.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The kernel has no such futexes, or no memory for one: nobody inherits.
                Err(Errno::NOSYS | Errno::NOMEM) => {
                    std::thread::yield_now();
                    if self.word.compare_exchange(0, own(), Acquire, Relaxed).is_ok() {
                        return;
                    }
                }
                Err(error) => panic!("the lock will never be released: {error}"),
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.word.compare_exchange(own(), 0, Release, Relaxed).is_err() {
            let released = unlock_pi(&self.0.word, Flags::PRIVATE);
            debug_assert!(released.is_ok(), "{released:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
