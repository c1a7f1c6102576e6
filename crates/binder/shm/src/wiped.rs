//! Memory that a child of fork finds all zero.
//!
//! A child of fork must not act as the owner of its parent's shared objects. The child may be made
//! by any system call and gets no notice. So a value that fast paths check anyway lies in this
//! memory: a child reads zero and leaves the fast path.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Types for which all zero bytes are a valid value that owns nothing.
///
/// # Safety
/// All zero bytes must be a valid value, and values must need no drop.
pub unsafe trait Zero {}

// SAFETY: an integer.
unsafe impl Zero for core::sync::atomic::AtomicU64 {}
// SAFETY: a pointer may be null and owns nothing by itself.
unsafe impl<T> Zero for AtomicPtr<T> {}
// SAFETY: every element is zero.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// A value on pages of its own, zero at first and in each child of fork.
#[derive(Debug)]
pub struct Wiped<T: Zero> {
    value: NonNull<T>,
}

// SAFETY: only shared references give access to the value.
unsafe impl<T: Zero + Sync> Send for Wiped<T> {}
// SAFETY: as above.
unsafe impl<T: Zero + Sync> Sync for Wiped<T> {}

impl<T: Zero> Wiped<T> {
    /// Maps a zero value. Fails without memory, or on kernels that cannot wipe it at a fork (before
    /// Linux 4.14).
    pub fn new() -> rustix::io::Result<Wiped<T>> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4096) };
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh map at an address of the kernel's choice; page-aligned, zero, and of the
        // value's size.
        let base = unsafe {
            let none = core::ptr::null_mut();
            rustix::mm::mmap_anonymous(none, size_of::<T>(), read_write, MapFlags::PRIVATE)?
        };
        let value = NonNull::new(base.cast()).ok_or(rustix::io::Errno::FAULT)?;
        let wiped = Wiped { value };
        // SAFETY: our own mapping, which is still empty.
        unsafe { rustix::mm::madvise(base, size_of::<T>(), Advice::LinuxWipeOnFork)? };
        Ok(wiped)
    }
}

impl<T: Zero> Deref for Wiped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: mapped as long as `self` lives, and a valid value: zero, or a value that was
        // stored through it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Zero> Drop for Wiped<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, also in a child of fork. No borrow of it is left.
        let _ = unsafe { rustix::mm::munmap(self.value.as_ptr().cast(), size_of::<T>()) };
    }
}

/// A value that each process makes for itself. A child of fork does not have its parent's value and
/// never drops it.
#[derive(Debug)]
pub struct PerProcess<T> {
    made: Wiped<AtomicPtr<T>>,
}

impl<T> PerProcess<T> {
    /// An empty place for the value. Errors are those of [`Wiped::new`].
    pub fn new() -> rustix::io::Result<PerProcess<T>> {
        Ok(PerProcess { made: Wiped::new()? })
    }

    /// This process's value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or a value that `get_or_make` stored, which lives as long as `self`.
        unsafe { self.made.load(Ordering::Acquire).as_ref() }
    }

    /// This process's value, made by `make` if necessary. If several threads make one at once, all
    /// get the same one.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let new = Box::into_raw(Box::new(make()));
        let first = (Ordering::AcqRel, Ordering::Acquire);
        match self.made.compare_exchange(core::ptr::null_mut(), new, first.0, first.1) {
            // SAFETY: our own allocation, which is freed only when `self` is dropped.
            Ok(_) => unsafe { &*new },
            Err(known) => {
                // SAFETY: just allocated and not shared.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `get`: it is not null.
                unsafe { &*known }
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let made = self.made.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !made.is_null() {
            // SAFETY: allocated by `get_or_make` in this process, and no borrow is left.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_child_finds_zero_and_the_parent_keeps_its_value() {
        let wiped = Wiped::<[AtomicU64; 2]>::new().unwrap();
        let per_process = PerProcess::<u64>::new().unwrap();
        assert_eq!((per_process.get(), per_process.get_or_make(|| 5)), (None, &5));
        wiped[1].store(7, Relaxed);
        // SAFETY: the child looks at a word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends this process, of which nothing is left to do.
            unsafe {
                libc::_exit(wiped[1].load(Relaxed) as i32 + i32::from(per_process.get().is_some()))
            };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((status, wiped[1].load(Relaxed), per_process.get()), (0, 7, Some(&5)));
    }
}
