//! Memory that a child of fork finds all zero.
//!
//! A process that owns something shared must not go on owning it in its child, which may come by
//! any system call and tells nobody. What a fast path looks at anyway is kept here: in a child it
//! reads zero, and the path is left.

use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Values for which all zero bytes are one, and no owner of anything.
///
/// # Safety
/// Zero bytes are a valid value, and a value needs no drop.
pub unsafe trait Zero {}

// SAFETY: an integer.
unsafe impl Zero for core::sync::atomic::AtomicU64 {}
// SAFETY: a pointer, which may be null and owns nothing by itself.
unsafe impl<T> Zero for AtomicPtr<T> {}
// SAFETY: element by element.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// One value on pages of its own, zero at first and in each child of fork.
#[derive(Debug)]
pub struct Wiped<T: Zero> {
    value: NonNull<T>,
}

// SAFETY: the value is reached by shared reference only.
unsafe impl<T: Zero + Sync> Send for Wiped<T> {}
// SAFETY: as above.
unsafe impl<T: Zero + Sync> Sync for Wiped<T> {}

impl<T: Zero> Wiped<T> {
    /// A zero. Fails without memory, or where the kernel cannot wipe it (before Linux 4.14).
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
        // SAFETY: our own map, without anything in it yet.
        unsafe { rustix::mm::madvise(base, size_of::<T>(), Advice::LinuxWipeOnFork)? };
        Ok(wiped)
    }
}

impl<T: Zero> Deref for Wiped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: mapped as long as we live, and a value of the type: zero, or what was stored
        // through it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Zero> Drop for Wiped<T> {
    fn drop(&mut self) {
        // SAFETY: our own map, in a child of fork, too; the borrow checker ended every use of it.
        let _ = unsafe { rustix::mm::munmap(self.value.as_ptr().cast(), size_of::<T>()) };
    }
}

/// What a process has, and its child has not: the child makes its own. What the parent had is never
/// dropped there.
#[derive(Debug)]
pub struct PerProcess<T> {
    made: Wiped<AtomicPtr<T>>,
}

impl<T> PerProcess<T> {
    /// Nothing yet.
    pub fn new() -> rustix::io::Result<PerProcess<T>> {
        Ok(PerProcess { made: Wiped::new()? })
    }

    /// This process's, if it has one.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or what `get_or_make` has put there, which lives as long as we do.
        unsafe { self.made.load(Ordering::Acquire).as_ref() }
    }

    /// This process's. Of several threads that make one at once, one's stays.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(known) = self.get() {
            return known;
        }
        let new = Box::into_raw(Box::new(make()));
        let first = (Ordering::AcqRel, Ordering::Acquire);
        match self.made.compare_exchange(core::ptr::null_mut(), new, first.0, first.1) {
            // SAFETY: ours, and nobody frees it before we are dropped.
            Ok(_) => unsafe { &*new },
            Err(known) => {
                // SAFETY: just made, and given to nobody.
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
            // SAFETY: made in this process by `get_or_make`, and nobody borrows it any more.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_child_finds_zero_and_the_parent_what_it_had() {
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
