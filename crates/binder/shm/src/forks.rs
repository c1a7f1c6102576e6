//! Tells a child of fork from the process that made a mapping or another object.
//!
//! A child must not use or unmap the address of a mapping that it did not inherit: the child may
//! have another mapping there. Nor may the child take a lock that another thread of the parent may
//! have held.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

/// Number of forks between this process and the one that executed its program, as far as the C
/// library made them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, distinguished from its parent by fork and from its own children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkGeneration(u32);

impl ForkGeneration {
    /// The calling process. From the first call on, later children compare unequal, unless they are
    /// made without the C library.
    pub fn current() -> ForkGeneration {
        static HANDLER: Once = Once::new();
        // SAFETY: the handler is a function of ours that changes one word.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(count)) });
        ForkGeneration(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this value stands for the calling process.
    #[inline]
    pub fn is_current(self) -> bool {
        // Relaxed: the word is written when the process has one thread.
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{self, Access, Mapping};
    use core::ptr;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    use rustix::process::{Pid, WaitOptions, waitpid};

    const BYTES: usize = 8192;

    #[test]
    fn dropping_a_parents_map_in_a_child_does_not_unmap_the_childs() {
        let file = mapping::create("test", BYTES).unwrap();
        let map = Mapping::<BYTES>::new(&file, Access::ReadWrite).unwrap();
        map.word(0).store(5, Ordering::Relaxed);
        let (generation, at) = (ForkGeneration::current(), map.address());
        // SAFETY: the child maps, writes and reads an address where it has no mapping, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            let kept = unsafe {
                let (flags, rights) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
                let own =
                    mmap_anonymous(ptr::with_exposed_provenance_mut(at), BYTES, rights, flags);
                let own = own.map_or(ptr::null_mut(), |own| own.cast::<u32>());
                if own.addr() == at {
                    own.write(7);
                    drop(map);
                    own.read_volatile() == 7
                } else {
                    false
                }
            };
            // SAFETY: ends the child without running code of the parent.
            unsafe {
                libc::_exit(i32::from(
                    generation.is_current() || ForkGeneration::current() == generation || !kept,
                ))
            }
        }
        let child = Pid::from_raw(child).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((status.exit_status(), map.word(0).load(Ordering::Relaxed)), (Some(0), 5));
        assert!(generation.is_current());
    }
}
